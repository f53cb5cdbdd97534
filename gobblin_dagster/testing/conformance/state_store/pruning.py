"""Tests of a state store whose old sequences are deleted, or were never stored in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gobblin_dagster.core.commit import CommitEffect, FileHistory, SequenceState
from gobblin_dagster.core.errors import (
    CorruptRecordError,
    StaleEpochError,
    UnfinishedSequenceError,
    WatermarkMovedError,
)
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.testing.conformance.state_store.opening import OpensStore
from gobblin_dagster.testing.conformance.state_store.values import (
    JOB,
    URN,
    ending_of,
    files_of,
    in_order,
    publish,
    sequence,
    state,
    take,
)

ALL = tuple(SequenceState)


class Pruning(OpensStore):
    """Deletes old sequences, and begins with a sequence that is not the first one."""

    def test_old_sequences_are_deleted_and_all_else_stays(self, store: StateStore) -> None:
        """`prune_sequences` deletes the ended sequences of one dataset that read a lower version."""
        committed = [publish(store, str(version), version) for version in range(5)]
        publish(store, "other", urn="other")
        files = store.load_snapshot(JOB, URN)

        assert store.prune_sequences(JOB, URN, below=3) == 3
        assert store.prune_sequences(JOB, URN, below=3) == 0

        assert [seq.id for seq in store.load_sequences(JOB, ALL, [URN])] == [committed[4].id, committed[3].id]
        assert len(store.load_sequences(JOB, ALL, ["other"])) == len(store.load_sequences(JOB, ALL)) - 2 == 1
        assert [ending_of(store, seq) for seq in committed] == [None, None, None, *2 * [SequenceState.COMMITTED]]
        assert [seq.version_read for seq in store.load_unreported(JOB) if seq.dataset_urn == URN] == [3, 4]
        assert store.load_dataset_states(JOB, [URN]) == {URN: state(5)}
        assert store.load_snapshot(JOB, URN) == files
        assert store.load_snapshot(JOB, URN, 1) == files_of(committed[0])
        assert len(store.load_history(JOB, URN)) == len(files)
        publish(store, "next", 5)
        assert store.load_dataset_states(JOB, [URN])[URN].version == 6

    def test_newest_commit_and_unfinished_sequences_always_stay(self, store: StateStore) -> None:
        """`prune_sequences` never deletes the newest commit, nor what comes after it."""
        publish(store, "one"), publish(store, "two", 1)
        epoch = take(store).epoch
        for name in ("given up", "waiting"):
            store.prepare(sequence(name, 2), epoch)
            if name == "given up":
                store.start_abort(sequence(name).id, epoch, "lost")
                store.finish_abort(sequence(name).id, epoch)

        assert store.prune_sequences(JOB, URN, below=100) == 1
        found = store.load_sequences(JOB, ALL)
        assert [seq.state for seq in found] == [
            SequenceState.PREPARED,
            SequenceState.ABORTED,
            SequenceState.COMMITTED,
        ]
        assert store.prune_sequences(JOB, "unknown", below=100) == 0
        store.commit(sequence("waiting").id, epoch, CommitEffect(state(3)))
        assert store.prune_sequences(JOB, URN, below=2) == 1
        assert [seq.version_read for seq in store.load_sequences(JOB, ALL)] == [2, 2]

    def test_deleted_sequence_cannot_change_any_more(self, store: StateStore) -> None:
        """A deleted sequence is unknown to every other method."""
        old = publish(store, "one")
        publish(store, "two", 1)
        store.prune_sequences(JOB, URN, below=1)
        store.mark_reported([old.id])

        assert [seq.version_read for seq in store.load_sequences(JOB, ALL)] == [1]
        with pytest.raises(CorruptRecordError, match="does not hold it"):
            store.commit(old.id, take(store).epoch, CommitEffect(state(1)))

    def test_sequences_below_a_version_are_found(self, store: StateStore) -> None:
        """`load_sequences` returns only sequences below the version, newest first."""
        for version in range(4):
            publish(store, str(version), version)
        found = store.load_sequences(JOB, ALL, [URN], below=2)
        assert [seq.version_read for seq in found] == [1, 0]
        assert [seq.version_read for seq in store.load_sequences(JOB, ALL, [URN], limit=1, below=3)] == [2]

    def test_history_begins_with_a_later_commit(self, store: StateStore) -> None:
        """`adopt` stores a commit with the state after it and all files so far; later commits build on it."""
        ours, first, second = sequence("three", 2), files_of(sequence("one")), files_of(sequence("two", 1))
        history = [FileHistory(first[0], removed=(2,)), *map(FileHistory, [first[1], *second])]
        epoch = take(store).epoch
        store.adopt(ours, epoch, state(3), history)

        assert store.load_sequences(JOB, ALL) == [replace(ours, state=SequenceState.COMMITTED)]
        assert store.load_dataset_states(JOB) == {URN: state(3)}
        assert store.load_snapshot(JOB, URN, 1) == in_order(first)
        assert store.load_snapshot(JOB, URN) == in_order([first[1], *second])
        fourth = sequence("four", 3)
        store.prepare(fourth, epoch)
        store.commit(fourth.id, epoch, CommitEffect(state(4), files_of(fourth), removed=[first[1].path]))
        assert store.load_snapshot(JOB, URN) == in_order([*second, *files_of(fourth)])
        assert store.load_snapshot(JOB, URN, 3) == in_order([first[1], *second])
        found = {one.file: one.removed for one in store.load_history(JOB, URN)}
        assert found == {first[0]: (2,), first[1]: (4,), **dict.fromkeys([*second, *files_of(fourth)], ())}
        assert store.prune_sequences(JOB, URN, below=3) == 1

    def test_history_without_files_begins_with_a_later_commit(self, store: StateStore) -> None:
        """`adopt` takes a dataset that published no files, as with tables."""
        store.adopt(sequence("three", 2), take(store).epoch, replace(state(3), snapshot=0), [])
        assert store.load_snapshot(JOB, URN) == []
        assert store.load_history(JOB, URN) == []

    def test_dataset_with_a_state_or_without_our_lease_adopts_nothing(self, store: StateStore) -> None:
        """`adopt` refuses a dataset that was committed, or has an unfinished sequence, or another holder."""
        epoch = take(store).epoch
        with pytest.raises(StaleEpochError):
            store.adopt(sequence("three", 2), epoch + 1, state(3), [])
        with pytest.raises(CorruptRecordError):
            store.adopt(sequence("three", 2), epoch, state(4), [])
        waiting = sequence("one")
        store.prepare(waiting, epoch)
        with pytest.raises(UnfinishedSequenceError):
            store.adopt(sequence("three", 2), epoch, state(3), [])
        store.commit(waiting.id, epoch, CommitEffect(state(1)))
        with pytest.raises(WatermarkMovedError):
            store.adopt(sequence("three", 2), epoch, state(3), [])
        assert [seq.id for seq in store.load_sequences(JOB, ALL)] == [waiting.id]
