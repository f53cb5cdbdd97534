"""The two transactions of a StateStore besides write-ahead and commit: both at once, and giving up by a person's word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gobblin_dagster.core.commit import CommitEffect, SequenceState
from gobblin_dagster.core.errors import (
    CorruptRecordError,
    StaleEpochError,
    UnfinishedSequenceError,
    WatermarkMovedError,
)
from gobblin_dagster.state import StateStore
from tests.contract.test_state_store import EXPIRED as EXPIRED_TTL
from tests.contract.test_state_store import (
    JOB,
    OTHER,
    URN,
    contents,
    files_of,
    in_order,
    publish,
    sequence,
    state,
    state_of,
    take,
)


def test_record_moves_state_files_and_sequence_together(store: StateStore) -> None:
    seq = sequence("direct")
    store.record(seq, take(store).epoch, CommitEffect(state(1), files_of(seq)))
    assert store.load_dataset_states(JOB) == {URN: state(1)}
    assert store.load_snapshot(JOB, URN) == in_order(files_of(seq))
    assert store.load_sequence(seq.id) == replace(seq, state=SequenceState.COMMITTED)
    assert [one.id for one in store.load_unreported(JOB)] == [seq.id]


def test_record_follows_and_precedes_other_commits(store: StateStore) -> None:
    publish(store, "first")
    seq = sequence("direct", 1)
    store.record(seq, take(store).epoch, CommitEffect(state(2), files_of(seq)))
    publish(store, "third", 2)
    assert len(store.load_snapshot(JOB, URN)) == 6
    assert len(store.load_sequences(states=[SequenceState.COMMITTED])) == 3


def test_record_with_an_old_epoch_or_version_changes_nothing(store: StateStore) -> None:
    publish(store, "first")
    old = take(store, ttl=EXPIRED_TTL).epoch
    new = take(store, OTHER).epoch
    before = contents(store)
    seq = sequence("late", 1)
    with pytest.raises(StaleEpochError):
        store.record(seq, old, CommitEffect(state(2), files_of(seq)))
    outdated = sequence("outdated", 0)
    with pytest.raises(WatermarkMovedError):
        store.record(outdated, new, CommitEffect(state(1), files_of(outdated)))
    assert contents(store) == before


def test_record_is_refused_while_a_sequence_is_unfinished(store: StateStore) -> None:
    epoch = take(store).epoch
    store.prepare(sequence("open"), epoch)
    before = contents(store)
    seq = sequence("direct")
    with pytest.raises(UnfinishedSequenceError):
        store.record(seq, epoch, CommitEffect(state(1), files_of(seq)))
    assert contents(store) == before


def test_abandoned_sequence_lets_its_dataset_go_on(store: StateStore) -> None:
    seq, epoch = sequence("stuck"), take(store).epoch
    store.prepare(seq, epoch)
    store.quarantine(seq.id, "a file is in the way")
    store.abandon(seq.id, epoch, "abandoned by ann")
    store.abandon(seq.id, epoch, "abandoned by ann")
    stored = store.load_sequence(seq.id)
    assert stored is not None
    assert (stored.state, stored.reason) == (SequenceState.ABORTED, "abandoned by ann")
    publish(store, "next")
    assert state_of(store, seq) is SequenceState.ABORTED


@pytest.mark.parametrize(
    "bring",
    [
        lambda store, seq, epoch: None,
        lambda store, seq, epoch: store.start_abort(seq.id, epoch, "x"),
        lambda store, seq, epoch: store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq))),
    ],
    ids=["prepared", "aborting", "committed"],
)
def test_only_a_quarantined_sequence_is_abandoned(store: StateStore, bring: Callable[..., None]) -> None:
    seq, epoch = sequence("good"), take(store).epoch
    store.prepare(seq, epoch)
    bring(store, seq, epoch)
    before = contents(store)
    with pytest.raises(CorruptRecordError):
        store.abandon(seq.id, epoch, "no")
    assert contents(store) == before


def test_abandon_with_an_old_epoch_is_refused(store: StateStore) -> None:
    seq, old = sequence("stuck"), take(store, ttl=EXPIRED_TTL).epoch
    store.prepare(seq, old)
    store.quarantine(seq.id, "a file is in the way")
    take(store, OTHER)
    with pytest.raises(StaleEpochError):
        store.abandon(seq.id, old, "no")
    assert state_of(store, seq) is SequenceState.QUARANTINED
