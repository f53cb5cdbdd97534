from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from gobblin_dagster.constructs.converters.columns import ColumnsConverter
from gobblin_dagster.core.constructs import Chunk
from gobblin_dagster.core.errors import ConvertError
from tests.unit.constructs.samples import CONTEXT, FILE, chunk, converted


def _converter(columns: dict[str, Any], **more: Any) -> ColumnsConverter:
    return ColumnsConverter(ColumnsConverter.Options.model_validate({"columns": columns, **more}), CONTEXT)


def _cast(declared: Any, values: Any) -> pa.Array:
    return converted(_converter({"a": declared}), chunk({"a": values})).batch.column("a")


UTC = dt.UTC


@pytest.mark.parametrize(
    ("declared", "texts", "kind", "values"),
    [
        ("int8", ["-128", "", None], pa.int8(), [-128, None, None]),
        ("int64", ["9223372036854775807"], pa.int64(), [2**63 - 1]),
        ("float32", ["1.5"], pa.float32(), [1.5]),
        ("float64", ["1e3", "-0.25"], pa.float64(), [1000.0, -0.25]),
        ("string", ["", "NA"], pa.string(), ["", "NA"]),
        ({"type": "string", "nulls": ["NA"]}, ["", "NA"], pa.string(), ["", None]),
        ("bool", ["true", "False", "1", "0", ""], pa.bool_(), [True, False, True, False, None]),
        ("binary", ["ab", ""], pa.binary(), [b"ab", b""]),
        ("date", ["2013-01-31"], pa.date32(), [dt.date(2013, 1, 31)]),
        ({"type": "date", "format": "%d.%m.%Y"}, ["31.1.2013", ""], pa.date32(), [dt.date(2013, 1, 31), None]),
        ("decimal(5,2)", ["1.5", "-999.99"], pa.decimal128(5, 2), [Decimal("1.50"), Decimal("-999.99")]),
        ({"type": "int16", "nulls": ["", "NA"]}, ["NA", "", "7"], pa.int16(), [None, None, 7]),
        ({"type": "int16", "nulls": []}, ["7"], pa.int16(), [7]),
    ],
    ids=str,
)
def test_text_becomes_the_declared_type(declared: Any, texts: Any, kind: pa.DataType, values: Any) -> None:
    result = _cast(declared, texts)
    assert result.type == kind
    assert result.to_pylist() == values


TEN = dt.datetime(2013, 1, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("declared", "text", "instant"),
    [
        ({}, "2013-01-01T10:00:00Z", TEN),
        ({}, "2013-01-01 10:00:00", TEN),
        ({}, "2013-01-01T12:00:00+02:00", TEN),
        ({}, "2013-01-01", TEN.replace(hour=0)),
        ({}, "2013-01-01T10:00:00.123456Z", TEN.replace(microsecond=123456)),
        ({"format": "iso"}, "2013-01-01T10:00:00Z", TEN),
        ({"format": "%Y-%m-%dT%H:%M:%SZ"}, "2013-01-01T10:00:00Z", TEN),
        ({"format": "%Y%m%d %H:%M %z"}, "20130101 12:00 +0200", TEN),
        ({"timezone": "America/New_York"}, "2013-01-01 05:00:00", TEN),
        ({"timezone": "America/New_York"}, "2013-01-01T10:00:00Z", TEN),
        ({"timezone": "America/New_York", "format": "%d/%m/%Y %H:%M"}, "01/01/2013 05:00", TEN),
        ({"timezone": "America/New_York"}, "2045-07-01 06:00:00", TEN.replace(year=2045, month=7)),
        ({"timezone": "Europe/Berlin", "format": "%Y%m%d %H"}, "20450701 12", TEN.replace(year=2045, month=7)),
    ],
)
def test_text_becomes_an_instant(declared: dict[str, Any], text: str, instant: dt.datetime) -> None:
    result = _cast({"type": "timestamp", **declared}, [text, ""])
    assert result.type == pa.timestamp("us", declared.get("timezone", "UTC"))
    assert result[1].as_py() is None
    assert result[0].as_py() == instant


