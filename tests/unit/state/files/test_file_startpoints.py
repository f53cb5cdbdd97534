"""Startpoints in plain files: heads hold them, markers find them, whatever is cut short in between."""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gobblin_dagster.core.commit import CommitEffect
from gobblin_dagster.core.errors import CommitStateUnknownError, CorruptRecordError, StorageError, TransientError
from gobblin_dagster.core.startpoint import (
    ALL_JOBS,
    DamagedStartpoint,
    Oldest,
    Startpoint,
    StartpointEvent,
    Upcoming,
)
from gobblin_dagster.state.files.records import DatasetHead
from gobblin_dagster.state.files.store import FileStateStore
from gobblin_dagster.storage import LocalStorage, MemoryStorage
from gobblin_dagster.testing.conformance.state_store.values import (
    JOB,
    START,
    URN,
    files_of,
    publish,
    sequence,
    state,
    take,
)
from tests.unit.state.files.test_store import Crash, FailingStorage, open_on

OLD = Startpoint(JOB, URN, Oldest(), START, START + timedelta(days=1), "anna@host", id="old")
NEW = replace(OLD, position=Upcoming(), id="new")


def run_once(store: FileStateStore) -> None:
    """Honour the startpoint that is there, by one commit."""
    epoch = take(store).epoch
    for left in store.load_sequences(JOB):
        store.commit(left.id, epoch, CommitEffect(state(left.version_read + 1), files_of(left), startpoints=[OLD.id]))
    if store.load_dataset_states(JOB)[URN].version == 1:
        seq = sequence("two", 1)
        store.prepare(seq, epoch)
        store.commit(seq.id, epoch, CommitEffect(state(2), files_of(seq), startpoints=[OLD.id]))


