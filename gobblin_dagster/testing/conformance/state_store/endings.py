"""What a state store promises of sequences that are not committed: aborted, set aside, given up, tried again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gobblin_dagster.core.commit import CommitEffect, SequenceState
from gobblin_dagster.core.errors import (
    SequenceChangedError,
    StaleEpochError,
)
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.testing.conformance.state_store.opening import OpensStore
from gobblin_dagster.testing.conformance.state_store.values import (
    EXPIRED,
    JOB,
    OTHER,
    URN,
    contents,
    ending_of,
    files_of,
    publish,
    sequence,
    state,
    take,
)


class Endings(OpensStore):
    """`start_abort`, `finish_abort`, `quarantine`, `abandon`, `retry` and `record_redo_failure`."""

    def test_an_aborted_sequence_makes_room_for_the_next(self, store: StateStore) -> None:
        """`start_abort` makes PREPARED ABORTING, `finish_abort` ABORTED; then the next sequence can be prepared."""
        seq = sequence("one")
        epoch = take(store).epoch
        store.prepare(seq, epoch)

        store.start_abort(seq.id, epoch, "staged files are lost")
        assert store.load_sequence(seq.id) == replace(seq, state=SequenceState.ABORTING, reason="staged files are lost")
        assert [found.id for found in store.load_sequences(JOB)] == [seq.id]
        store.finish_abort(seq.id, epoch)

        assert ending_of(store, seq) is SequenceState.ABORTED
        assert store.load_sequences(JOB) == []
        publish(store, "two")
        assert store.load_dataset_states(JOB) == {URN: state(1)}

    def test_aborting_steps_may_be_repeated(self, store: StateStore) -> None:
        """`start_abort` and `finish_abort` may be repeated; the first reason stays."""
        seq = sequence("one")
        epoch = take(store).epoch
        store.prepare(seq, epoch)

        for reason in ("staged files are lost", "tried again"):
            store.start_abort(seq.id, epoch, reason)
        for _ in range(2):
            store.finish_abort(seq.id, epoch)

        assert store.load_sequence(seq.id) == replace(seq, state=SequenceState.ABORTED, reason="staged files are lost")

    def test_aborting_with_an_old_epoch_is_refused(self, store: StateStore) -> None:
        """`start_abort` and `finish_abort` with another epoch than the current one raise StaleEpochError."""
        seq = sequence("one")
        old = take(store, OTHER, ttl=EXPIRED)
        store.prepare(seq, old.epoch)
        new = take(store)

        with pytest.raises(StaleEpochError):
            store.start_abort(seq.id, old.epoch, "gave up")
        assert ending_of(store, seq) is SequenceState.PREPARED

        store.start_abort(seq.id, new.epoch, "gave up")
        with pytest.raises(StaleEpochError):
            store.finish_abort(seq.id, old.epoch)
        assert ending_of(store, seq) is SequenceState.ABORTING

    def test_a_committed_sequence_can_neither_be_aborted_nor_quarantined(self, store: StateStore) -> None:
        """After COMMIT, `start_abort`, `finish_abort`, `quarantine` raise SequenceChangedError and change nothing."""
        seq = publish(store, "one")
        epoch = take(store).epoch
        before = contents(store)

        with pytest.raises(SequenceChangedError, match="committed"):
            store.start_abort(seq.id, epoch, "gave up")
        with pytest.raises(SequenceChangedError, match="committed"):
            store.finish_abort(seq.id, epoch)
        with pytest.raises(SequenceChangedError, match="committed"):
            store.quarantine(seq.id, "gave up")

        assert contents(store) == before

    def test_an_abort_cannot_end_before_it_began(self, store: StateStore) -> None:
        """`finish_abort` of a PREPARED sequence raises SequenceChangedError."""
        seq = sequence("one")
        epoch = take(store).epoch
        store.prepare(seq, epoch)

        with pytest.raises(SequenceChangedError, match="prepared"):
            store.finish_abort(seq.id, epoch)

        assert ending_of(store, seq) is SequenceState.PREPARED

    @pytest.mark.parametrize("begun", [False, True], ids=["prepared", "aborting"])
    def test_quarantine_keeps_the_reason_and_is_no_longer_recovered(self, store: StateStore, begun: bool) -> None:
        """`quarantine` keeps the reason; the sequence is no longer among the unfinished ones."""
        seq = sequence("one")
        epoch = take(store).epoch
        store.prepare(seq, epoch)
        if begun:
            store.start_abort(seq.id, epoch, "gave up")

        store.quarantine(seq.id, "größe: falsch")

        assert store.load_sequence(seq.id) == replace(seq, state=SequenceState.QUARANTINED, reason="größe: falsch")
        assert store.load_sequences(JOB) == []
        assert [found.id for found in store.load_sequences(JOB, [SequenceState.QUARANTINED])] == [seq.id]

    def test_failed_redos_are_counted_one_by_one(self, store: StateStore) -> None:
        """`record_redo_failure` returns the count so far and keeps the newest reason."""
        seq = sequence("one")
        store.prepare(seq, take(store).epoch)

        counts = [store.record_redo_failure(seq.id, f"disk full {n}") for n in (1, 2, 3)]

        assert counts == [1, 2, 3]
        assert store.load_sequence(seq.id) == replace(seq, redo_failures=3, reason="disk full 3")

    def test_a_quarantined_sequence_is_prepared_again_without_its_failures(self, store: StateStore) -> None:
        """`retry` flips QUARANTINED to PREPARED, forgets failed redos, keeps the reason, and raises StaleEpochError."""
        seq = sequence("one")
        epoch = take(store).epoch
        store.prepare(seq, epoch)
        store.record_redo_failure(seq.id, "no schema")
        store.quarantine(seq.id, "no schema")

        with pytest.raises(StaleEpochError):
            store.retry(seq.id, epoch + 1)
        store.retry(seq.id, epoch)
        store.retry(seq.id, epoch)

        stored = store.load_sequence(seq.id)
        assert stored is not None
        assert (stored.state, stored.redo_failures, stored.reason) == (SequenceState.PREPARED, 0, "no schema")
        store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq)))
        with pytest.raises(SequenceChangedError, match="committed"):
            store.retry(seq.id, epoch)

    def test_abandoned_sequence_lets_its_dataset_go_on(self, store: StateStore) -> None:
        """`abandon` flips QUARANTINED to ABORTED, may be repeated, and its dataset can be prepared again."""
        seq, epoch = sequence("stuck"), take(store).epoch
        store.prepare(seq, epoch)
        store.quarantine(seq.id, "a file is in the way")
        store.abandon(seq.id, epoch, "abandoned by ann")
        store.abandon(seq.id, epoch, "abandoned by ann")
        stored = store.load_sequence(seq.id)
        assert stored is not None
        assert (stored.state, stored.reason) == (SequenceState.ABORTED, "abandoned by ann")
        publish(store, "next")
        assert ending_of(store, seq) is SequenceState.ABORTED

    @pytest.mark.parametrize(
        "bring",
        [
            lambda store, seq, epoch: None,
            lambda store, seq, epoch: store.start_abort(seq.id, epoch, "x"),
            lambda store, seq, epoch: store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq))),
        ],
        ids=["prepared", "aborting", "committed"],
    )
    def test_only_a_quarantined_sequence_is_abandoned(self, store: StateStore, bring: Callable[..., None]) -> None:
        """`abandon` of a sequence that is not QUARANTINED raises SequenceChangedError and changes nothing."""
        seq, epoch = sequence("good"), take(store).epoch
        store.prepare(seq, epoch)
        bring(store, seq, epoch)
        before = contents(store)
        with pytest.raises(SequenceChangedError):
            store.abandon(seq.id, epoch, "no")
        assert contents(store) == before

    def test_abandon_with_an_old_epoch_is_refused(self, store: StateStore) -> None:
        """`abandon` with another epoch than the current one raises StaleEpochError."""
        seq, old = sequence("stuck"), take(store, ttl=EXPIRED).epoch
        store.prepare(seq, old)
        store.quarantine(seq.id, "a file is in the way")
        take(store, OTHER)
        with pytest.raises(StaleEpochError):
            store.abandon(seq.id, old, "no")
        assert ending_of(store, seq) is SequenceState.QUARANTINED
