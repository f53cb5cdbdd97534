from __future__ import annotations

import datetime as dt
import io
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gobblin_dagster.constructs.sql.select import SqlSelect
from gobblin_dagster.constructs.writers.json_text import JsonRows
from gobblin_dagster.constructs.writers.quarantine import QUARANTINE_SCHEMA, QuarantineWriter
from gobblin_dagster.core.errors import ConvertError
from tests.unit.constructs.samples import CONTEXT, batch
from tests.unit.constructs.writers.staging import where

UTC = dt.UTC
INSTANT = dt.datetime(2013, 1, 1, 10, 5, 6, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (pa.array([2**63 - 1]), 2**63 - 1),
        (pa.array([True]), True),
        (pa.array([1.5]), 1.5),
        (pa.array([math.nan]), "nan"),
        (pa.array([-math.inf]), "-inf"),
        (pa.array(['é"\n\t\\']), 'é"\n\t\\'),
        (pa.array([Decimal("12345678901234567890.10")]), "12345678901234567890.10"),
        (pa.array([Decimal("-0.05")], pa.decimal128(2, 2)), "-0.05"),
        (pa.array([[Decimal("0.5")]], pa.list_(pa.decimal128(1, 1))), ["0.5"]),
        (
            pa.array([[(Decimal("0.5"), Decimal(0))]], pa.map_(pa.decimal128(38, 38), pa.decimal128(1, 1))),
            {f"0.5{'0' * 37}": "0.0"},
        ),
        (pa.array([INSTANT], pa.timestamp("us", "America/New_York")), "2013-01-01T10:05:06.000007Z"),
        (pa.array([INSTANT.replace(microsecond=0)], pa.timestamp("s", "UTC")), "2013-01-01T10:05:06Z"),
        (pa.array([INSTANT.replace(tzinfo=None)], pa.timestamp("us")), "2013-01-01T10:05:06.000007"),
        (pa.array([1], pa.timestamp("ns")), "1970-01-01T00:00:00.000000001"),
        (pa.array([dt.date(2013, 1, 1)]), "2013-01-01"),
        (pa.array([dt.time(1, 2, 3)]), "01:02:03"),
        (pa.array([b"\x00\xff"]), "AP8="),
        (pa.array([b"ab"], pa.binary(2)), "YWI="),
        (pa.array([b"ab"], pa.large_binary()), "YWI="),
        (pa.array(["x"]).dictionary_encode(), "x"),
        (pa.array(["x"], pa.large_string()), "x"),
        (pa.array([["a", None]]), ["a", None]),
        (pa.array([[math.inf, 1.0]]), ["inf", 1.0]),
        (pa.array([[[b"a"], None]]), [["YQ=="], None]),
        (pa.array([{"x": Decimal("1.50"), "y": [INSTANT]}]), {"x": "1.50", "y": ["2013-01-01T10:05:06.000007Z"]}),
        (pa.array([{"x": None}], pa.struct([("x", pa.int8())])), {"x": None}),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())), {"k": 1}),
        (pa.array([[("k", math.nan), ("l", None)]], pa.map_(pa.string(), pa.float64())), {"k": "nan", "l": None}),
        (pa.array([[("k", b"\x00\xff")]], pa.map_(pa.string(), pa.binary())), {"k": "AP8="}),
        (pa.array([[(7, Decimal("1.50"))]], pa.map_(pa.int8(), pa.decimal128(3, 2))), {"7": "1.50"}),
        (
            pa.array([[(INSTANT, [INSTANT])]], pa.map_(pa.timestamp("us", "UTC"), pa.list_(pa.timestamp("us", "UTC")))),
            {"2013-01-01T10:05:06.000007Z": ["2013-01-01T10:05:06.000007Z"]},
        ),
        (pa.array([None], pa.map_(pa.string(), pa.int8())), None),
        (pa.array([{"A": 3, "a": 4}], pa.struct([("A", pa.int8()), ("a", pa.int8())])), {"A": 3, "a": 4}),
        (pa.array([{"": 1, "it's": 2}]), {"": 1, "it's": 2}),
        (pa.array([dt.date(1, 1, 1)]), "0001-01-01"),
        (pa.array([dt.datetime.max], pa.timestamp("us", "UTC")), "9999-12-31T23:59:59.999999Z"),
        (pa.array([None], pa.struct([("x", pa.int8())])), None),
        (pa.array([None], pa.list_(pa.int8())), None),
        (pa.array([None], pa.timestamp("us", "UTC")), None),
        (pa.array([None], pa.float64()), None),
        (pa.nulls(1), None),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_every_type_has_a_json_form(value: pa.Array, expected: Any) -> None:
    (text,) = JsonRows("writer", CONTEXT).texts(batch({"v": value})).to_pylist()
    assert json.loads(text) == {"v": expected}


