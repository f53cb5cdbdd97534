"""Task-level policies on what a branch wrote."""

from __future__ import annotations

import dataclasses
import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import BatchObserver, BranchView, TaskLevelPolicy
from gobblin_dagster.core.errors import ConvertError, InvalidSpecError
from gobblin_dagster.core.task_state import BranchCounts, StagedFile
from gobblin_dagster.spec.job import ConstructSpec
from tests.unit.constructs.samples import CONTEXT, batch

NOW = dt.datetime(2013, 3, 31, 12, tzinfo=dt.UTC)


def _policy(spec: dict[str, Any]) -> TaskLevelPolicy:
    context = dataclasses.replace(CONTEXT, load_time=NOW)
    made: TaskLevelPolicy = registry.create(ConstructKind.TASK_POLICY, ConstructSpec.model_validate(spec), context)
    return made


def _judged(spec: dict[str, Any], *batches: pa.RecordBatch, schema: pa.Schema | None = None) -> tuple[bool, str]:
    policy = _policy(spec)
    assert isinstance(policy, BatchObserver)
    for one in batches:
        policy.observe(one)
    rows = sum(one.num_rows for one in batches)
    schema = batches[0].schema if batches else schema
    return policy.evaluate(BranchView("all", BranchCounts(rows_written=rows), rows, None, schema, None))


def _sizes(spec: dict[str, Any], *sizes: int) -> tuple[bool, str]:
    files = [StagedFile("all", f"/s/{at}", f"out/f-{at}.parquet", size, "", 1) for at, size in enumerate(sizes)]
    view = BranchView("all", BranchCounts(), 0, None, pa.schema([]), None, files)
    return _policy({"type": "file_size"} | spec).evaluate(view)


def test_file_size_holds_within_bounds_and_without_files() -> None:
    holds, detail = _sizes({"min_bytes": 10, "max_bytes": 20}, 10, 20)
    assert (holds, detail) == (True, "expected at least 10 and at most 20 bytes in each file; got that in 2 files")
    assert _sizes({"min_bytes": 10})[0] is True


def test_file_size_names_the_first_file_out_of_bounds() -> None:
    assert _sizes({"max_bytes": 19}, 10, 20, 30) == (
        False,
        "expected at most 19 bytes in each file; got 20 in f-1.parquet, 2 of 3 files",
    )


def test_file_size_without_bounds_is_refused() -> None:
    with pytest.raises(InvalidSpecError, match="expected min_bytes or max_bytes"):
        _policy({"type": "file_size"})


FRESH = {"type": "freshness", "column": "t", "max_age": "1d"}


def _time(hours_ago: int, unit: str = "us", zone: str | None = "UTC") -> pa.Array:
    moment = NOW - dt.timedelta(hours=hours_ago)
    return pa.array([None, moment if zone else moment.replace(tzinfo=None)], pa.timestamp(unit, zone))


@pytest.mark.parametrize(("zone", "unit"), [("UTC", "us"), ("Europe/Berlin", "ms"), (None, "us")])
def test_freshness_looks_at_the_newest_time_of_all_batches(zone: str | None, unit: str) -> None:
    batches = [batch({"t": _time(hours, unit, zone)}) for hours in (30, 24, 50)]
    holds, detail = _judged(FRESH, *batches)
    assert holds is True
    assert detail == "expected t at most 1 day old (2013-03-30T12:00Z or later); newest 2013-03-30T12:00Z"
    assert _judged(FRESH, batches[0])[0] is False


def test_freshness_of_dates_and_of_nothing() -> None:
    assert _judged(FRESH, batch({"t": [dt.date(2013, 3, 31)]}))[0] is True
    assert _judged(FRESH, schema=pa.schema([("t", pa.date32())]))[0] is True
    holds, detail = _judged(FRESH, batch({"t": pa.array([None, None], pa.date32())}))
    assert (holds, detail) == (False, "expected t at most 1 day old; got 2 rows, none of them with a time")


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"t": ["x"]}, "column 't': expected a timestamp or date, got string"),
        ({"u": [1]}, "expected column 't'; found: u"),
    ],
    ids=str,
)
def test_freshness_of_another_column_is_refused(columns: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConvertError, match=f"task policy 'freshness': {problem}"):
        _judged(FRESH, batch(columns))


def _aggregate(rule: str, **aggregates: str) -> dict[str, Any]:
    return {"type": "sql_aggregate", "aggregates": aggregates, "rule": rule}


ROWS = [batch({"x": [1, 2, None]}), batch({"x": [10]}), batch({"x": pa.array([None], pa.int64())})]


def test_aggregates_are_those_of_all_rows() -> None:
    spec = _aggregate("rows = 5", rows="count(*)", known="count(x)", total="sum(x * 2)", low="min(x)", high="MAX( x )")
    assert _judged(spec, *ROWS) == (True, "expected rows = 5; got rows 5, known 3, total 26, low 1, high 10")


def test_aggregates_of_text_and_of_filtered_rows() -> None:
    rows = [batch({"s": ["b", "a"]}), batch({"s": ["c"]})]
    spec = _aggregate("newest = 'c' AND few = 1", newest="max(s)", few="count(CASE WHEN s < 'b' THEN 1 END)")
    assert _judged(spec, *rows)[0] is True


def test_sum_of_large_numbers_is_exact() -> None:
    big = pa.array([Decimal(f"1{'0' * 34}1")] * 2, pa.decimal128(38, 0))
    holds, detail = _judged(_aggregate("total % 10 = 4", total="sum(x)"), batch({"x": big}), batch({"x": big}))
    assert (holds, detail.rpartition(" ")[2]) == (True, f"4{'0' * 34}4")


@pytest.mark.parametrize(("rule", "holds"), [("rows = 0", True), ("total IS NULL", True), ("total >= 0", False)])
def test_aggregates_without_rows(rule: str, holds: bool) -> None:
    spec = _aggregate(rule, rows="count(*)", total="sum(x)")
    assert _judged(spec, schema=pa.schema([("x", pa.int64())]))[0] is holds


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            _aggregate("a > 0", a="avg(x)"),
            r"expected count\(...\), sum\(...\), min\(...\) or max\(...\), got 'avg\(x\)'",
        ),
        ({"type": "sql_aggregate", "aggregates": {"a b": "count(*)"}, "rule": "true"}, "expected a name"),
        ({"type": "sql_aggregate", "aggregates": {}, "rule": "true"}, "at least 1"),
    ],
    ids=str,
)
def test_aggregates_that_cannot_be_made_of_parts_are_refused(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidSpecError, match=problem):
        _policy(spec)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (_aggregate("a > 0", a="sum(y)"), "'sum\\(y\\)': .*\"y\".*columns: x"),
        (_aggregate("b > 0", a="sum(x)"), "'b > 0': .*\"b\".*columns: a"),
        (_aggregate("a", a="sum(x)"), "'a': expected one boolean"),
    ],
    ids=str,
)
def test_aggregate_that_does_not_fit_names_expression_and_columns(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConvertError, match=problem):
        _judged(spec, *ROWS)
