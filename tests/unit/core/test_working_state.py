"""What state of a work unit may follow which, over the whole table."""

from __future__ import annotations

import itertools
import pickle

import pytest

from gobblin_dagster.core.errors import WorkingStateError
from gobblin_dagster.core.task_state import QueueStats, WorkingState, advance

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
