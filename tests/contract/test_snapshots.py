"""Laws of snapshots: any history of publications, removals and rollbacks reads as it was written."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobblin_dagster.core.dataset_state import Rollback
from gobblin_dagster.state.files.store import FileStateStore
from gobblin_dagster.storage import MemoryStorage
from gobblin_dagster.testing.conformance.state_store.snapshots import Publisher
from gobblin_dagster.testing.conformance.state_store.values import JOB, URN, state


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