BAD_TEXT = pa.array([b"a\xff"]).view(pa.string())


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (BAD_TEXT, "column 'v': Invalid UTF8 sequence"),
        (pa.StructArray.from_arrays([BAD_TEXT], names=["x"]), "column 'v': .*Invalid UTF8 sequence"),
        (
            pa.array([2932897], pa.date32()),
            r"column 'v' \(.*a time before 0001-01-01 or after 9999-12-31 has no JSON form",
        ),
        (
            pa.array([-(2**63) + 1], pa.timestamp("us", "UTC")),
            r"column 'v' \(.*a time before 0001-01-01 or after 9999-12-31",
        ),
        (pa.array([10**15], pa.timestamp("ms")), r"column 'v' \(.*a time before 0001-01-01 or after 9999-12-31"),
        (pa.array([1], pa.duration("ns")), r"duration\[ns\] have no JSON form: nanoseconds would be lost"),
        (pa.array([[1]], pa.list_view(pa.int8())), "list_view.* have no JSON form"),
        (pa.array([Decimal("0.5")], pa.decimal256(40, 40)), r"column 'v': values of type decimal256\(40, 40\) have no"),
        (pa.array([Decimal(500)], pa.decimal128(3, -2)), r"column 'v': values of type decimal128\(3, -2\) have no"),
        (pa.array([1.5], pa.float16()), "column 'v': values of type halffloat have no JSON form: use a float32"),
        (pa.array([{"x": 1.5}], pa.struct([("x", pa.float16())])), "column 'v': values of type halffloat have no"),
        (
            pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int8())),
            r"column 'v' \(map<string, int8>\).*duplicate key",
        ),
    ],
    ids=[
        *("text", "text in a struct", "date", "instant", "time", "nanoseconds", "view", "256 bits", "negative scale"),
        *("half", "half in a struct", "key duplicate key"),
    ],
)
def test_value_without_a_json_form_is_refused_and_quarantined_all_the_same(value: pa.Array, problem: str) -> None:
    rows = batch({"v": value})
    with pytest.raises(ConvertError, match=problem):
        JsonRows("writer", CONTEXT).texts(rows)
    context = where(pa.schema([]))
    writer = QuarantineWriter(context)
    place = pa.array([1], pa.int64())
    writer.write(rows, policy="p", reason="r", source_file="f", source_rows=place, stage="main")
    (file,) = writer.finish()
    (kept,) = pq.ParquetFile(io.BytesIO(context.storage.read(file.path))).read().to_pylist()
    assert pa.ipc.open_stream(kept["arrow"]).read_next_batch().equals(rows)
    assert list(json.loads(kept["record"])) == ["no_json"]


def test_json_keeps_order_and_odd_names() -> None:
    rows = batch({"it's": [1], "A": [2], "a": [3], 'q"': [4], "batch": [5]})
    (text,) = JsonRows("writer", CONTEXT).texts(rows).to_pylist()
    assert list(json.loads(text).items()) == [("it's", 1), ("A", 2), ("a", 3), ('q"', 4), ("batch", 5)]


