from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from gobblin_dagster.constructs.quality.row_count import RowCountPolicy, RowCountRangePolicy
from gobblin_dagster.constructs.quality.schema import RequiredColumnsPolicy, SchemaCompatibilityPolicy
from gobblin_dagster.constructs.types.schema_text import schema_text
from gobblin_dagster.core.constructs import BranchView, TaskLevelPolicy
from gobblin_dagster.core.task_state import BranchCounts, StagedFile
from tests.unit.constructs.samples import CONTEXT

SCHEMA = pa.schema(
    [("year", pa.int16()), ("tags", pa.list_(pa.struct([("a", pa.int64())]))), pa.field("id", pa.string(), False)]
)


def _view(counts: BranchCounts | None = None, **facts: Any) -> BranchView:
    counts = counts or BranchCounts(rows_in=10, rows_filtered=2, rows_rejected=3, rows_written=5)
    files = tuple(StagedFile("main", "/s/f", "f", 1, "", rows) for rows in (3, counts.rows_written - 3))
    defaults: dict[str, Any] = {
        "branch": "main",
        "counts": counts,
        "rows_read": 12,
        "rows_expected": None,
        "schema": SCHEMA,
        "previous_schema": None,
        "files": files,
    }
    return BranchView(**defaults | facts)


def _holds(policy: TaskLevelPolicy, view: BranchView, detail: str) -> bool:
    holds, text = policy.evaluate(view)
    assert "\n" not in text
    assert detail in text
    return holds


def test_row_count_holds_where_every_row_is_accounted_for() -> None:
    policy = RowCountPolicy(RowCountPolicy.Options(), CONTEXT)
    assert _holds(policy, _view(), "expected 10 rows; got 2 filtered + 3 rejected + 5 written")
    assert _holds(policy, _view(rows_expected=12), "expected 10 rows")


def test_row_count_takes_added_rows_as_negative_filtered() -> None:
    added = BranchCounts(rows_in=4, rows_filtered=-1, rows_rejected=0, rows_written=5)
    assert _holds(RowCountPolicy(RowCountPolicy.Options(), CONTEXT), _view(added), "-1 filtered")


@pytest.mark.parametrize(
    ("view", "detail"),
    [
        (
            _view(BranchCounts(rows_in=11, rows_filtered=2, rows_rejected=3, rows_written=5)),
            "expected 11 rows taken by the branch; got 2 filtered + 3 rejected + 5 written = 10",
        ),
        (_view(files=()), "expected 5 rows in 0 files; got 0"),
        (_view(rows_expected=13), "expected 13 rows from the source; got 12"),
    ],
)
def test_row_count_fails_with_expected_and_got(view: BranchView, detail: str) -> None:
    assert not _holds(RowCountPolicy(RowCountPolicy.Options(), CONTEXT), view, detail)


@pytest.mark.parametrize(
    ("options", "announced", "holds", "detail"),
    [
        ({"min": 5}, None, True, "expected at least 5 rows; got 5"),
        ({"min": 6}, None, False, "expected at least 6 rows; got 5"),
        ({"max": 5}, None, True, "expected at most 5 rows; got 5"),
        ({"max": 4}, None, False, "expected at most 4 rows; got 5"),
        ({"min": 1, "max": 4}, None, False, "expected at least 1 and at most 4 rows; got 5"),
        ({"tolerance": 0.5}, 10, True, "expected 10 ± 50% rows; got 5"),
        ({"tolerance": 0.4}, 10, False, "expected 10 ± 40% rows; got 5"),
        ({"tolerance": 0.4}, 4, True, "expected 4 ± 40% rows; got 5"),
        ({"tolerance": 0}, 5, True, "expected 5 ± 0% rows; got 5"),
        ({"tolerance": 0.5}, 0, False, "expected 0 ± 50% rows; got 5"),
        ({"tolerance": 0.5}, None, False, "which the source does not know"),
        ({"tolerance": 0.5, "min": 6}, 10, False, "expected at least 6 and 10 ± 50% rows; got 5"),
    ],
    ids=str,
)
def test_row_count_range(options: dict[str, Any], announced: int | None, holds: bool, detail: str) -> None:
    policy = RowCountRangePolicy(RowCountRangePolicy.Options(**options), CONTEXT)
    assert _holds(policy, _view(rows_expected=announced), detail) is holds


def test_row_count_just_within_the_tolerance_holds() -> None:
    policy = RowCountRangePolicy(RowCountRangePolicy.Options(tolerance=0.29), CONTEXT)
    counts = BranchCounts(rows_in=71, rows_filtered=0, rows_rejected=0, rows_written=71)
    assert _holds(policy, _view(counts, rows_expected=100), "expected 100 ± 29% rows; got 71")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "expected min, max or tolerance"),
        ({"min": 2, "max": 1}, "min 2 is above max 1"),
        ({"tolerance": 2}, "tolerance"),
    ],
)
def test_row_count_range_without_a_range_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        RowCountRangePolicy.Options(**options)


def _compatible(previous: pa.Schema | None, now: pa.Schema, evolve: bool = True) -> tuple[bool, str]:
    policy = SchemaCompatibilityPolicy(SchemaCompatibilityPolicy.Options(evolve=evolve), CONTEXT)
    return policy.evaluate(_view(schema=now, previous_schema=None if previous is None else schema_text(previous)))


def test_schema_compatible_holds_the_first_time_and_for_the_same_schema() -> None:
    assert _compatible(None, SCHEMA) == (True, "first schema of the branch, 3 columns")
    assert _compatible(SCHEMA, SCHEMA, evolve=False) == (True, "expected the 3 columns published before; got the same")
    assert _compatible(SCHEMA, pa.schema(list(reversed(list(SCHEMA)))), evolve=False)[0]


def test_schema_compatible_allows_new_columns_only_when_told() -> None:
    wider = SCHEMA.append(pa.field("new", pa.bool_()))
    assert _compatible(SCHEMA, wider) == (
        True,
        "expected the 3 columns published before, or more; got new (bool) is new",
    )
    assert _compatible(SCHEMA, wider, evolve=False)[0] is False


def test_schema_compatible_fails_with_the_differences() -> None:
    now = pa.schema([("year", pa.int32()), ("id", pa.string())])
    holds, detail = _compatible(SCHEMA, now)
    assert not holds
    assert "tags (list<item: struct<a: int64>>) is gone" in detail
    assert "year was int16, is int32" in detail
    assert "id was string not null, is string" in detail


def test_required_columns() -> None:
    policy = RequiredColumnsPolicy(RequiredColumnsPolicy.Options(columns=("id", "year")), CONTEXT)
    assert policy.evaluate(_view()) == (True, "expected columns id, year; got all")
    policy = RequiredColumnsPolicy(RequiredColumnsPolicy.Options(columns=("id", "z")), CONTEXT)
    assert policy.evaluate(_view()) == (False, "expected columns id, z; missing z; got year, tags, id")
