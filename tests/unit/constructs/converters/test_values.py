"""Converters of values: times, masks, hashes, encryption, CSV, JSON, Avro, bytes, schemas."""

from __future__ import annotations

import base64
import datetime as dt
import hmac
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.constructs.types.shapes import arrow_shape
from gobblin_dagster.core.constructs import Chunk, ConstructContext, Converter
from gobblin_dagster.core.errors import ConvertError, EnvironmentFaultError, InvalidSpecError, UsageError
from gobblin_dagster.spec.job import ConverterSpec
from tests.unit.constructs.samples import CONTEXT, chunk, converted

SECRET = "0123456789abcdef"
UTC = dt.UTC


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HASH_KEY", SECRET)
    monkeypatch.setenv("SHORT_KEY", "abc")
    monkeypatch.setenv("AES_KEY", base64.b64encode(b"k" * 32).decode())
    monkeypatch.setenv("OTHER_AES_KEY", base64.b64encode(b"o" * 16).decode())


def _make(spec: dict[str, Any], context: ConstructContext = CONTEXT) -> Converter:
    made: Converter = registry.create(ConstructKind.CONVERTER, ConverterSpec.model_validate(spec), context)
    return made


def _values(spec: dict[str, Any], values: Any, column: str = "a") -> list[Any]:
    given = chunk({"a": values})
    result = converted(_make(spec), given)
    assert result.rows.equals(given.rows)
    found: list[Any] = result.batch.column(column).to_pylist()
    return found


def _refused(spec: dict[str, Any], given: Chunk) -> str:
    with pytest.raises(ConvertError) as caught:
        converted(_make(spec), given)
    return str(caught.value)


TEN = dt.datetime(2013, 1, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("form", "value", "time"),
    [
        ("iso", "2013-01-01T10:00:00Z", TEN),
        (["%d.%m.%Y %H:%M", "iso"], "01.01.2013 10:00", TEN),
        (["%d.%m.%Y %H:%M", "iso"], "2013-01-01 10:00:00", TEN),
        (["iso", "%d.%m.%Y %H:%M %z"], "01.01.2013 12:00 +02:00", TEN),
        ({"formats": ["%Y%m%d%H"], "timezone": "America/New_York"}, "2013010105", TEN),
        ("iso", "", None),
        ({"nulls": ["NA"]}, "NA", None),
        ({"unit": "s"}, 1357034400, TEN),
        ({}, 1357034400_000, TEN),
        ({"unit": "us"}, 1357034400_000_000, TEN),
        ({}, dt.datetime(2013, 1, 1, 10), TEN),
    ],
    ids=str,
)
def test_times_of_many_forms_are_read(form: Any, value: Any, time: Any) -> None:
    spec = {"type": "parse_timestamps", "columns": {"a": form}}
    assert _values(spec, [value, None]) == [time, None]


def test_time_of_no_form_names_row_column_forms_and_value() -> None:
    spec = {"type": "parse_timestamps", "columns": {"a": ["iso", "%d.%m.%Y"]}}
    given = chunk({"a": ["2013-01-01", "31.02.2013", "x"]}, first_row=5)
    assert (
        "file in/flights.csv, converter 'parse_timestamps': row 6: column 'a': expected a time as iso or %d.%m.%Y, "
        "got '31.02.2013'"
    ) in _refused(spec, given)


def test_time_that_only_looks_like_iso_is_an_error() -> None:
    spec = {"type": "parse_timestamps", "columns": {"a": "iso"}}
    assert "row 2" in _refused(spec, chunk({"a": ["2013-01-01", "2013-02-31"]}))


def test_times_need_text_or_numbers() -> None:
    spec = {"type": "parse_timestamps", "columns": {"a": "iso"}}
    assert "column 'a': expected text or an integer, got double" in _refused(spec, chunk({"a": [1.5]}))


