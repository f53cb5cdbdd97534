"""Stores written by earlier versions of the program must load.

`tests/data/file_store_v1` was written by the first, `file_store_v4` by the last that wrote events of startpoints apart
from their changes, `file_store_v5` by the last whose heads older programs took for their own. In both: a startpoint
set, replaced, and fanned out by a run, and one for all jobs.
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gobblin_dagster.core.commit import CommitEffect, SequenceState
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.places import Places
from gobblin_dagster.core.run_record import DatasetOutcome, DatasetRunRecord, RunRecord, RunStatus
from gobblin_dagster.core.startpoint import ALL_JOBS, Oldest
from gobblin_dagster.state.files.folder import LAYOUT_VERSION
from gobblin_dagster.state.files.store import FileStateStore
from gobblin_dagster.state.startpoints import StartpointManager
from gobblin_dagster.storage import LocalStorage
from gobblin_dagster.testing.conformance.state_store import ManualClock
from gobblin_dagster.testing.conformance.state_store.values import JOB, START, URN, files_of, in_order, sequence, state
from gobblin_dagster.testing.faults import Action, Fault, FaultPoints, Halted, counted_storage, halt_after, halt_before

STORES = Path(__file__).parents[3] / "data"
DATA = STORES / "file_store_v1"
OWNER = LeaseOwner("run-1", "node-1", "boot-1", 1, "1")
TTL = timedelta(minutes=5)
RUN = RunRecord(
    run_id="run-1",
    job=JOB,
    started_at=START,
    status=RunStatus.PARTIAL,
    ended_at=START + TTL,
    datasets={URN: DatasetRunRecord(DatasetOutcome.COMMITTED, low="0", high="10", rows=10)},
)


def known(version: int) -> DatasetState:
    """Return a state as the first layout held it, which knew no ids of what is read, no row marks and no places."""
    return replace(state(version), origin={}, row_marks={}, holders={}, places={})


def write_store(root: Path) -> None:
    """Write what `DATA` holds."""
    store = FileStateStore(str(root), LocalStorage(), ManualClock())
    epoch = store.acquire_leases(JOB, [URN], OWNER, TTL).granted[URN].epoch
    for version, name in enumerate(("one", "two")):
        store.prepare(sequence(name, version), epoch)
        store.commit(
            sequence(name, version).id, epoch, CommitEffect(known(version + 1), files_of(sequence(name, version)))
        )
    store.mark_reported([sequence("one").id])
    store.prepare(sequence("three", 2), epoch)
    store.save_run(RUN)


@pytest.fixture(params=["first", "current"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FileStateStore:
    if request.param == "first":
        shutil.copytree(DATA, tmp_path / "state")
    else:
        write_store(tmp_path / "state")
    return FileStateStore(f"{tmp_path}/state", LocalStorage(durable=False), ManualClock())


def test_store_of_any_layout_loads_whole(store: FileStateStore) -> None:
    assert store.load_dataset_states(JOB) == {URN: known(2)}
    assert store.load_leases(JOB)[URN].owner == OWNER
    assert store.load_leases(JOB)[URN].until == START + TTL
    assert store.load_snapshot(JOB, URN, 1) == in_order(files_of(sequence("one")))
    assert store.load_snapshot(JOB, URN) == in_order(files_of(sequence("one")) + files_of(sequence("two", 1)))
    assert store.load_sequences(JOB) == [sequence("three", 2)]
    assert store.load_unreported(JOB) == [replace(sequence("two", 1), state=SequenceState.COMMITTED)]
    assert store.load_sequence(sequence("one").id) == replace(
        sequence("one"), state=SequenceState.COMMITTED, reported=True
    )
    assert store.load_runs() == [RUN]


def test_store_of_any_layout_goes_on(store: FileStateStore) -> None:
    store.commit(sequence("three", 2).id, 1, CommitEffect(state(3), files_of(sequence("three", 2))))
    assert store.load_dataset_states(JOB) == {URN: state(3)}
    assert len(store.load_snapshot(JOB, URN)) == 6


@pytest.mark.parametrize("written_by", ["file_store_v4", "file_store_v5"])
def test_events_of_an_older_store_and_newer_ones_are_one_history(tmp_path: Path, written_by: str) -> None:
    shutil.copytree(STORES / written_by, tmp_path / "state")
    clock = ManualClock()
    clock.advance(timedelta(hours=3))
    store = FileStateStore(f"{tmp_path}/state", LocalStorage(durable=False), clock)
    assert json.loads((tmp_path / "state/format.json").read_text())["version"] == LAYOUT_VERSION
    manager = StartpointManager(store)
    (fanned,) = manager.find(JOB)
    assert (fanned.generation, fanned.why) == (2, "rain")
    (wide,) = manager.find(ALL_JOBS)
    newer = manager.write(fanned.key, Oldest(), why="sleet", who="carl@host")
    manager.delete(wide.key, "carl@host")
    assert [(event.change, event.who, event.startpoint.why) for event in manager.events(JOB)] == [
        ("set", "anna@host", "snow"),
        ("replaced", "bert@host", "snow"),
        ("set", "bert@host", "rain"),
        ("fanned out", "run-2", "rain"),
        ("replaced", "carl@host", "rain"),
        ("set", "carl@host", "sleet"),
    ]
    assert [event.change for event in manager.events(ALL_JOBS)] == ["set", "removed"]
    assert manager.find(JOB) == [newer]


@pytest.mark.parametrize("at", range(1, 8))
@pytest.mark.parametrize("action", [halt_before, halt_after])
def test_upgrade_that_breaks_off_anywhere_keeps_the_former_folder(tmp_path: Path, at: int, action: Action) -> None:
    shutil.copytree(DATA, tmp_path / "state")
    points = FaultPoints(Fault(at, action))
    with suppress(Halted):
        FileStateStore(
            f"{tmp_path}/state", counted_storage(LocalStorage(durable=False), points), ManualClock(), base="/old"
        )
    assert points.is_struck == (at <= 6)
    store = FileStateStore(f"{tmp_path}/state", LocalStorage(durable=False), ManualClock(), base="/old")
    assert store.places == Places("/old", former="/old")
    moved = FileStateStore(f"{tmp_path}/state", LocalStorage(durable=False), ManualClock(), base="/new")
    assert moved.places == Places("/new", former="/old")
    assert json.loads((tmp_path / "state/format.json").read_text()) == {"store": "gobblin", "version": LAYOUT_VERSION}