@pytest.mark.parametrize("is_done_first", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("has_older", [False, True], ids=["new key", "older one"])
def test_crash_at_any_operation_of_a_fan_out_leaves_what_was_there_or_the_copy(
    has_older: bool, is_done_first: bool
) -> None:
    """X5: a second fan-out ends the first one, and the startpoints of other partitions stay."""
    copy = replace(NEW, created_at=START + timedelta(seconds=1), is_copy=True, generation=2)
    other = replace(OLD, partition="a-1", id="other")
    seen = set()
    for number in range(1, 20):
        storage = FailingStorage()
        open_on(storage).save_startpoint(other)
        if has_older:
            open_on(storage).save_startpoint(OLD)
        before = open_on(storage).list_startpoints(JOB)
        storage.arm(Crash(), number, is_done_first)
        with suppress(Crash):
            open_on(storage).fan_out_startpoint(copy, "run-1")
        is_through = storage.fault is not None
        storage.fault = None
        left = open_on(storage).list_startpoints(JOB)
        assert left in (before, [copy, other])
        seen.add(left == before)
        assert open_on(storage).fan_out_startpoint(copy, "run-1") is True
        assert open_on(storage).list_startpoints(JOB) == [copy, other]
        if is_through:
            break
    assert seen == {True, False}


@pytest.mark.parametrize("is_done_first", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("fault", [Crash(), OSError(errno.EIO, "Input/output error")], ids=["crash", "failure"])
def test_fault_at_any_operation_consumes_the_startpoint_with_the_commit_or_not_at_all(
    fault: BaseException, is_done_first: bool
) -> None:
    struck = 0
    for number in range(1, 20):
        storage = FailingStorage()
        publish(open_on(storage), "one")
        open_on(storage).save_startpoint(OLD)
        storage.arm(fault, number, is_done_first)
        try:
            run_once(open_on(storage))
        except (Crash, TransientError, CommitStateUnknownError):
            struck += 1
        is_through = storage.fault is not None
        storage.fault = None
        found = open_on(storage)
        is_committed = found.load_dataset_states(JOB)[URN].version == 2
        assert found.load_startpoints(JOB) == ({} if is_committed else {URN: OLD})
        run_once(found)
        assert open_on(storage).load_startpoints(JOB) == {}
        if is_through:
            break
    assert 4 < struck < number, "the last round is struck by nothing"


@pytest.mark.parametrize("is_done_first", [False, True], ids=["before", "after"])
def test_startpoint_whose_saving_is_cut_short_is_the_old_one_or_the_new(is_done_first: bool) -> None:
    found = []
    # The marker, the event so far, the file that says that there are events, the head, and the old marker.
    for number in range(1, 6):
        storage = FailingStorage()
        store = open_on(storage)
        store.save_startpoint(OLD)
        storage.arm(Crash(), number, is_done_first)
        with pytest.raises(Crash):
            store.save_startpoint(NEW)
        (left,) = open_on(storage).load_startpoints(JOB).values()
        found.append(left.id)
        open_on(storage).save_startpoint(replace(NEW, id="newer"))
        assert open_on(storage).load_startpoints(JOB)[URN].id == "newer"
    assert found == [*["old"] * 3, "new" if is_done_first else "old", "new"]


@pytest.mark.parametrize("is_done_first", [False, True], ids=["before", "after"])
def test_crash_at_any_operation_of_an_import_leaves_all_of_it_or_nothing(is_done_first: bool) -> None:
    part = replace(OLD, partition="a-1", id="part")
    events = [StartpointEvent(one, "set", START - timedelta(days=2), one.who) for one in (OLD, part)]
    seen = set()
    for number in range(1, 20):
        storage = FailingStorage()
        open_on(storage).save_startpoint(NEW)
        before = open_on(storage).load_startpoint_events(JOB)
        storage.arm(Crash(), number, is_done_first)
        with suppress(Crash):
            open_on(storage).import_startpoints(JOB, URN, [OLD, part], events)
        is_through = storage.fault is not None
        storage.fault = None
        found = open_on(storage).list_startpoints(JOB), open_on(storage).load_startpoint_events(JOB)
        assert found in (([NEW], before), ([NEW, part], [*events, *before]))
        seen.add(found[1] == before)
        if is_through:
            break
    assert seen == {True, False}


def test_older_program_that_opened_the_store_before_refuses_newer_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would drop the events of the head that it changes."""
    storage = MemoryStorage()
    older = FileStateStore("/state", storage)
    FileStateStore("/state", storage).save_startpoint(OLD)
    with monkeypatch.context() as as_older:
        as_older.setattr(DatasetHead, "format_name", "DatasetHead/1")
        as_older.setattr(DatasetHead, "older_formats", ())
        with pytest.raises(CorruptRecordError, match="expected format 'DatasetHead/1'"):
            older.save_startpoint(NEW)
    assert [event.startpoint for event in older.load_startpoint_events(JOB)] == [OLD]


def test_heads_without_a_startpoint_are_not_looked_into() -> None:
    storage = MemoryStorage()
    store = FileStateStore("/state", storage)
    for number in range(20):
        publish(store, f"n{number}", urn=f"d{number}")
    store.save_startpoint(replace(OLD, dataset_urn="d7"))
    read: list[str] = []
    right = storage.read
    count = lambda path: read.append(path) or right(path)  # type: ignore[func-returns-value]  # noqa: E731
    storage.read = count  # type: ignore[method-assign]
    assert set(store.load_startpoints(JOB)) == {"d7"}
    assert len(read) == 2


def test_marker_that_is_gone_or_left_over_harms_nothing(tmp_path: Path) -> None:
    store = FileStateStore(str(tmp_path), LocalStorage(durable=False))
    store.save_startpoint(OLD)
    folder = tmp_path / "jobs" / JOB / "startpoints"
    (folder / "left").write_text(URN)
    (folder / "other").write_text("never published")
    (folder / ".hidden").write_text("not ours")
    (folder / "gone").symlink_to("nowhere")
    assert store.load_startpoints(JOB) == {URN: OLD}
    seq = sequence("one")
    store.record(seq, take(store).epoch, CommitEffect(state(1), startpoints=[OLD.id]))
    assert {path.name for path in folder.iterdir()} == {"left", "other", ".hidden", "gone"}
    assert store.load_startpoints(JOB) == {}


def test_startpoint_in_a_folder_that_cannot_be_used_is_a_storage_error(tmp_path: Path) -> None:
    store = FileStateStore(str(tmp_path), LocalStorage(durable=False))
    (tmp_path / "jobs" / JOB).mkdir(parents=True)
    (tmp_path / "jobs" / JOB / "startpoints").write_text("a file")
    with pytest.raises(StorageError):
        store.save_startpoint(OLD)


def test_damaged_startpoint_for_all_jobs_is_listed_until_it_is_removed_or_replaced(tmp_path: Path) -> None:
    """It was left out of lists and plans, and could be neither removed nor replaced."""
    store = FileStateStore(str(tmp_path), LocalStorage())
    for_all = replace(OLD, job=ALL_JOBS)
    of_partition = replace(for_all, partition="a-1", id="other")

    def damage() -> None:
        store.save_startpoint(of_partition)
        store.save_startpoint(for_all)
        newest = max((tmp_path / "jobs" / "%2A" / "datasets").rglob("log/*.json"))
        newest.write_bytes(newest.read_bytes().replace(b'"created_at"', b'"created_st"'))

    damage()
    (damaged,) = store.list_startpoints(ALL_JOBS)
    assert isinstance(damaged, DamagedStartpoint)
    assert "%2A/datasets" in str(damaged.error)
    assert "remove --all-jobs" in str(damaged.error)
    with pytest.raises(CorruptRecordError, match="remove --all-jobs"):
        store.save_startpoint(of_partition)  # which would hide what was there for the whole dataset
    assert store.delete_startpoint(damaged, "anna@host")
    assert store.list_startpoints(ALL_JOBS) == []
    damage()
    store.save_startpoint(replace(NEW, job=ALL_JOBS))
    assert store.list_startpoints(ALL_JOBS) == [replace(NEW, job=ALL_JOBS)]
    told = [event.change for event in store.load_startpoint_events(ALL_JOBS)]
    assert told[-2:] == ["replaced", "set"]