@pytest.mark.parametrize(
    ("options", "masked"),
    [
        ({}, ["*****", "**", "", None]),
        ({"keep_last": 2, "sign": "x"}, ["xxxIJ", "xx", "", None]),
        ({"keep_first": 1, "keep_last": 1}, ["F***J", "**", "", None]),
        ({"length": 3}, ["***", "***", "***", None]),
        ({"keep_first": 1, "length": 3}, ["F***", "É***", "***", None]),
    ],
    ids=str,
)
def test_mask_hides_all_but_the_ends(options: dict[str, Any], masked: list[str | None]) -> None:
    assert _values({"type": "mask", "columns": ["a"]} | options, ["FGHIJ", "Éa", "", None]) == masked


@pytest.mark.parametrize("option", ["keep_first", "keep_last", "length"])
def test_mask_of_more_characters_than_memory_has_is_refused(option: str) -> None:
    with pytest.raises(InvalidSpecError, match="expected at most 1000000"):
        _values({"type": "mask", "columns": ["a"], option: 10**18}, ["F"])


def test_mask_needs_text() -> None:
    assert "column 'a': expected text, got int64; drop it" in _refused(
        {"type": "mask", "columns": ["a"]}, chunk({"a": [1]})
    )


def test_hash_is_hmac_sha256_and_the_same_for_equal_values() -> None:
    expected = hmac.new(SECRET.encode(), "Zoë".encode(), "sha256").hexdigest()
    spec = {"type": "hash", "columns": ["a"], "key_env": "HASH_KEY"}
    assert _values(spec, ["Zoë", None, "Zoë"]) == [expected, None, expected]
    assert _values(spec | {"digits": 16}, ["Zoë".encode()]) == [expected[:16]]
    assert _values(spec, [7]) == [hmac.new(SECRET.encode(), b"7", "sha256").hexdigest()]


@pytest.mark.parametrize(("variable", "problem"), [("NO_KEY", "is not set"), ("SHORT_KEY", "is 3 bytes long")])
def test_hash_without_a_good_key_names_the_variable_and_no_key(variable: str, problem: str) -> None:
    with pytest.raises(EnvironmentFaultError, match=f"{variable}, key of converter 'hash', {problem}") as caught:
        _make({"type": "hash", "columns": ["a"], "key_env": variable})
    assert "abc" not in str(caught.value)


def test_key_in_place_of_its_variable_is_refused() -> None:
    with pytest.raises(InvalidSpecError, match="key_env"):
        _make({"type": "hash", "columns": ["a"], "key_env": "s3cr3t-key"})


def test_hash_of_lists_is_refused() -> None:
    spec = {"type": "hash", "columns": ["a"], "key_env": "HASH_KEY"}
    assert "column 'a': expected a plain value, got list" in _refused(spec, chunk({"a": [[1]]}))


@pytest.mark.parametrize("values", [["Zoë", "", None, "Zoë"], [b"\x00\xff", b"", None]], ids=["text", "bytes"])
def test_decrypt_undoes_encrypt(values: list[Any]) -> None:
    given = chunk({"a": values})
    sealed = converted(_make({"type": "encrypt", "columns": ["a"], "key_env": "AES_KEY"}), given)
    assert sealed.batch.schema == given.batch.schema
    assert len({value for value in sealed.batch.column("a").to_pylist() if value}) == len(
        [v for v in values if v is not None]
    )
    opened = converted(_make({"type": "decrypt", "columns": ["a"], "key_env": "AES_KEY"}), sealed)
    assert opened.batch.equals(given.batch)


def test_decrypt_refuses_another_key_and_changed_values_without_showing_them() -> None:
    given = chunk({"a": ["good", "secret"]}, first_row=4)
    sealed = converted(_make({"type": "encrypt", "columns": ["a"], "key_env": "AES_KEY"}), given)
    other = {"type": "decrypt", "columns": ["a"], "key_env": "OTHER_AES_KEY"}
    assert "row 4: column 'a': expected a value encrypted with this key" in _refused(other, sealed)
    texts = sealed.batch.column("a").to_pylist()
    raw = bytearray(base64.b64decode(texts[1]))
    raw[20] ^= 1
    changed = chunk({"a": [texts[0], base64.b64encode(raw).decode()]}, first_row=4)
    message = _refused(other | {"key_env": "AES_KEY"}, changed)
    assert "row 5: column 'a'" in message
    assert base64.b64encode(raw).decode() not in message


