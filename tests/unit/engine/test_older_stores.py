"""State that older programs wrote must load and go on.

`tests/data/sql_store_v1.sql` is the dump of a SQLite store, `tests/data/state_export_v1.jsonl` its export before the
last sequence. Their commit reports are still bags of the format `DatasetResult/1`. Three commits of one dataset: by a
run whose second work unit failed, under a startpoint, by a person; then a sequence that is not finished, and a
startpoint that waits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from gobblin_dagster.core.commit import CommitReport, CommitSequence, ManualChange, SequenceState
from gobblin_dagster.core.places import AS_STORED
from gobblin_dagster.core.run_record import DatasetOutcome, DatasetRunRecord, RunRecord, RunStatus
from gobblin_dagster.core.startpoint import Oldest, Startpoint, Upcoming
from gobblin_dagster.core.task_state import PolicyOutcome, PolicyResult, QueueStats, TaskFailure
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.engine.maintenance.state_export import plan_import, read_export, run_import
from gobblin_dagster.engine.maintenance.state_history import history
from gobblin_dagster.engine.results import DatasetResult
from gobblin_dagster.state import StateStore, open_store
from tests.unit.engine.commit.world import JOB, NOW, Clock, World

DATA = Path(__file__).parents[2] / "data"
HOUR, WEEK = timedelta(hours=1), timedelta(days=7)
OF_RUN, UNDER_STARTPOINT, UNFINISHED = "a" * 32, "b" * 32, "c" * 32
BY_PERSON = f"{0xA1:032x}"
CONSUMED = Startpoint(
    JOB,
    "a",
    Upcoming(),
    NOW,
    NOW + WEEK,
    "anna@host",
    "the feed began anew",
    id="5" * 32,
    pinned=CommittedRanges(LongWatermark, {"": ((0, 40),)}),
)
WAITING = Startpoint(
    JOB, "a", Oldest(), NOW + 3 * HOUR, NOW + 3 * HOUR + WEEK, "anna@host", "all of it again", id="6" * 32
)
REPORTS = {
    OF_RUN: CommitReport(
        low=LongWatermark(0),
        expected_high=LongWatermark(20),
        rows_read=10,
        rows_filtered=1,
        rows_by_branch={"main": 10},
        rejected={"amount": 2},
        rows_quarantined=2,
        policies=(PolicyOutcome("row_count", "main", PolicyResult.PASSED, enforced=True, detail="10 rows"),),
        failures=(TaskFailure("source", "the server hung up", transient=True),),
        failed_ranges=("[10, 20)",),
        notes=("2 files are late", "a column is new"),
        seconds=1.5,
        queues={"main": QueueStats(8, 4, 4, 2, 0.25, 0.1, 0.2, 1.5)},
    ),
    UNDER_STARTPOINT: CommitReport(
        low=LongWatermark(40),
        expected_high=LongWatermark(50),
        rows_read=10,
        rows_by_branch={"main": 10},
        notes=("begins at 40, by the startpoint upcoming of anna@host: the feed began anew.",),
        startpoint=CONSUMED,
    ),
    BY_PERSON: CommitReport(
        low=LongWatermark(10),
        notes=("set by anna@host: snow fell into the file",),
        change=ManualChange("set", "anna@host", "snow fell into the file"),
    ),
    UNFINISHED: CommitReport(
        low=LongWatermark(60), expected_high=LongWatermark(65), rows_read=5, rows_by_branch={"main": 5}
    ),
}
RUNS = [
    RunRecord(
        "run-1",
        JOB,
        NOW,
        RunStatus.PARTIAL,
        NOW + timedelta(seconds=2),
        {"a": DatasetRunRecord(DatasetOutcome.COMMITTED, "0", "10", 10, 2, "the server hung up", ("[10, 20)",))},
    ),
    RunRecord(
        "run-2",
        JOB,
        NOW,
        RunStatus.SUCCEEDED,
        NOW + timedelta(seconds=2),
        {"a": DatasetRunRecord(DatasetOutcome.COMMITTED, "40", "10", 10)},
    ),
]
HISTORY = [
    (1, "None", "10", "run", "run-1", "without [10, 20), which failed; 2 files are late; a column is new", 10),
    (2, "10", "10", "startpoint", "anna@host", "startpoint upcoming: the feed began anew", 10),
    (3, "10", "60", "person", "anna@host", "set: snow fell into the file", 0),
]


def _load_dump(name: str, folder: Path) -> str:
    with closing(sqlite3.connect(folder / "state.db")) as connection:
        connection.executescript((DATA / name).read_text())
    return "sqlite:///state.db"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with closing(open_store(_load_dump("sql_store_v1.sql", tmp_path), tmp_path, Clock(NOW + 4 * HOUR))) as opened:
        yield opened


def _sequence(store: StateStore, sequence_id: str) -> CommitSequence:
    stored = store.load_sequence(sequence_id)
    assert stored is not None
    return decode_sequence(stored, AS_STORED)


def _told(store: StateStore) -> list[tuple[int, str, str, str, str, str, int]]:
    return [
        (one.version, str(one.watermark_before), str(one.watermark_after), one.by, one.who, one.why, one.rows)
        for one in history(store, JOB, "a")
        if one.state is SequenceState.COMMITTED
    ]


def test_reports_of_an_older_store_are_typed(store: StateStore) -> None:
    assert {name: _sequence(store, name).report for name in REPORTS} == REPORTS


def test_older_store_loads_whole(store: StateStore) -> None:
    state = store.load_dataset_states(JOB)["a"]
    assert state == _sequence(store, BY_PERSON).after
    assert (state.version, state.watermark) == (3, LongWatermark(60))
    assert store.load_startpoints(JOB) == {"a": WAITING}
    assert sorted(store.load_runs(), key=lambda run: run.run_id) == RUNS
    assert [file.snapshot for file in store.load_snapshot(JOB, "a")] == [1, 2]
    assert _told(store) == HISTORY


def test_commit_of_an_older_store_is_reported_to_dagster_as_it_was(store: StateStore) -> None:
    (unreported,) = store.load_unreported(JOB)
    assert DatasetResult.of_commit(decode_sequence(unreported, AS_STORED)) == DatasetResult(
        "a",
        DatasetOutcome.COMMITTED,
        low=LongWatermark(40),
        expected_high=LongWatermark(50),
        actual_high=LongWatermark(10),
        rows_read=10,
        rows_by_branch={"main": 10},
        files=1,
        bytes_written=29,
        snapshot=2,
        sequence_id=UNDER_STARTPOINT,
        notes=REPORTS[UNDER_STARTPOINT].notes,
        startpoint=REPORTS[UNDER_STARTPOINT].startpoint,
    )


def test_sequence_that_an_older_program_left_is_finished(store: StateStore) -> None:
    world = World()
    world.store = store
    world.stage(UNFINISHED, 4, "main", 60, 65)
    (stored,) = store.load_sequences(JOB)
    recovery = world.committer().recover(stored, world.epoch(runner="run-4"))
    assert recovery.outcome is SequenceState.COMMITTED
    assert store.load_dataset_states(JOB)["a"].watermark == LongWatermark(65)
    assert world.visible() == [f"main/{UNFINISHED}-4.txt"]
    assert _told(store) == [*HISTORY, (4, "60", "65", "run", "run-1", "", 5)]


def test_older_export_is_imported(tmp_path: Path) -> None:
    exported = read_export((DATA / "state_export_v1.jsonl").read_text().splitlines())
    with closing(open_store("files:state", tmp_path, Clock(NOW))) as store:
        run_import(store, plan_import(store, exported))
        assert _told(store) == HISTORY
        assert sorted(store.load_runs(), key=lambda run: run.run_id) == RUNS
        assert store.load_dataset_states(JOB)["a"] == _sequence(store, BY_PERSON).after
