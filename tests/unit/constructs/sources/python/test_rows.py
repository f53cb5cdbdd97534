"""Python values that Arrow would cut or change silently are refused, with row and column."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from gobblin_dagster.constructs.sources.python.rows import MisfitError, as_batch

NAIVE = datetime(2020, 1, 1, 12, 0, 0, 123456)
BERLIN = NAIVE.replace(tzinfo=ZoneInfo("Europe/Berlin"))
INSTANT = NAIVE.replace(tzinfo=UTC)
FINE = pd.Timestamp("2020-01-01T00:00:00.123456789")


def _refusal(rows: Any, schema: pa.Schema | None = None) -> MisfitError:
    with pytest.raises(MisfitError) as caught:
        as_batch(rows, schema)
    return caught.value


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([date(2020, 1, 1), NAIVE], "which holds days"),
        ([BERLIN, NAIVE], "which holds times in the zone Europe/Berlin"),
        ([NAIVE, BERLIN], "which holds times without a zone"),
        ([NAIVE, INSTANT], "which holds times without a zone"),
        ([{"t": [NAIVE]}, {"t": [BERLIN]}], "the column v.t, which holds times without a zone"),
        ([NAIVE, FINE], "which holds times in us"),
        ([timedelta(1), pd.Timedelta("1ns")], "which holds times in us"),
        ([time(1), time(1, tzinfo=UTC)], "which holds times without a zone"),
        ([NAIVE, pd.NaT], "yielded NaT in the column v, expected None for what is missing"),
        ([Decimal(1), 0.5], "yielded 0.5 in the column v beside values of another kind"),
    ],
    ids=[
        *("day and time", "zone and none", "none and zone", "none and utc", "nested"),
        *("nanoseconds", "fine duration", "zone of a time", "missing", "decimal and float"),
    ],
)
def test_first_rows_of_two_kinds_are_refused(values: list[Any], said: str) -> None:
    refusal = _refusal([{"v": values[0]}, {}, {"v": values[1]}])
    assert said in refusal.problem
    assert refusal.index == 2


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1e300, pa.float32()),
        ([0.5, 1e300], pa.list_(pa.float32())),
        (1e6, pa.float16()),
        (FINE, pa.timestamp("us", "UTC")),
        (INSTANT, pa.timestamp("ms", "UTC")),
        (time(1, 2, 3, 4), pa.time32("s")),
        (timedelta(microseconds=1), pa.duration("s")),
        (1.7e9 + 0.5, pa.timestamp("us", "UTC")),
        (0.5, pa.duration("s")),
        (0.5, pa.date32()),
        (np.array(["2013-01-01T00:00:00.000000001"], "datetime64[ns]"), pa.list_(pa.timestamp("us"))),
        (Decimal("Infinity"), pa.int64()),
        (Decimal("7.48360712723621359520033341E-15"), pa.decimal128(10, 2)),
        (Decimal("34028236692093846346337460743.1768211456"), pa.decimal128(38, 0)),
        (7, pa.string()),
    ],
    ids=str,
)
def test_value_that_its_column_cannot_hold_is_told_with_row_and_column(value: Any, kind: pa.DataType) -> None:
    refusal = _refusal([{"a": 1}, {"a": 2, "v": value}], pa.schema([("a", pa.int64()), ("v", kind)]))
    assert "in the column v, which" in refusal.problem
    assert refusal.index == 1


def test_values_that_fit_are_kept() -> None:
    kinds = [
        pa.timestamp("us", "UTC"),
        pa.timestamp("us", "Europe/Berlin"),
        pa.timestamp("ns"),
        pa.float32(),
        pa.date32(),
    ]
    schema = pa.schema([(f"v{at}", kind) for at, kind in enumerate(kinds)])
    row = {"v0": NAIVE, "v1": INSTANT, "v2": FINE, "v3": float("inf"), "v4": datetime(2020, 1, 1)}
    (found,) = as_batch([row], schema).to_pylist()
    assert found["v0"] == INSTANT, "a datetime without a zone counts as UTC among instants in UTC"
    assert found["v1"] == INSTANT
    assert found["v2"] == FINE
    assert found["v3"] == float("inf")
    assert found["v4"] == date(2020, 1, 1)


@pytest.mark.parametrize(
    ("first", "later", "said"),
    [
        ([{"x": 1}], [{"x": 1, "y": 2}], "the field(s) v.y, which its columns lack"),
        ([[{"x": 1}]], [[{"y": 2}]], "the field(s) v.y, which its columns lack"),
        ([True], [7], "expected 0 or 1"),
        (pa.array([0.5], pa.float32()), [1e300], "a number is too large for float"),
        (pa.array([NAIVE]), pa.array([INSTANT], pa.timestamp("us", "UTC")), "timestamp[us, tz=UTC] for the column v"),
        (pa.array([BERLIN], pa.timestamp("us", "Europe/Berlin")), pa.array([NAIVE]), "timestamp[us] for the column v"),
        ([date(2020, 1, 1)], [NAIVE], "timestamp[us] for the column v, which is date32[day]"),
    ],
    ids=["field", "field in a list", "bool", "overflow", "zone", "no zone", "time of day"],
)
def test_batch_that_a_cast_would_change_is_refused(first: Any, later: Any, said: str) -> None:
    schema = pa.RecordBatch.from_pydict({"v": first}).schema
    assert said in _refusal(pa.RecordBatch.from_pydict({"v": later}), schema).problem


def test_batches_must_have_each_column_once() -> None:
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert _refusal(twice).problem == "yielded a RecordBatch with more than one column a"
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    assert "without the column(s) b" in _refusal(pa.RecordBatch.from_pydict({"a": [1]}), schema).problem
    reordered = as_batch(pa.RecordBatch.from_pydict({"b": pa.array([2], pa.int8()), "a": [1]}), schema)
    assert reordered.to_pylist() == [{"a": 1, "b": 2}]


def _nested(levels: int, *, is_dict: bool = False) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"v": value} if is_dict else [value]
    return value


def _cycle() -> dict[str, Any]:
    value: dict[str, Any] = {"v": []}
    value["v"] += [value, value]
    return value


@pytest.mark.parametrize("value", [_nested(200), _nested(3000, is_dict=True), _cycle()], ids=["200", "3000", "cycle"])
@pytest.mark.parametrize("schema", [None, pa.schema({"v": pa.int64()})], ids=["inferred", "declared"])
def test_values_nested_too_deep_are_refused_before_arrow_infers_types(value: Any, schema: pa.Schema | None) -> None:
    refusal = _refusal([{"v": 1}, {}, {"v": value}], schema)
    assert "in the column v values nested more than 200 levels deep: " in refusal.problem
    assert (refusal.index, refusal.is_solvable) == (2, False)


def test_values_as_deep_as_lines_of_json_may_be_are_taken() -> None:
    assert as_batch([{"v": _nested(199)}], None).num_rows == 1
    kind = pa.list_(pa.int64())
    assert as_batch([{"v": np.array([1, 2])}], pa.schema({"v": kind})).to_pylist() == [{"v": [1, 2]}]


def test_batch_of_a_type_nested_too_deep_is_refused() -> None:
    kind = pa.int64()
    for _ in range(200):
        kind = pa.list_(kind)
    refusal = _refusal(pa.record_batch({"v": pa.nulls(1, kind)}))
    assert "in the column v values nested more than 200 levels deep" in refusal.problem