def test_encrypt_needs_text_or_bytes_and_a_key_of_aes() -> None:
    spec = {"type": "encrypt", "columns": ["a"], "key_env": "AES_KEY"}
    assert "column 'a': expected text or binary, got int64" in _refused(spec, chunk({"a": [1]}))
    with pytest.raises(EnvironmentFaultError, match=r"SHORT_KEY.*is not base64 of 16, 24 or 32 bytes"):
        _make(spec | {"key_env": "SHORT_KEY"})


@pytest.mark.parametrize("odd", ["ünïcödé", "\udcff\udcfe"], ids=["letters", "bytes"])
def test_key_with_other_letters_than_ascii_is_told_to_be_none(monkeypatch: pytest.MonkeyPatch, odd: str) -> None:
    monkeypatch.setenv("ODD_KEY", odd)
    with pytest.raises(EnvironmentFaultError, match=r"ODD_KEY.*is not base64 of 16, 24 or 32 bytes"):
        _make({"type": "encrypt", "columns": ["a"], "key_env": "ODD_KEY"})
    with pytest.raises(EnvironmentFaultError, match=r"ODD_KEY.*bytes long"):
        _make({"type": "hash", "columns": ["a"], "key_env": "ODD_KEY"})


CSV = {"type": "csv_text", "column": "line", "columns": ["x", "y"]}


@pytest.mark.parametrize(
    ("options", "lines", "rows"),
    [
        ({}, ["1,2", ",b", None], [("1", "2"), (None, "b"), (None, None)]),
        ({}, ['"a,b","c ""d"""', "1,2"], [("a,b", 'c "d"'), ("1", "2")]),
        ({"delimiter": "|", "nulls": ["null"]}, ["null|", "a|b"], [(None, ""), ("a", "b")]),
        ({"short": True}, ["1", ""], [("1", None), (None, None)]),
        ({"long": True}, ["1,2,3", "4,5"], [("1", "2"), ("4", "5")]),
        ({"short": True, "quote": "'"}, ["'1,2'"], [("1,2", None)]),
        ({"short": True, "nulls": []}, ["", '"a"', "\n", None], [("", None), ("a", None), ("", None), (None, None)]),
        ({}, ["1,2\n", '"3",4\r\n', "5,6\r", "7,8"], [("1", "2"), ("3", "4"), ("5", "6"), ("7", "8")]),
        ({"quote": None}, ['1,"2\n', '"3,4'], [("1", '"2'), ('"3', "4")]),
        ({}, [f'"{"a" * 140_000}",1', f"{'b' * 140_000},2"], [("a" * 140_000, "1"), ("b" * 140_000, "2")]),
    ],
    ids=str,
)
def test_csv_text_becomes_columns(options: dict[str, Any], lines: list[Any], rows: list[Any]) -> None:
    given = chunk({"id": list(range(len(lines))), "line": lines, "z": lines})
    result = converted(_make(CSV | options), given)
    assert result.batch.schema.names == ["id", "x", "y", "z"]
    assert [(row["x"], row["y"]) for row in result.batch.to_pylist()] == rows
    assert result.rows.equals(given.rows)


def test_csv_text_works_on_a_part_of_a_batch() -> None:
    whole = chunk({"line": ["1,2", None, "3,4", "5,6"]})
    part = whole.slice(1, 2)
    assert converted(_make(CSV), part).batch.to_pylist() == [{"x": None, "y": None}, {"x": "3", "y": "4"}]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("1", "expected 2 values, got 1 in '1'"),
        ("1,2,3", "expected 2 values, got 3 in '1,2,3'"),
        ('"1,2', "expected a row of CSV, got '\"1,2'"),
        ("1,2\n3", r"expected a row of CSV, got '1,2\n3': new-line character seen in unquoted field"),
        ("1\r,2", r"expected a row of CSV, got '1\r,2': new-line character seen in unquoted field"),
    ],
)
@pytest.mark.parametrize("beside", ["c,d", '"c",d', '"c'])
def test_csv_text_that_does_not_fit_names_row_and_column(line: str, problem: str, beside: str) -> None:
    given = chunk({"line": ["a,b", line, beside]}, first_row=40)
    assert f"converter 'csv_text': row 41: column 'line': {problem}" in _refused(CSV, given)


