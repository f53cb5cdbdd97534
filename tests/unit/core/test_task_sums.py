from __future__ import annotations

from dataclasses import fields

from gobblin_dagster.core.task_state import (
    BranchCounts,
    PolicyOutcome,
    PolicyResult,
    StagedFile,
    TaskState,
    TaskSums,
    WorkingState,
)
from gobblin_dagster.core.watermark import LongWatermark

FILE = StagedFile("all", "/staging/f", "all/f", 9, "ab" * 32, 3)
PASSED = PolicyOutcome("row_count", "all", PolicyResult.PASSED, enforced=True, detail="3 of 3")


def _state(number: int, branches: dict[str, BranchCounts], rejected: dict[str, int]) -> TaskState:
    return TaskState(
        f"wu-{number}",
        "a",
        WorkingState.SUCCESSFUL,
        "0",
        low=LongWatermark(0),
        expected_high=LongWatermark(9),
        actual_high=LongWatermark(9),
        rows_read=number,
        bytes_read=10 * number,
        rows_filtered=100 * number,
        rows_rejected=rejected,
        rows_quarantined=1000 * number,
        rows_untaken=10_000 * number,
        branches=branches,
        files=(FILE,),
        policies=(PASSED,),
        notes=("late", f"note {number}"),
        seconds=0.5,
    )


def test_sums_hold_all_that_work_units_count() -> None:
    one = _state(1, {"all": BranchCounts(1, 2, 3, 4, 5)}, {"amount": 1})
    two = _state(
        2, {"eu": BranchCounts(1, 1, 1, 1, 1), "all": BranchCounts(10, 20, 30, 40, 50)}, {"amount": 2, "day": 5}
    )
    sums = TaskSums.of([one, two])
    assert sums == TaskSums(
        rows_read=3,
        bytes_read=30,
        rows_filtered=300,
        rows_rejected={"amount": 3, "day": 5},
        rows_quarantined=3000,
        rows_untaken=30_000,
        branches={"all": BranchCounts(11, 22, 33, 44, 55), "eu": BranchCounts(1, 1, 1, 1, 1)},
        files=(FILE, FILE),
        policies=(PASSED, PASSED),
        notes=("late", "note 1", "note 2"),
        seconds=1.0,
    )
    assert sums.rows_written == {"all": 44, "eu": 1}
    assert {each.name for each in fields(TaskSums)} <= {each.name for each in fields(TaskState)}


def test_sums_of_nothing_are_empty() -> None:
    assert TaskSums.of([]) == TaskSums()
