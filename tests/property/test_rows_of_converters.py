"""Law of converters that look at one row at a time: a row's result does not depend on the rows beside it."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import Chunk, ConstructContext, Converter
from gobblin_dagster.core.errors import ConvertError
from gobblin_dagster.spec.job import ConverterSpec

CONTEXT = ConstructContext(job="laws", base_dir="/", dataset_urn="d")
TEXT, LISTS = pa.string(), pa.list_(pa.int64())
PLACE = pa.struct({"a": pa.struct({"b": pa.int64()}), "c": TEXT})
PLACES = [{"a": {"b": 1}, "c": "x"}, {"a": None, "c": None}, None]
NUMBERS = ["1", "-7", "x", "1.5", "", "12345678901234567890", "1e3", "inf", "NaN", "0xFF", " 1", "300", "1.23456"]
TIMES = ["2013-01-31", "2013-01-31T10:00:00", "2013-01-31T10:00:00.123456789Z", "2013-03-31 02:30:00", "", "31.01.2013"]
TIMES += ["2013-01-31T10:00:00+0100", "2013-01-31 10:00+02", "9999-12-31T23:59:59Z", "infinity", "2013-02-31", "x"]
CSV = ["", "1", "1,2", "1,2\n", "1,2\n\r", "1\n2", "\r", '"a,b",c', '"a\nb"', '"a', 'a"b,', '"a"b', '""', ",", "\n"]
DAYS = ['{"v": "2013-01-31"}', '{"v": 15000}', '{"v": null}', "null", "{}", '{"v": "x"}', '{"v": 1.5}', "{", "", "[1]"]
FLOATS = [
    '{"v": 1}',
    '{"v": 1.8e308}',
    '{"v": Infinity}',
    '{"w": "Inf"}',
    '{"v": "Inf"}',
    '{"v": NaN}',
    '{"v": "1"}',
    "{}",
]
DECIMALS = ['{"v": 1.5}', '{"v": "1.5"}', '{"v": 1e2}', '{"v": 12345}', '{"v": 1.234}', '{"v": "x"}', '{"v": 1} {}']
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": ["null", "long"]}]}
SQL = "TRY_CAST(s AS INTEGER) AS number, CAST(s AS DECIMAL(5, 2)) AS exact"
CASES: list[tuple[Mapping[str, Any], pa.DataType, Sequence[Any]]] = [
    ({"type": "add", "columns": {"n": {"source": "source_row"}, "d": {"value": "x"}}}, TEXT, ["a"]),
    ({"type": "avro_bytes", "column": "s", "avro_schema": AVRO}, pa.binary(), [b"\0", b"\2\2", b"\2\x80", b""]),
    ({"type": "bytes_to_text", "columns": ["s"]}, pa.binary(), [b"a", b"\xff", b""]),
    ({"type": "child_table", "list": "s", "keys": ["t"]}, LISTS, [[1], [], [None, 2]]),
    *(({"type": "columns", "columns": {"s": kind}}, TEXT, NUMBERS) for kind in ("int8", "float32", "decimal(5,2)")),
    *(({"type": "columns", "columns": {"s": kind}}, TEXT, TIMES) for kind in ("date", "timestamp")),
    ({"type": "columns", "columns": {"s": "decimal(5,2)"}}, pa.float64(), [0.1, 1e9, float("nan"), -0.0]),
    *(
        ({"type": "csv_text", "column": "s", "columns": names, "nulls": [], "quote": quote} | allowed, TEXT, CSV)
        for names in (["x"], ["x", "y"])
        for quote in ('"', None)
        for allowed in ({}, {"short": True, "long": True})
    ),
    ({"type": "drop", "columns": ["t"]}, TEXT, ["a"]),
    ({"type": "decrypt", "columns": ["s"], "key_env": "LAWS_AES_KEY"}, TEXT, ["x", ""]),
    ({"type": "explode", "column": "s", "keep_empty": True, "position": "at"}, LISTS, [[1], [], [None, 2]]),
    ({"type": "filter", "column": "s", "matches": "a.*"}, TEXT, ["a", "b", ""]),
    ({"type": "flatten"}, PLACE, PLACES),
    ({"type": "function", "function": f"{__name__}:halved", "columns": {"s": "decimal(3,1)"}}, pa.int64(), [1, 2, 999]),
    ({"type": "hash", "columns": ["s"], "key_env": "LAWS_KEY"}, pa.float64(), [0.0, -0.0, 1e300]),
    ({"type": "json_text", "column": "s", "columns": {"v": "date"}}, TEXT, DAYS),
    ({"type": "json_text", "column": "s", "columns": {"v": "float64"}}, TEXT, FLOATS),
    ({"type": "json_text", "column": "s", "columns": {"v": "decimal(5,2)"}, "unknown": False}, TEXT, DECIMALS),
    ({"type": "mask", "columns": ["s"], "keep_last": 1}, TEXT, ["a", "äb", ""]),
    ({"type": "parse_timestamps", "columns": {"s": ["iso", "%d.%m.%Y"]}}, TEXT, TIMES),
    ({"type": "rename", "columns": {"s": "u"}}, TEXT, ["a"]),
    ({"type": "schema", "columns": {"s": "bool"}, "others": "drop"}, TEXT, ["true", "1", "x", "0"]),
    ({"type": "schema", "columns": {"s": {"a": {"b": "int8"}}}, "others": "drop"}, PLACE, [*PLACES, {"a": {"b": 300}}]),
    ({"type": "select", "columns": ["s.a.b"]}, PLACE, PLACES),
    ({"type": "split", "column": "s", "delimiter": ";"}, TEXT, ["a;b", "", ";;x"]),
    ({"type": "sql", "select": SQL}, TEXT, NUMBERS),
    ({"type": "text_to_bytes", "columns": ["s"], "encoding": "base64"}, TEXT, ["YQ==", "x", ""]),
    ({"type": "to_json"}, pa.decimal128(5, 2), [Decimal("1.50")]),
]
OF_SEVERAL_ROWS = {"dedup", "encrypt", "sample"}
"""They remember rows, draw random numbers, or look at the row's number."""