@pytest.mark.parametrize("signs", [{"delimiter": "\n"}, {"quote": "\r"}, {"delimiter": '"'}], ids=str)
def test_csv_text_refuses_signs_that_mean_two_things(signs: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpecError, match=r"a line break ends a row|delimiter and quote are both"):
        _make(CSV | signs)


JSON = {"type": "json_text", "column": "a", "columns": {"n": "int64", "tags": ["string"], "at": {"x": "float64"}}}


def test_json_text_becomes_typed_columns() -> None:
    texts = ['{"n": 1, "tags": ["a", "b"], "at": {"x": 0.5}, "more": 1}', '{\r\n "n": null }', None, "{}"]
    result = converted(_make(JSON), chunk({"id": [1, 2, 3, 4], "a": texts}))
    nothing = {"n": None, "tags": None, "at": None}
    assert result.batch.to_pylist() == [
        {"id": 1, "n": 1, "tags": ["a", "b"], "at": {"x": 0.5}},
        *({"id": at} | nothing for at in (2, 3, 4)),
    ]


@pytest.mark.parametrize("text", ['{"n": "x"}', "{", "[1]", "", '{"n": 1} {"n": 2}', '{"n": 1.5}'])
def test_json_text_that_does_not_fit_names_row_column_expected_and_got(text: str) -> None:
    message = _refused(JSON, chunk({"a": ["{}", text, "{}"]}, first_row=2))
    assert "converter 'json_text': row 3: column 'a': expected a JSON object with n: int64, tags: list" in message
    assert f"got {text!r}" in message


def test_rows_of_json_text_write_days_each_in_its_own_way() -> None:
    spec = {"type": "json_text", "column": "a", "columns": {"days": ["date"]}}
    texts = ['{"days": ["2013-01-31"]}', None, '{"days": [15736, null]}', '{"days": ["2013-02-01"]}', "{}"]
    day, after = dt.date(2013, 1, 31), dt.date(2013, 2, 1)
    assert converted(_make(spec), chunk({"a": texts})).batch.column("days").to_pylist() == [
        [day], None, [day, None], [after], None,
    ]  # fmt: skip
    assert "row 4" in _refused(spec, chunk({"a": [*texts[:3], '{"days": [true]}', texts[0]]}))


def test_number_too_large_for_json_text_is_refused_beside_an_infinity() -> None:
    spec = {"type": "json_text", "column": "a", "columns": {"x": "float64"}}
    message = _refused(spec, chunk({"a": ['{"x": Infinity}', '{"x": 1.8e308}']}))
    assert "row 2" in message
    assert "x is 1.8e+308, which is too large for float64" in message


def test_dates_of_json_text_are_texts_or_days_since_1970_at_whatever_depth() -> None:
    columns = {"born": "date", "stay": {"days": ["date"], "rooms": "int64"}}
    texts = ['{"born": "2013-01-31", "stay": {"days": ["2013-02-01", null], "rooms": 2}}', None, '{"stay": null}']
    make = _make({"type": "json_text", "column": "a", "columns": columns})
    given = converted(make, chunk({"a": texts})).batch
    assert given.schema.field("born").type == pa.date32()
    assert given.to_pylist() == [
        {"born": dt.date(2013, 1, 31), "stay": {"days": [dt.date(2013, 2, 1), None], "rooms": 2}},
        {"born": None, "stay": None},
        {"born": None, "stay": None},
    ]
    numbers = ['{"born": 15736, "stay": {"days": [15737, null], "rooms": 2}}', None, '{"stay": null}']
    assert converted(make, chunk({"a": numbers})).batch.equals(given)