def test_texts_with_and_without_offset_may_mix() -> None:
    texts = ["2013-01-01T10:00:00Z", "2013-01-01 05:00:00", None, "2013-01-01T12:00:00+02:00", "2013-01-01"]
    result = _cast({"type": "timestamp", "timezone": "America/New_York"}, texts)
    midnight = TEN.replace(hour=5)
    assert result.to_pylist() == [TEN, TEN, None, TEN, midnight]


def test_timestamp_without_zone_keeps_clock_time_and_refuses_offsets() -> None:
    naive = {"type": "timestamp", "timezone": None}
    result = _cast(naive, ["2013-01-01T10:00:00"])
    assert result.type == pa.timestamp("us")
    assert result.to_pylist() == [dt.datetime(2013, 1, 1, 10)]
    with pytest.raises(ConvertError, match="2013-01-01T10:00:00Z"):
        _cast(naive, ["2013-01-01T10:00:00Z"])


@pytest.mark.parametrize(
    ("source", "declared", "values"),
    [
        (pa.array([TEN], pa.timestamp("s", "UTC")), {"type": "timestamp", "timezone": "Europe/Berlin"}, [TEN]),
        (
            pa.array([TEN], pa.timestamp("ns", "UTC")),
            {"type": "timestamp", "timezone": None},
            [TEN.replace(tzinfo=None)],
        ),
        (pa.array([dt.datetime(2013, 1, 1, 10)]), {"type": "timestamp"}, [TEN]),
        (pa.array([dt.date(2013, 1, 1)]), {"type": "timestamp"}, [TEN.replace(hour=0)]),
        (pa.array([7], pa.int64()), {"type": "decimal(3,1)"}, [Decimal("7.0")]),
        (pa.array([7.0]), {"type": "int8"}, [7]),
        (pa.array(["7", None, "7"]).dictionary_encode(), {"type": "int8"}, [7, None, 7]),
        (pa.array(["7"], pa.large_string()), {"type": "int8"}, [7]),
        (pa.array(["7"], pa.string_view()), {"type": "int8"}, [7]),
        (pa.nulls(2), {"type": "timestamp"}, [None, None]),
        (pa.array([1, 0]), {"type": "string"}, ["1", "0"]),
    ],
    ids=str,
)
def test_other_types_are_cast(source: pa.Array, declared: dict[str, Any], values: list[Any]) -> None:
    assert _cast(declared, source).to_pylist() == values


@pytest.mark.parametrize(
    ("declared", "bad", "expected"),
    [
        ("int16", "25:61", "expected int16, got '25:61'"),
        ("int16", "40000", "expected int16, got '40000'"),
        ("int16", " 7", "expected int16, got ' 7'"),
        ("int16", "7.5", "expected int16, got '7.5'"),
        ({"type": "int16", "nulls": []}, "", "expected int16, got ''"),
        ("bool", "yes", "expected bool, got 'yes'"),
        ("date", "2013-02-31", "expected date, got '2013-02-31'"),
        ("decimal(5,2)", "1.555", r"expected decimal\(5,2\), got '1.555'"),
        ("decimal(5,2)", "1000", r"expected decimal\(5,2\), got '1000'"),
        ({"type": "timestamp", "format": "%Y-%m-%d"}, "2013-02-31", "expected timestamp as %Y-%m-%d, got '2013-02-31'"),
        ({"type": "timestamp", "format": "%Y-%m-%d"}, "2013-02-01x", "got '2013-02-01x'"),
        ({"type": "timestamp", "timezone": "Europe/Berlin"}, "2013-03-31 02:30:00", "got '2013-03-31 02:30:00'"),
        ("timestamp", "soon", "expected timestamp, got 'soon'"),
    ],
    ids=str,
)
def test_bad_value_is_named_with_file_row_and_type(declared: Any, bad: str, expected: str) -> None:
    good = {"bool": "1", "date": "2013-01-01"}.get(declared if isinstance(declared, str) else declared["type"], "7")
    good = "2013-01-01" if "timestamp" in str(declared) else good
    given = chunk({"x": ["u"] * 100, "a": [good] * 61 + [bad] + [good] * 37 + [bad]}, first_row=1001)
    with pytest.raises(ConvertError, match=f"row 1062, column 'a': .*{expected}$") as caught:
        list(_converter({"a": declared}).convert(given))
    assert caught.value.file == FILE
    assert caught.value.dataset_urn == "AA/EWR"


