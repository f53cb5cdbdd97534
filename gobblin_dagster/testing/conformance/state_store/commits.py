"""Tests of a state store's write-ahead and commit: all of it happens, or nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gobblin_dagster.core.commit import CommitEffect, SequenceState
from gobblin_dagster.core.errors import (
    CorruptRecordError,
    SequenceChangedError,
    StaleEpochError,
    UnfinishedSequenceError,
    WatermarkMovedError,
)
from gobblin_dagster.core.lease import Lease
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
    in_order,
    publish,
    race,
    sequence,
    state,
    take,
)


class Commits(OpensStore):
    """`prepare`, `commit` and `record`; the last is both at once."""

    def test_prepare_stores_the_sequence_unchanged_and_moves_nothing(self, store: StateStore) -> None:
        """`prepare` stores the sequence as it is given and changes neither state nor snapshot."""
        seq = sequence("one")

        store.prepare(seq, take(store).epoch)

        assert store.load_sequence(seq.id) == seq
        assert store.load_sequences(JOB) == [seq]
        assert store.load_dataset_states(JOB) == {}
        assert store.load_snapshot(JOB, URN) == []

    def test_prepare_with_an_old_epoch_is_refused(self, store: StateStore) -> None:
        """`prepare` with another epoch than the current one raises StaleEpochError with both, and changes nothing."""
        old = take(store, OTHER, ttl=EXPIRED)
        take(store)
        before = contents(store)

        with pytest.raises(StaleEpochError, match="our epoch 1 is over, the current one is 2") as caught:
            store.prepare(sequence("one"), old.epoch)

        assert (caught.value.dataset_urn, caught.value.ours, caught.value.current) == (URN, 1, 2)
        assert contents(store) == before

    @pytest.mark.parametrize("epoch", [0, 1])
    def test_prepare_without_any_lease_is_refused(self, store: StateStore, epoch: int) -> None:
        """`prepare` for a dataset that was never leased raises StaleEpochError."""
        with pytest.raises(StaleEpochError):
            store.prepare(sequence("one"), epoch)

        assert store.load_sequence(sequence("one").id) is None

    @pytest.mark.parametrize("version_read", [0, 2])
    def test_prepare_from_another_version_is_refused(self, store: StateStore, version_read: int) -> None:
        """`prepare` from another version than the stored one raises WatermarkMovedError with both; changes nothing."""
        publish(store, "one")
        epoch = take(store).epoch
        before = contents(store)

        with pytest.raises(WatermarkMovedError, match=f"planned from version {version_read}, the store holds 1"):
            store.prepare(sequence("two", version_read), epoch)

        assert contents(store) == before

    def test_prepare_is_refused_while_a_sequence_is_prepared(self, store: StateStore) -> None:
        """`prepare` while another sequence is PREPARED raises UnfinishedSequenceError with its id; changes nothing."""
        epoch = take(store).epoch
        first = sequence("one")
        store.prepare(first, epoch)
        before = contents(store)

        with pytest.raises(UnfinishedSequenceError, match=first.id):
            store.prepare(sequence("two"), epoch)

        assert contents(store) == before

    def test_prepare_is_refused_while_a_sequence_is_aborting(self, store: StateStore) -> None:
        """`prepare` while a sequence of the dataset is ABORTING raises UnfinishedSequenceError with its id."""
        epoch = take(store).epoch
        first = sequence("one")
        store.prepare(first, epoch)
        store.start_abort(first.id, epoch, "staged files are lost")

        with pytest.raises(UnfinishedSequenceError, match=first.id):
            store.prepare(sequence("two"), epoch)

    def test_prepare_is_refused_while_a_sequence_is_quarantined_and_others_go_on(self, store: StateStore) -> None:
        """`prepare` while the dataset has a QUARANTINED sequence raises UnfinishedSequenceError; others go on."""
        epoch = take(store).epoch
        first = sequence("one")
        store.prepare(first, epoch)
        store.quarantine(first.id, "a stranger's file is in the way")

        with pytest.raises(UnfinishedSequenceError, match=first.id):
            store.prepare(sequence("two"), epoch)

        publish(store, "three", urn="another")
        assert set(store.load_dataset_states(JOB)) == {"another"}

    def test_of_two_prepares_that_race_one_is_stored(self, store: StateStore) -> None:
        """Of two calls of `prepare` that race for a dataset one is stored, the other raises UnfinishedSequenceError."""
        epoch = take(store).epoch
        one, two = sequence("one"), sequence("two")

        results = race(lambda: store.prepare(one, epoch), lambda: store.prepare(two, epoch))

        assert len(store.load_sequences(JOB)) == 1
        assert sorted(type(result).__name__ for result in results) == ["NoneType", "UnfinishedSequenceError"]

    def test_commit_moves_state_files_and_sequence_together(self, store: StateStore) -> None:
        """`commit` swaps the state, adds the files and flips the sequence to COMMITTED, all in one transaction."""
        seq = sequence("one")
        epoch = take(store).epoch
        store.prepare(seq, epoch)

        store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq)))

        assert store.load_dataset_states(JOB) == {URN: state(1)}
        assert store.load_snapshot(JOB, URN) == files_of(seq)
        assert store.load_sequence(seq.id) == replace(seq, state=SequenceState.COMMITTED)
        assert store.load_sequences(JOB) == []

    def test_commit_without_files_moves_the_state(self, store: StateStore) -> None:
        seq = sequence("one")
        epoch = take(store).epoch
        store.prepare(seq, epoch)

        store.commit(seq.id, epoch, CommitEffect(state(1)))

        assert store.load_dataset_states(JOB) == {URN: state(1)}
        assert store.load_snapshot(JOB, URN) == []

    def test_commit_again_changes_nothing(self, store: StateStore) -> None:
        """`commit` of a sequence that is COMMITTED changes nothing and raises nothing."""
        seq = sequence("one")
        epoch = take(store).epoch
        store.prepare(seq, epoch)
        store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq)))
        before = contents(store)

        store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq)))

        assert contents(store) == before

    def test_commit_again_after_the_next_commit_changes_nothing(self, store: StateStore) -> None:
        """`commit` of a sequence that is COMMITTED changes nothing, also after a newer commit."""
        first = publish(store, "one")
        publish(store, "two", 1)
        before = contents(store)

        store.commit(first.id, take(store).epoch, CommitEffect(state(1), files_of(first)))

        assert contents(store) == before

    def test_commit_with_an_old_epoch_is_refused_whole(self, store: StateStore) -> None:
        """`commit` with another epoch than the current one raises StaleEpochError, and changes nothing."""
        seq = sequence("one")
        old = take(store, OTHER, ttl=EXPIRED)
        store.prepare(seq, old.epoch)
        take(store)
        before = contents(store)

        with pytest.raises(StaleEpochError, match="our epoch 1 is over, the current one is 2"):
            store.commit(seq.id, old.epoch, CommitEffect(state(1), files_of(seq)))

        assert contents(store) == before

    def test_commit_by_the_new_holder_finishes_what_the_old_one_prepared(self, store: StateStore) -> None:
        seq = sequence("one")
        store.prepare(seq, take(store, OTHER, ttl=EXPIRED).epoch)

        store.commit(seq.id, take(store).epoch, CommitEffect(state(1), files_of(seq)))

        assert store.load_dataset_states(JOB) == {URN: state(1)}

    def test_commit_of_an_unknown_sequence_is_refused(self, store: StateStore) -> None:
        """`commit` of an unknown sequence raises CorruptRecordError with its id, and changes nothing."""
        take(store)

        with pytest.raises(CorruptRecordError, match="does-not-exist"):
            store.commit("does-not-exist", 1, CommitEffect(state(1)))

        assert contents(store) == ({}, [], [], [], [])

    @pytest.mark.parametrize("end", ["aborting", "aborted", "quarantined"])
    def test_commit_of_a_sequence_that_was_given_up_is_refused_whole(self, store: StateStore, end: str) -> None:
        """`commit` of a sequence that was given up raises SequenceChangedError with its state, and changes nothing."""
        seq = sequence("one")
        epoch = take(store).epoch
        store.prepare(seq, epoch)
        if end == "quarantined":
            store.quarantine(seq.id, "a reason")
        else:
            store.start_abort(seq.id, epoch, "a reason")
        if end == "aborted":
            store.finish_abort(seq.id, epoch)
        before = contents(store)

        with pytest.raises(SequenceChangedError, match=end):
            store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq)))

        assert contents(store) == before

    def test_of_two_commits_of_a_sequence_that_race_one_takes_effect(self, store: StateStore) -> None:
        """Two calls of `commit` that race for one sequence both return, and it takes effect once."""
        seq = sequence("one")
        epoch = take(store).epoch
        store.prepare(seq, epoch)

        def commit() -> None:
            store.commit(seq.id, epoch, CommitEffect(state(1), files_of(seq)))

        assert race(commit, commit) == [None, None]
        assert store.load_dataset_states(JOB) == {URN: state(1)}
        assert store.load_snapshot(JOB, URN) == files_of(seq)

    @pytest.mark.parametrize("urn", ["d1", "d2", "d3"])
    def test_of_a_commit_and_an_abort_that_race_one_wins(self, store: StateStore, urn: str) -> None:
        """Of `commit` and `start_abort` that race one wins and the other raises; nothing between is left."""
        seq = sequence("one", urn=urn)
        epoch = take(store, urn=urn).epoch
        store.prepare(seq, epoch)

        commit, abort = race(
            lambda: store.commit(seq.id, epoch, CommitEffect(state(1, urn), files_of(seq))),
            lambda: store.start_abort(seq.id, epoch, "gave up"),
        )

        won = commit is None
        assert won == isinstance(abort, SequenceChangedError)
        assert ending_of(store, seq) is (SequenceState.COMMITTED if won else SequenceState.ABORTING)
        assert bool(store.load_dataset_states(JOB)) == bool(store.load_snapshot(JOB, urn)) == won

    def test_of_a_takeover_and_a_commit_that_race_the_state_tells_which_came_first(self, store: StateStore) -> None:
        """Of a takeover and a `commit` that race, the commit takes effect whole or raises StaleEpochError."""
        seq = sequence("one")
        old = take(store, OTHER, ttl=EXPIRED)
        store.prepare(seq, old.epoch)

        committed, lease = race(
            lambda: store.commit(seq.id, old.epoch, CommitEffect(state(1), files_of(seq))),
            lambda: take(store),
        )

        assert isinstance(lease, Lease)
        assert lease.epoch == old.epoch + 1
        won = committed is None
        assert won or isinstance(committed, StaleEpochError)
        assert bool(store.load_dataset_states(JOB)) == won

    def test_record_moves_state_files_and_sequence_together(self, store: StateStore) -> None:
        """`record` stores the sequence as COMMITTED with its state and files, in one transaction."""
        seq = sequence("direct")
        store.record(seq, take(store).epoch, CommitEffect(state(1), files_of(seq)))
        assert store.load_dataset_states(JOB) == {URN: state(1)}
        assert store.load_snapshot(JOB, URN) == in_order(files_of(seq))
        assert store.load_sequence(seq.id) == replace(seq, state=SequenceState.COMMITTED)
        assert [one.id for one in store.load_unreported(JOB)] == [seq.id]

    def test_record_follows_and_precedes_other_commits(self, store: StateStore) -> None:
        publish(store, "first")
        seq = sequence("direct", 1)
        store.record(seq, take(store).epoch, CommitEffect(state(2), files_of(seq)))
        publish(store, "third", 2)
        assert len(store.load_snapshot(JOB, URN)) == 6
        assert len(store.load_sequences(states=[SequenceState.COMMITTED])) == 3

    def test_record_with_an_old_epoch_or_version_changes_nothing(self, store: StateStore) -> None:
        """`record` raises StaleEpochError and WatermarkMovedError as `prepare` does, and changes nothing then."""
        publish(store, "first")
        old = take(store, ttl=EXPIRED).epoch
        new = take(store, OTHER).epoch
        before = contents(store)
        seq = sequence("late", 1)
        with pytest.raises(StaleEpochError):
            store.record(seq, old, CommitEffect(state(2), files_of(seq)))
        outdated = sequence("outdated", 0)
        with pytest.raises(WatermarkMovedError):
            store.record(outdated, new, CommitEffect(state(1), files_of(outdated)))
        assert contents(store) == before

    def test_record_is_refused_while_a_sequence_is_unfinished(self, store: StateStore) -> None:
        """`record` while a sequence of the dataset is unfinished raises UnfinishedSequenceError; changes nothing."""
        epoch = take(store).epoch
        store.prepare(sequence("open"), epoch)
        before = contents(store)
        seq = sequence("direct")
        with pytest.raises(UnfinishedSequenceError):
            store.record(seq, epoch, CommitEffect(state(1), files_of(seq)))
        assert contents(store) == before