@pytest.mark.parametrize("born", ['"2013-02-30"', '"31.01.2013"', '"15736"', '""', "1.5"])
def test_json_text_refuses_dates_that_are_none(born: str) -> None:
    declared = JSON | {"columns": {"born": "date"}}
    message = _refused(declared, chunk({"a": ['{"born": "2013-01-31"}', f'{{"born": {born}}}']}, first_row=1))
    assert "row 2: column 'a': expected a JSON object with born: date32[day]; got" in message


def test_json_text_can_refuse_fields_that_are_not_declared() -> None:
    assert "row 1: column 'a'" in _refused(JSON | {"unknown": False}, chunk({"a": ['{"m": 1}']}))


def test_to_json_packs_columns_and_json_text_unpacks_them() -> None:
    given = chunk({"id": [1, 2], "n": [5, None], "on": [dt.date(2013, 1, 31), None], "s": ["x", "ü"]})
    packed = converted(_make({"type": "to_json", "columns": ["s", "n", "on"], "into": "a"}), given)
    assert packed.batch.schema.names == ["id", "a"]
    assert json.loads(packed.batch.column("a")[1].as_py()) == {"s": "ü", "n": None, "on": None}
    columns = {"n": "int64", "on": "date", "s": "string"}
    assert converted(_make({"type": "json_text", "column": "a", "columns": columns}), packed).batch.equals(given.batch)


def test_to_json_of_a_struct_with_two_fields_of_one_name_is_refused() -> None:
    twice = pa.list_(pa.struct([("a", pa.int64()), ("a", pa.string())]))
    schema = pa.schema([("id", pa.int64()), ("v", twice)])
    with pytest.raises(ConvertError, match="column 'v': a struct has more than one field named 'a'; rename or drop"):
        _make({"type": "to_json"}).convert_schema(schema)
    assert _make({"type": "to_json", "columns": ["id"]}).convert_schema(schema).names == ["v", "json"]


def test_to_json_of_a_column_that_is_not_there_is_refused() -> None:
    assert "expected column 'q'; found: a" in _refused({"type": "to_json", "columns": ["q"]}, chunk({"a": [1]}))


@pytest.mark.parametrize(
    ("encoding", "text", "raw"),
    [
        ("utf-8", "Zoë", "Zoë".encode()),
        ("latin-1", "Zoë", b"Zo\xeb"),
        ("base64", "AP8=", b"\x00\xff"),
        ("hex", "00ff", b"\x00\xff"),
    ],
)
def test_bytes_become_text_and_back(encoding: str, text: str, raw: bytes) -> None:
    options = {"columns": ["a"], "encoding": encoding}
    assert _values({"type": "bytes_to_text"} | options, [raw, None]) == [text, None]
    assert _values({"type": "text_to_bytes"} | options, [text, None]) == [raw, None]


def test_bytes_that_are_no_text_name_row_column_and_encoding() -> None:
    given = chunk({"a": [b"ok", b"\xff"]}, first_row=8)
    assert "row 9: column 'a': expected bytes in utf-8, got b'\\xff'" in _refused(
        {"type": "bytes_to_text", "columns": ["a"]}, given
    )
    given = chunk({"a": ["00", "zz"]}, first_row=8)
    spec = {"type": "text_to_bytes", "columns": ["a"], "encoding": "hex"}
    assert "row 9: column 'a': expected text in hex, got 'zz'" in _refused(spec, given)


AVRO = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "carrier", "type": "string"}, {"name": "delay", "type": ["null", "int"], "default": None}],
}


def _datum(record: dict[str, Any]) -> bytes:
    import io

    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), record)
    return stream.getvalue()