def test_bad_value_is_bounded_in_the_message() -> None:
    with pytest.raises(ConvertError) as caught:
        _cast("int8", ["x" * 10_000])
    assert len(str(caught.value)) < 250


def test_row_that_is_not_known_is_left_out_of_the_message() -> None:
    given = Chunk(pa.record_batch({"a": ["x"]}), FILE, pa.nulls(1, pa.int64()))
    with pytest.raises(ConvertError, match="columns': column 'a'"):
        list(_converter({"a": "int8"}).convert(given))


def test_missing_columns_are_named_with_those_found() -> None:
    with pytest.raises(ConvertError, match="expected columns 'b', 'c'; found: a, d"):
        _converter({"a": "int8", "b": "int8", "c": "int8"}).convert_schema(
            pa.schema([("a", pa.string()), ("d", pa.string())])
        )


def test_number_is_no_timestamp() -> None:
    with pytest.raises(ConvertError, match=r"column 'a' is int64; a timestamp comes from text or time"):
        _converter({"a": "timestamp"}).convert_schema(pa.schema([("a", pa.int64())]))


def test_type_that_cannot_become_another_is_refused_before_any_row() -> None:
    with pytest.raises(ConvertError, match="column 'a' is list<item: int64>, which cannot become int8"):
        _converter({"a": "int8"}).convert_schema(pa.schema([("a", pa.list_(pa.int64()))]))


def test_chunk_without_rows_is_converted() -> None:
    empty = chunk({"a": pa.array([], pa.string()), "t": pa.array([], pa.string())})
    columns = {"a": "decimal(5,2)", "t": {"type": "timestamp", "format": "%Y"}}
    assert converted(_converter(columns), empty).batch.num_rows == 0


def test_format_that_is_none_is_refused_before_any_row() -> None:
    with pytest.raises(ConvertError, match="%Q"):
        _converter({"a": {"type": "date", "format": "%Q"}}).convert_schema(pa.schema([("a", pa.string())]))


def test_other_columns_keep_their_place_or_are_left_out() -> None:
    given = chunk({"x": ["u"], "b": ["1"], "y": ["v"], "a": ["2"]})
    kept = converted(_converter({"a": "int8", "b": "int8"}), given)
    assert kept.batch.to_pylist() == [{"x": "u", "b": 1, "y": "v", "a": 2}]
    alone = converted(_converter({"a": "int8", "b": "int8"}, keep_others=False), given)
    assert alone.batch.to_pylist() == [{"b": 1, "a": 2}]
    assert alone.rows.to_pylist() == [1]


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ("int", "unknown column type 'int'; known: string, bool, int8"),
        ("decimal(39,2)", "unknown column type"),
        ("decimal(2,3)", "unknown column type"),
        ({"type": "int8", "format": "%d"}, "a format is for date and timestamp"),
        ({"type": "timestamp", "timezone": "Mars/Olympus"}, "expected an IANA zone"),
        ({"type": "timestamp", "timezone": "../etc/passwd"}, "expected an IANA zone"),
        ({"type": "int8", "null": []}, "Extra inputs"),
        (7, "valid dictionary|instance of ColumnType"),
    ],
    ids=str,
)
def test_bad_declaration_is_refused(declared: Any, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        ColumnsConverter.Options.model_validate({"columns": {"a": declared}})


def test_columns_that_are_no_mapping_are_refused() -> None:
    with pytest.raises(ValidationError, match="valid dictionary"):
        ColumnsConverter.Options.model_validate({"columns": ["a"]})
