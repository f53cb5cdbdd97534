"""What state of a work unit may follow which, over the whole table; the sums of what work units count."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import fields

import pytest

from gobblin_dagster.core.errors import WorkingStateError
from gobblin_dagster.core.task_state import (
    BranchCounts,
    PolicyOutcome,
    PolicyResult,
    QueueStats,
    StagedFile,
    TaskState,
    TaskSums,
    WorkingState,
    advance,
)
from gobblin_dagster.core.watermark import LongWatermark

_LEGAL = {
    "pending": "running successful failed cancelled skipped",
    "running": "successful failed cancelled",
    "successful": "committed failed",
    "failed": "running committed",
    "committed": "",
    "cancelled": "",
    "skipped": "",
}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(_LEGAL, _LEGAL)))
def test_state_follows_only_what_it_may(before: str, after: str) -> None:
    old, new = WorkingState(before), WorkingState(after)
    if after in _LEGAL[before].split():
        assert advance(old, new) is new
    else:
        with pytest.raises(WorkingStateError, match=f"that is {before} cannot become {after}"):
            advance(old, new)


def test_error_says_what_may_follow_and_survives_pickling() -> None:
    with pytest.raises(WorkingStateError) as caught:
        advance(WorkingState.SUCCESSFUL, WorkingState.RUNNING)
    assert "what may follow is committed or failed." in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_queues_are_added_weighted_by_their_batches() -> None:
    one = QueueStats(8, puts=1, gets=1, largest=1, fill_ratio=0.0, put_wait_s=0.5, get_wait_s=1.0, seconds=2.0)
    two = QueueStats(8, puts=3, gets=3, largest=4, fill_ratio=0.8, put_wait_s=1.5, get_wait_s=0.0, seconds=6.0)
    both = one.plus(two)
    assert both == QueueStats(8, puts=4, gets=4, largest=4, fill_ratio=0.6, put_wait_s=2.0, get_wait_s=1.0, seconds=8.0)
    assert both.put_rate == 0.5
    assert QueueStats(8).plus(QueueStats(8)).fill_ratio == 0.0


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