def test_avro_bytes_become_columns(tmp_path: Path) -> None:
    spec = {"type": "avro_bytes", "column": "a"}
    values = [_datum({"carrier": "AA", "delay": 5}), None, _datum({"carrier": "UA", "delay": None})]
    expected = [{"carrier": "AA", "delay": 5}, {"carrier": None, "delay": None}, {"carrier": "UA", "delay": None}]
    assert converted(_make(spec | {"avro_schema": AVRO}), chunk({"a": values})).batch.to_pylist() == expected
    (tmp_path / "flight.avsc").write_text(json.dumps(AVRO))
    context = ConstructContext(job="flights", base_dir=str(tmp_path))
    headed = [None if value is None else b"\0\0\0\0\7" + value for value in values]
    converter = _make(spec | {"schema_file": "flight.avsc", "header_bytes": 5}, context)
    assert converted(converter, chunk({"a": headed})).batch.to_pylist() == expected


def test_avro_bytes_that_are_none_name_row_and_column() -> None:
    given = chunk({"a": [_datum({"carrier": "AA", "delay": 5}), b"\xff\xff"]}, first_row=3)
    message = _refused({"type": "avro_bytes", "column": "a", "avro_schema": AVRO}, given)
    assert "converter 'avro_bytes': row 4: column 'a' is no Avro datum of its schema" in message


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"type": "array", "items": "int"},
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "wat"}]},
    ],
    ids=str,
)
def test_avro_schema_that_is_no_record_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"Avro schema|schema of a record"):
        _make({"type": "avro_bytes", "column": "a", "avro_schema": schema})


@pytest.mark.parametrize("missing", ["null", None], ids=["quoted", "unquoted"])
def test_schema_brings_rows_into_declared_columns_order_and_types(missing: str | None) -> None:
    columns = {"b": "float64", "a": "int64", "c": ["string"]}
    spec = {"type": "schema", "columns": columns, "missing": missing, "others": "drop"}
    result = converted(_make(spec), chunk({"a": ["1", None], "x": [0, 0], "b": [1, 2]}))
    assert result.batch.schema == pa.schema([(name, arrow_shape(shape)) for name, shape in columns.items()])
    assert result.batch.to_pylist() == [{"b": 1.0, "a": 1, "c": None}, {"b": 2.0, "a": None, "c": None}]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"b": [1]}, "expected column 'a'; found: b"),
        ({"a": [1], "b": [2]}, "expected columns a; got also b"),
        ({"a": ["1", "x"]}, "row 2: column 'a': expected int64, got 'x'"),
        ({"a": [[1]]}, "column 'a': expected int64, got list"),
    ],
    ids=str,
)
def test_schema_that_does_not_fit_says_what_is_wrong(given: dict[str, Any], problem: str) -> None:
    assert problem in _refused({"type": "schema", "columns": {"a": "int64"}}, chunk(given))


@pytest.mark.parametrize("shape", ["int65", [], ["string", "string"], {}, 7, {"a": ["x"]}], ids=str)
def test_shape_that_is_none_is_refused_when_the_job_is_read(shape: Any) -> None:
    with pytest.raises(InvalidSpecError, match=r"columns\.a"):
        _make({"type": "schema", "columns": {"a": shape}})


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "hash", "key_env": "HASH_KEY"},
        {"type": "mask"},
        {"type": "encrypt", "key_env": "AES_KEY"},
        {"type": "text_to_bytes"},
    ],
)
def test_values_of_several_columns_are_replaced_in_place(spec: dict[str, Any]) -> None:
    given = chunk({"a": ["x"], "between": [1], "b": ["y"]})
    result = converted(_make(spec | {"columns": ["b", "a"]}), given).batch
    assert result.schema.names == ["a", "between", "b"]
    assert result.column("between").to_pylist() == [1]
    assert all(result.column(name) != given.batch.column(name) for name in "ab")


@pytest.mark.parametrize("kind", ["hash", "mask", "encrypt", "text_to_bytes"])
def test_a_column_named_twice_is_refused(kind: str) -> None:
    key = {"hash": {"key_env": "HASH_KEY"}, "encrypt": {"key_env": "AES_KEY"}}.get(kind, {})
    with pytest.raises(InvalidSpecError, match="a more than once"):
        _make({"type": kind, "columns": ["a", "b", "a"], **key})