def halved(record: dict[str, Any]) -> dict[str, Any]:
    return {"s": None if record["s"] is None else Decimal(record["s"]) / 2}


@pytest.fixture(autouse=True, scope="module")
def _keys() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAWS_KEY", "a secret of more than sixteen letters")
        patch.setenv("LAWS_AES_KEY", base64.b64encode(b"k" * 32).decode())
        yield


def _results(spec: Mapping[str, Any], kind: pa.DataType, values: Sequence[Any], first: int) -> list[str] | str:
    """Return (row number, values) of each row that comes out as text, or the text of the error."""
    converter: Converter = registry.create(ConstructKind.CONVERTER, ConverterSpec.model_validate(spec), CONTEXT)
    batch = pa.record_batch({"s": pa.array(values, kind), "t": pa.array(["t"] * len(values))})
    given = Chunk(batch, "f", pa.array(range(first, first + len(values)), pa.int64()))
    try:
        parts = list(converter.convert(given))
    except ConvertError as error:
        return str(error)
    # NaN differs from itself.
    return [
        repr((row, values))
        for part in parts
        for row, values in zip(part.rows.to_pylist(), part.batch.to_pylist(), strict=True)
    ]


def _case(at: int) -> st.SearchStrategy[tuple[Mapping[str, Any], pa.DataType, list[Any]]]:
    spec, kind, values = CASES[at]
    return st.tuples(st.just(spec), st.just(kind), st.lists(st.sampled_from([*values, None]), min_size=2, max_size=5))


@settings(max_examples=120)
@given(st.integers(0, len(CASES) - 1).flatmap(_case))
def test_rows_of_a_batch_become_what_each_becomes_alone(case: tuple[Mapping[str, Any], pa.DataType, list[Any]]) -> None:
    spec, kind, values = case
    alone = [_results(spec, kind, [value], at) for at, value in enumerate(values, start=1)]
    errors = [result for result in alone if isinstance(result, str)]
    expected = errors[0] if errors else list(itertools.chain.from_iterable(alone))
    assert _results(spec, kind, values, 1) == expected


def test_every_converter_of_single_rows_is_tested_here() -> None:
    assert {spec["type"] for spec, _, _ in CASES} | OF_SEVERAL_ROWS == set(registry.types(ConstructKind.CONVERTER))
