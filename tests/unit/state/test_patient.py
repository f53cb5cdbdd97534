"""A store that is away for a while is asked again; one that stays away is not waited for by each call."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from gobblin_dagster.core.commit import CommitEffect, SequenceState
from gobblin_dagster.core.errors import CommitStateUnknownError, TransientError, UnfinishedSequenceError
from gobblin_dagster.state import StateStore, open_store
from gobblin_dagster.state.patient import patient
from gobblin_dagster.testing.conformance.state_store.values import (
    EXPIRED,
    JOB,
    ME,
    OTHER,
    TTL,
    URN,
    files_of,
    sequence,
    state,
    take,
)
from gobblin_dagster.testing.faults import Action, Fault, FaultPoints, counted_store, fail_with, lose_answer


class Time:
    """A clock that moves on only when a wait is called."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits = 0

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.waits += 1


@pytest.fixture
def store(tmp_path: Path) -> StateStore:
    return open_store("sqlite:///state.db", tmp_path)


def waiting(store: StateStore, *faults: Fault, seconds: float = 10) -> tuple[StateStore, FaultPoints, Time]:
    points, time = FaultPoints(*faults), Time()
    return patient(counted_store(store, points), seconds, wait=time.wait, now=lambda: time.now), points, time


def test_call_is_repeated_until_the_store_answers(store: StateStore) -> None:
    away, points, time = waiting(store, Fault(1, fail_with(errno.EIO), calls=3))
    assert away.load_dataset_states(JOB) == {}
    assert points.trace == ["store.load_dataset_states"] * 4
    assert time.waits == 3


def test_patience_is_shared_by_all_calls_and_begins_again_once_the_store_answered(store: StateStore) -> None:
    away, points, time = waiting(store, Fault(1, fail_with(errno.EIO), calls=20))
    with pytest.raises(TransientError):
        away.load_dataset_states(JOB)
    assert time.now >= 10
    tried = len(points.trace)
    with pytest.raises(TransientError):
        away.load_sequences(JOB)
    assert len(points.trace) == tried + 1
    assert away.load_runs(JOB) == [] if len(points.trace) >= 20 else True


def test_leases_whose_answer_was_lost_may_be_inherited(store: StateStore) -> None:
    take(store, OTHER, ttl=EXPIRED)
    away, points, _ = waiting(store, Fault(1, lose_answer))
    assert away.acquire_leases(JOB, [URN], ME, TTL).inherited == {URN}
    assert points.trace == ["store.acquire_leases"] * 2
    assert away.acquire_leases(JOB, [URN], ME, TTL).inherited == set()


def test_sequence_whose_answer_was_lost_is_stored_once_and_counts_as_stored(store: StateStore) -> None:
    one = sequence("one")
    epoch = take(store).epoch
    away, points, _ = waiting(store, Fault(1, lose_answer))
    away.prepare(one, epoch)
    assert points.trace == ["store.prepare"] * 2
    assert [stored.id for stored in store.load_sequences(JOB)] == [one.id]
    with pytest.raises(UnfinishedSequenceError):
        away.prepare(one, epoch)


def test_commit_whose_answer_was_lost_is_left_to_the_committer(store: StateStore) -> None:
    one = sequence("one")
    epoch = take(store).epoch
    store.prepare(one, epoch)
    away, points, _ = waiting(store, Fault(1, lose_answer))
    with pytest.raises(CommitStateUnknownError):
        away.commit(one.id, epoch, CommitEffect(state(1), files_of(one)))
    assert points.trace == ["store.commit"]


@pytest.mark.parametrize("action", [fail_with(errno.EIO), lose_answer], ids=["away", "the answer is lost"])
def test_sequence_that_is_stored_as_committed_at_once_is_stored_once(store: StateStore, action: Action) -> None:
    one = sequence("one")
    epoch = take(store).epoch
    away, points, _ = waiting(store, Fault(1, action))
    away.record(one, epoch, CommitEffect(state(1), files_of(one)))
    assert points.trace[0] == "store.record"
    assert [stored.id for stored in store.load_sequences(JOB, {SequenceState.COMMITTED})] == [one.id]