def test_json_follows_a_change_of_schema() -> None:
    json_rows = JsonRows("writer", CONTEXT)
    assert json_rows.texts(batch({"a": [1]})).to_pylist() == ['{"a":1}']
    assert json_rows.texts(batch({"b": ["x"]})).to_pylist() == ['{"b":"x"}']


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows that DuckDB was given, each time."""
    rows: list[int] = []
    run = SqlSelect.run

    def counted(select: SqlSelect, given: pa.RecordBatch) -> pa.RecordBatch:
        rows.append(given.num_rows)
        return run(select, given)

    monkeypatch.setattr(SqlSelect, "run", counted)
    return rows


def test_rows_that_share_a_large_dictionary_are_made_text_together(at_once: list[int]) -> None:
    values = [f"{number:05}{'x' * 5_000}" for number in range(2_000)]
    texts = JsonRows("writer", CONTEXT).texts(batch({"v": pa.array(values).dictionary_encode()})).to_pylist()
    assert [json.loads(text)["v"] for text in texts] == values
    assert at_once == [2_000]


def test_large_rows_are_made_text_a_few_at_a_time(at_once: list[int]) -> None:
    values = [str(number) * 3_000_000 for number in range(8)]
    texts = JsonRows("writer", CONTEXT).texts(batch({"v": values})).to_pylist()
    assert [json.loads(text)["v"] for text in texts] == values
    assert at_once == [2, 2, 2, 2]


def test_quarantine_holds_row_reason_and_origin_of_any_schema() -> None:
    context = where(pa.schema([]))
    writer = QuarantineWriter(context)
    writer.write(
        batch({"tail": [None, "N1"], "seen": [INSTANT, INSTANT]}),
        policy="has_tail",
        reason="null in tail",
        source_file="in/a.csv",
        source_rows=pa.array([7, None], pa.int64()),
        stage="pre_fork",
    )
    writer.write(
        batch({"price": [Decimal("1.10")]}),
        policy="cheap",
        reason="not true: price < 1",
        source_file="in/b.csv",
        source_rows=pa.array([9], pa.int64()),
        stage="eu",
    )
    (file,) = writer.finish()
    assert (file.branch, file.rows) == ("quarantine", 3)
    table = pq.ParquetFile(io.BytesIO(context.storage.read(file.path))).read()
    assert table.schema.equals(QUARANTINE_SCHEMA)
    first, second, third = table.to_pylist()
    rows = pa.ipc.open_stream(first.pop("arrow")).read_all()
    assert rows.to_pydict() == {"tail": [None, "N1"], "seen": [INSTANT, INSTANT]}
    assert (second["arrow"], pa.ipc.open_stream(third["arrow"]).read_all()["price"][0].as_py()) == (
        None,
        Decimal("1.10"),
    )
    assert first == {
        "policy": "has_tail",
        "reason": "null in tail",
        "source_file": "in/a.csv",
        "source_row": 7,
        "stage": "pre_fork",
        "record": '{"tail":null,"seen":"2013-01-01T10:05:06.000007Z"}',
    }
    assert (second["source_row"], json.loads(second["record"])["tail"]) == (None, "N1")
    assert (third["stage"], third["record"]) == ("eu", '{"price":"1.10"}')


def test_quarantine_without_rows_stages_nothing() -> None:
    assert QuarantineWriter(where(pa.schema([]))).finish() == ()


def test_quarantine_abort_deletes_its_file() -> None:
    context = where(pa.schema([]))
    writer = QuarantineWriter(context)
    rows = pa.array([1], pa.int64())
    writer.write(batch({"a": [1]}), policy="p", reason="r", source_file="f", source_rows=rows, stage="main")
    writer.finish()
    assert list(context.storage.walk_files("/"))
    writer.abort()
    assert list(context.storage.walk_files("/")) == []
