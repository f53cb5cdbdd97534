"""Values that Arrow or DuckDB would round, cut or change silently are refused or kept."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.converters.avro_bytes import AvroBytesConverter
from gobblin_dagster.constructs.converters.columns import ColumnsConverter
from gobblin_dagster.constructs.converters.dedup import DedupConverter
from gobblin_dagster.constructs.converters.filter import FilterConverter
from gobblin_dagster.constructs.converters.function import FunctionConverter
from gobblin_dagster.constructs.converters.json_text import JsonTextConverter
from gobblin_dagster.constructs.converters.parse_timestamps import ParseTimestampsConverter
from gobblin_dagster.constructs.converters.schema import SchemaConverter
from gobblin_dagster.constructs.quality.not_null import NotNullRowPolicy
from gobblin_dagster.constructs.quality.values import RangeRowPolicy
from gobblin_dagster.core.errors import ConvertError
from tests.unit.constructs.samples import CONTEXT, chunk, converted


def same_record(record: dict[str, Any]) -> dict[str, Any]:
    return record


def _convert(cls: type[Any], options: dict[str, Any], values: Any) -> list[Any]:
    converter = cls(cls.Options.model_validate(options), CONTEXT)
    column: list[Any] = converted(converter, chunk({"v": values})).batch.column(0).to_pylist()
    return column


@pytest.mark.parametrize("cls", [ColumnsConverter, SchemaConverter])
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("float64", ["1e400"]),
        ("float32", ["1e300"]),
        ("float32", [1e300]),
        ("float32", pa.array([Decimal(10) ** 40], pa.decimal256(50, 0))),
        ("decimal(5,2)", [1.239]),
        ("decimal(5,2)", [float("nan")]),
        ("bool", [2]),
        ("bool", [0.5]),
        ("bool", [float("nan")]),
        ("string", pa.array([10**15], pa.timestamp("ms"))),
        ("string", pa.array([-5 * 10**9], pa.timestamp("s", "America/New_York"))),
        ("string", pa.array([2932897], pa.date32())),
    ],
    ids=str,
)
def test_cast_that_would_change_a_value_is_refused(cls: type[Any], kind: str, values: Any) -> None:
    with pytest.raises(ConvertError, match="column 'v': expected"):
        _convert(cls, {"columns": {"v": kind}}, values)


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("float64", ["inf", "-Infinity", None, "1e308"], [float("inf"), float("-inf"), None, 1e308]),
        ("float32", [float("inf"), 0.5, None], [float("inf"), 0.5, None]),
        ("decimal(5,2)", [0.1, 1e2, None], [Decimal("0.10"), Decimal("100.00"), None]),
        ("decimal(23,2)", [1e20], [Decimal(10) ** 20]),
        ("bool", [0, 1, None], [False, True, None]),
        ("bool", [0.0, 1.0, None], [False, True, None]),
    ],
    ids=str,
)
def test_cast_that_fits_is_done(kind: str, values: list[Any], expected: list[Any]) -> None:
    assert _convert(ColumnsConverter, {"columns": {"v": kind}}, values) == expected


@pytest.mark.parametrize(
    ("kind", "value"),
    [("float32", 1e300), ("float64", "1e400"), ("decimal(5,2)", 1.239), ("bool", 7)],
    ids=str,
)
def test_casts_inside_of_structs_and_lists_are_as_strict(kind: str, value: Any) -> None:
    for shape, row in [({"a": kind}, {"a": value}), ([kind], [value]), ([{"a": [kind]}], [{"a": [value]}])]:
        with pytest.raises(ConvertError, match="row 2: column 'v': expected"):
            _convert(SchemaConverter, {"columns": {"v": shape}}, pa.array([None, row]))


def test_nested_casts_keep_nulls_order_and_slices() -> None:
    rows = [None, [], [{"a": 1, "b": ["x"]}, None], [{"a": None, "b": None}], [{"a": 3, "b": [None, "y"]}]]
    values = pa.array([[{"a": 9, "b": ["cut off"]}], *rows])[1:]
    options = {"columns": {"v": [{"b": ["string"], "a": "decimal(5,2)"}]}}
    assert _convert(SchemaConverter, options, values) == [
        None,
        [],
        [{"b": ["x"], "a": Decimal("1.00")}, None],
        [{"b": None, "a": None}],
        [{"b": [None, "y"], "a": Decimal("3.00")}],
    ]


def test_fields_of_structs_go_by_name_whatever_the_name() -> None:
    odd = [{".a": 1, "[0]": 2, "": 3}, None]
    assert _convert(SchemaConverter, {"columns": {"v": {"": "int8", "[0]": "int8", ".a": "int8"}}}, odd) == odd


@pytest.mark.parametrize("word", ["infinity", "-infinity", "epoch"])
def test_words_that_duckdb_takes_for_a_time_are_none(word: str) -> None:
    form = "%d.%m.%Y"
    with pytest.raises(ConvertError, match=rf"got '{word}'"):
        _convert(ColumnsConverter, {"columns": {"v": {"type": "date", "format": form}}}, ["01.02.2020", word])
    with pytest.raises(ConvertError, match=f"got '{word}'"):
        _convert(ParseTimestampsConverter, {"columns": {"v": form}}, ["01.02.2020", word])


def test_nanoseconds_that_do_not_fit_are_an_error_of_their_row() -> None:
    with pytest.raises(ConvertError, match=r"row 2: column 'v': .*would lose data"):
        _convert(ParseTimestampsConverter, {"columns": {"v": {}}}, pa.array([1000, 1], pa.timestamp("ns")))


@pytest.mark.parametrize(
    "texts",
    [
        ['{"a":1}{"a":2}', ""],
        ['{"a":1} {"a":2}', " ", '{"a":3}'],
        ['{"a":"x\ny"}'],
        ['{"f":1e300}'],
        ["[1]"],
        ['{"a":1'],
    ],
    ids=["two and none", "two and blank", "line end inside of a text", "too large", "list", "open"],
)
def test_json_texts_that_would_become_rows_of_others_are_refused(texts: list[str]) -> None:
    with pytest.raises(ConvertError, match="column 'v': expected a JSON object"):
        _convert(JsonTextConverter, {"column": "v", "columns": {"a": "string", "f": "float32"}}, texts)


def test_number_too_large_for_float64_is_not_made_infinite() -> None:
    options = {"column": "v", "columns": {"a": "float64"}}
    assert _convert(JsonTextConverter, options, ['{"a": Infinity}']) == [float("inf")]
    with pytest.raises(ConvertError, match="too large for float64"):
        _convert(JsonTextConverter, options, ['{"a": 1.8e308}'])


def test_number_with_more_digits_than_its_decimal_is_not_altered() -> None:
    options = {"column": "v", "columns": {"a": "decimal(5,2)"}}
    assert _convert(JsonTextConverter, options, ['{"a": 999.99}']) == [Decimal("999.99")]
    with pytest.raises(ConvertError, match="has more digits than"):
        _convert(JsonTextConverter, options, ['{"a": 1}', '{"a": "99999"}'])


def test_time_with_an_offset_is_not_altered_to_fit_a_column_without_a_zone() -> None:
    options = {"column": "v", "columns": {"a": "timestamp_ntz"}}
    with pytest.raises(ConvertError, match=r"field 'a' .* has an offset, and timestamp\[us\] has no zone"):
        _convert(JsonTextConverter, options, ['{"a": "2024-01-01T01:00:00+01:00"}'])


def test_json_null_is_null_wherever_it_stands() -> None:
    options = {"column": "v", "columns": {"a": "int64"}}
    assert _convert(JsonTextConverter, options, ["null", '{\n"a":\r\n1}', " null ", None]) == [None, 1, None, None]


SHAPE = {"a": "int64", "l": [{"x": "int8"}]}
GIVEN = {"a": 1, "l": [{"x": 1}]}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (GIVEN | {"b": 2}, "column 'v': .*; also 'b'"),
        ({"a": 1}, "column 'v': .*; no field 'l'"),
        (GIVEN | {"l": [{"x": 1, "y": 2}]}, "column 'v.l': .*; also 'y'"),
    ],
    ids=["other", "missing", "nested"],
)
def test_schema_of_a_struct_is_as_strict_as_that_of_columns(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConvertError, match=problem):
        _convert(SchemaConverter, {"columns": {"v": SHAPE}}, [given])
    lenient = {"columns": {"v": SHAPE}, "missing": "null", "others": "drop"}
    (found,) = _convert(SchemaConverter, lenient, [given])
    assert list(found) == ["a", "l"]


def test_avro_header_of_null_and_of_short_bytes() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]}
    options = {"column": "v", "avro_schema": schema, "header_bytes": 1}
    assert _convert(AvroBytesConverter, options, [b"x\x02", None]) == [1, None]
    with pytest.raises(ConvertError, match="is no Avro datum of its schema"):
        _convert(AvroBytesConverter, options, [b""])


def test_both_hours_of_a_clock_that_goes_back_are_keys_of_their_own() -> None:
    seen = pa.array([1_699_160_400, 1_699_164_000, 1_699_164_000], pa.timestamp("s", "America/New_York"))
    converter = DedupConverter(DedupConverter.Options(by=("v",)), CONTEXT)
    assert converted(converter, chunk({"v": seen})).batch.num_rows == 2
    by_two = DedupConverter(DedupConverter.Options(by=("v", "w")), CONTEXT)
    assert converted(by_two, chunk({"v": seen.dictionary_encode(), "w": [1, 1, 1]})).batch.num_rows == 2


def test_value_to_compare_with_is_not_rounded() -> None:
    prices = chunk({"v": pa.array([Decimal("1.24")], pa.decimal128(5, 2))})
    converter = FilterConverter(FilterConverter.Options(column="v", equals=1.239), CONTEXT)
    with pytest.raises(ConvertError, match="expected a value of type decimal128"):
        converter.convert_schema(prices.batch.schema)
    policy = RangeRowPolicy(RangeRowPolicy.Options(column="v", max=1.239), CONTEXT)
    with pytest.raises(ConvertError, match=r"expected values to compare with at most 1\.239"):
        policy.check(prices.batch)
    assert RangeRowPolicy(RangeRowPolicy.Options(column="v", max=1.24), CONTEXT).check(prices.batch).to_pylist() == [
        True
    ]


def test_null_inside_of_a_dictionary_is_null() -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["a", None]))
    policy = NotNullRowPolicy(NotNullRowPolicy.Options(columns=("v",)), CONTEXT)
    assert policy.check(chunk({"v": values}).batch).to_pylist() == [True, False, False]


def test_nanoseconds_of_a_time_of_day_make_keys_of_their_own() -> None:
    seen = pa.array([1, 2, 2]).view(pa.time64("ns"))
    converter = DedupConverter(DedupConverter.Options(by=("v",)), CONTEXT)
    assert converted(converter, chunk({"v": seen})).batch.num_rows == 2
    same = FunctionConverter(FunctionConverter.Options(function=f"{same_record.__module__}:same_record"), CONTEXT)
    whole, parts = pa.array([1000]).view(pa.time64("ns")), pa.ListArray.from_arrays(pa.array([0, 3], pa.int32()), seen)
    assert converted(same, chunk({"v": whole})).batch.column(0).equals(whole)
    with pytest.raises(ConvertError, match="column 'v' has times of day with nanoseconds"):
        converted(same, chunk({"v": parts}))


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ('{"x": 1.8e308, "name": "Info"}', {"x": "float64", "name": "string"}),
        ('{"x": [Infinity, -1.8e308]}', {"x": ["float64"]}),
        ('{"x": 1e39, "Inf": 1}', {"x": "float32"}),
        ('{"x": 1e39, "y": Inf}', {"x": "float32", "y": "float64"}),
    ],
)
def test_json_number_too_large_is_refused_beside_the_word_of_an_infinity(text: str, columns: dict[str, Any]) -> None:
    with pytest.raises(ConvertError, match="too large for float"):
        _convert(JsonTextConverter, {"column": "v", "columns": columns}, [text])


def test_infinity_that_json_spells_is_kept() -> None:
    texts = ['{"x": Infinity, "far": 1e-99999999999999999999}', '{"x": -Inf}', None]
    assert _convert(JsonTextConverter, {"column": "v", "columns": {"x": "float32"}}, texts) == [
        float("inf"),
        float("-inf"),
        None,
    ]
