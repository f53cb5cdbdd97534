"""What every StateStore promises of snapshots when a dataset goes back to an older one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobblin_dagster.core.commit import CommitEffect, PublishedFile
from gobblin_dagster.core.dataset_state import Rollback
from gobblin_dagster.state import StateStore
from gobblin_dagster.state.files.store import FileStateStore
from gobblin_dagster.storage import MemoryStorage
from tests.contract.conftest import StoreMaker
from tests.contract.test_state_store import JOB, URN, files_of, in_order, sequence, state, take


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


def test_rollback_is_a_new_snapshot_and_leaves_the_others_as_they_were(maker: StoreMaker) -> None:
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


def test_removed_files_are_left_out_from_then_on_and_older_snapshots_hold_them(maker: StoreMaker) -> None:
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


def test_recorded_sequence_removes_files_too(store: StateStore) -> None:
    publisher = Publisher(store)
    publisher.publish()
    first, second = publisher.expected[1]
    store.record(sequence("2", 1), take(store).epoch, CommitEffect(state(2), (), [second.path, second.path]))
    assert store.load_snapshot(JOB, URN) == [first]
    assert store.load_snapshot(JOB, URN, 1) == [first, second]


@settings(max_examples=60)
@given(st.data())
def test_any_history_with_removals_reads_as_it_was_written(data: st.DataObject) -> None:
    publisher = Publisher(FileStateStore("/state", MemoryStorage()))
    for action in data.draw(st.lists(st.sampled_from(["add", "replace", "remove", "go back"]), max_size=25)):
        if action == "go back":
            publisher.go_back(data.draw(st.integers(0, len(publisher.expected) - 1)))
            continue
        held = publisher.expected[-1] if action != "add" else []
        removing = data.draw(st.lists(st.sampled_from(held), unique=True)) if held else []
        publisher.publish(removing=removing, is_adding=action != "remove")
    publisher.check()


@settings(max_examples=60)
@given(st.lists(st.one_of(st.none(), st.integers(min_value=0, max_value=40)), max_size=40))
def test_any_history_of_publications_and_rollbacks_reads_as_it_was_written(history: list[int | None]) -> None:
    publisher = Publisher(FileStateStore("/state", MemoryStorage()))
    for to in history:
        if to is None:
            publisher.publish()
        else:
            publisher.go_back(to % len(publisher.expected))
    publisher.check()
    newest = publisher.store.load_dataset_states(JOB).get(URN)
    for number in range(1, len(publisher.expected)):
        assert newest is not None
        assert newest.is_held(number), "as long as nothing has expired, every snapshot can be read"


@given(st.lists(st.one_of(st.none(), st.integers(min_value=1, max_value=40)), max_size=40), st.integers(1, 40))
def test_expiry_leaves_what_kept_snapshots_hold(history: list[int | None], oldest: int) -> None:
    rollbacks = [Rollback(n, 1 + to % (n - 1)) for n, to in enumerate(history, 2) if to is not None]
    before = replace(state(len(history) + 1), rollbacks=tuple(rollbacks))
    after = before.expire(oldest)
    kept = range(min(oldest, before.snapshot), before.snapshot + 1)
    assert [after.chain(number) for number in kept] == [before.chain(number) for number in kept]
    held = {n for end in kept for low, high in before.chain(end) for n in range(low + 1, high + 1)}
    assert held == {number for number in range(1, before.snapshot + 1) if after.is_held(number)}
    assert after.expire(oldest) == after


@pytest.mark.parametrize(
    ("oldest", "held"),
    [(1, [1, 2, 3, 4, 5, 6, 7]), (4, [1, 2, 3, 4, 5, 6, 7]), (5, [1, 2, 5, 6, 7]), (7, [1, 2, 5, 6, 7])],
)
def test_what_expired_snapshots_alone_hold_is_held_no_more(oldest: int, held: list[int]) -> None:
    newest = replace(state(7), rollbacks=(Rollback(5, to=2),)).expire(oldest)
    assert [number for number in range(1, 8) if newest.is_held(number)] == held
