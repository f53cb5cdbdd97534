"""Tests of a state store's snapshots, also after a rollback."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from gobblin_dagster.core.commit import CommitEffect, PublishedFile
from gobblin_dagster.core.dataset_state import Rollback
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.testing.conformance.state_store.opening import OpensStore, StoreMaker
from gobblin_dagster.testing.conformance.state_store.values import (
    JOB,
    URN,
    files_of,
    in_order,
    publish,
    sequence,
    state,
    take,
)


class Publisher:
    """Commits snapshots and rollbacks, and keeps by itself what each snapshot must hold."""

    def __init__(self, store: StateStore) -> None:
        self.store = store
        self.expected: list[list[PublishedFile]] = [[]]
        self._rollbacks: tuple[Rollback, ...] = ()
        self._epoch = take(store).epoch

    def publish(self, *, removing: Sequence[PublishedFile] = (), is_adding: bool = True) -> None:
        """Add files and remove others of the newest snapshot."""
        number = len(self.expected)
        files = files_of(sequence(str(number), number - 1)) if is_adding else []
        self._commit(files, [file.path for file in removing])
        kept = [file for file in self.expected[-1] if file not in removing]
        self.expected.append([*kept, *files])

    def go_back(self, to: int) -> None:
        """Make an older snapshot the newest, under a new number."""
        self._rollbacks = (*self._rollbacks, Rollback(len(self.expected), to))
        self._commit([])
        self.expected.append(self.expected[to])

    def check(self) -> None:
        """Compare every snapshot there ever was."""
        for number, files in enumerate(self.expected):
            assert self.store.load_snapshot(JOB, URN, number) == in_order(files), number
        assert self.store.load_snapshot(JOB, URN) == in_order(self.expected[-1])
        newest = replace(state(len(self.expected) - 1), rollbacks=self._rollbacks)
        histories = self.store.load_history(JOB, URN)
        assert in_order([one.file for one in histories]) == in_order(list(set(itertools.chain(*self.expected))))
        for one in histories:
            holders = [number for found in newest.holding(one.file.snapshot, one.removed) for number in found]
            assert holders == [number for number, files in enumerate(self.expected) if one.file in files], one

    def _commit(self, files: list[PublishedFile], removed: Sequence[str] = ()) -> None:
        number = len(self.expected)
        prepared = sequence(str(number), number - 1)
        self.store.prepare(prepared, self._epoch)
        after = replace(state(number), rollbacks=self._rollbacks)
        for _ in range(2):  # twice, because a lost answer is followed by another try
            self.store.commit(prepared.id, self._epoch, CommitEffect(after, files, removed))


class Snapshots(OpensStore):
    """Files of snapshots: added, removed, and brought back by rollbacks."""

    def test_snapshots_accumulate_and_old_ones_stay_readable(self, store: StateStore) -> None:
        """`load_snapshot` returns the files of all snapshots up to the given one, ordered by branch and path."""
        first = files_of(publish(store, "one"))
        second = files_of(publish(store, "two", 1))

        assert store.load_snapshot(JOB, URN) == in_order([*first, *second])
        assert store.load_snapshot(JOB, URN, 2) == in_order([*first, *second])
        assert store.load_snapshot(JOB, URN, 1) == first
        assert store.load_snapshot(JOB, URN, 0) == []
        assert store.load_snapshot(JOB, "another") == []

    def test_snapshot_files_are_ordered_by_branch_and_path(self, store: StateStore) -> None:
        """`load_snapshot` orders files by branch and path, compared as code points."""
        seq = sequence("one")
        epoch = take(store).epoch
        store.prepare(seq, epoch)
        files = files_of(seq, ["b", "B", "a", "_", "é", "-", "10", "9"])

        store.commit(seq.id, epoch, CommitEffect(state(1), files))

        assert store.load_snapshot(JOB, URN) == in_order(files)

    def test_rollback_is_a_new_snapshot_and_leaves_the_others_as_they_were(self, maker: StoreMaker) -> None:
        """A rollback makes a new snapshot with the files of an older one; every other snapshot reads as before."""
        publisher = Publisher(maker.open())
        for _ in range(3):
            publisher.publish()
        publisher.go_back(1)
        publisher.publish()
        publisher.check()
        assert len(publisher.expected[5]) == 2 * len(publisher.expected[1])
        # Back and forth: to a snapshot that a rollback had left behind, then over several rollbacks at once.
        publisher.go_back(3)
        publisher.publish()
        publisher.go_back(5)
        publisher.check()
        reopened = maker.open()
        assert reopened.load_snapshot(JOB, URN, 6) == in_order(publisher.expected[3])

    def test_removed_files_are_left_out_from_then_on_and_older_snapshots_hold_them(self, maker: StoreMaker) -> None:
        """Files that a snapshot removes are left out from then on; older snapshots hold them, rollbacks too."""
        publisher = Publisher(maker.open())
        publisher.publish()
        publisher.publish()
        first = publisher.expected[1]
        publisher.publish(removing=first[:1])
        publisher.publish(removing=publisher.expected[3], is_adding=False)
        publisher.check()
        assert (len(publisher.expected[3]), publisher.expected[4]) == (5, [])
        publisher.publish()
        publisher.go_back(2)
        publisher.check()
        assert first[0] in publisher.expected[6], "a removal that a rollback went behind does not count"
        publisher.publish(removing=first[:1])
        publisher.go_back(4)
        publisher.go_back(7)
        publisher.check()
        reopened = maker.open()
        assert reopened.load_snapshot(JOB, URN, 3) == in_order(publisher.expected[3])
        assert reopened.load_snapshot(JOB, URN, 7) == in_order(publisher.expected[7])

    def test_recorded_sequence_removes_files_too(self, store: StateStore) -> None:
        """`record` removes files as `commit` does."""
        publisher = Publisher(store)
        publisher.publish()
        first, second = publisher.expected[1]
        store.record(sequence("2", 1), take(store).epoch, CommitEffect(state(2), (), [second.path, second.path]))
        assert store.load_snapshot(JOB, URN) == [first]
        assert store.load_snapshot(JOB, URN, 1) == [first, second]
