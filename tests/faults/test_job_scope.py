"""`commit.scope: job` on real jobs: whatever strikes a run, at rest all of its datasets are published or none is."""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gobblin_dagster.core.commit import CommitSequence, SequenceState
from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.commit.listener import CommitListener, SilentListener
from gobblin_dagster.engine.commit.steps import RenameFileStep
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.results import RecoveredDataset
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.engine.run.recovery import recover_job
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.state import StateStore
from gobblin_dagster.testing.faults import (
    CRASHED,
    Action,
    Fault,
    FaultPoints,
    counted_storage,
    counted_store,
    crash_after,
    crash_before,
    fail_with,
    freeze_while,
    is_look,
    kills,
    lose_answer,
    run_in_child,
)
from gobblin_dagster.testing.inline_runner import InlineRunner
from gobblin_dagster.testing.protocol.scenario import START, SetClock
from tests.unit.engine.jobs import job_spec

URNS = ("a", "b", "c")
OLD, NEW = 10, 30
STORES = {"sqlite": "sqlite:///state.db", "files": "files:state"}
ERRORS: dict[str, Action] = {"EIO": fail_with(errno.EIO), "answer lost": lose_answer}
SEED = 20261121
SAMPLES = 30


@dataclass(frozen=True)
class World(Project):
    """A project whose store and storage pass fault points."""

    points: FaultPoints = field(default_factory=FaultPoints)
    stores: dict[str, StateStore] = field(default_factory=dict)
    """The SQL store that was opened, by its URL."""

    def open_store(self) -> StateStore:
        url = self.spec.state
        # The closed store is used again: it holds no connection, and its compiled statements save most of the time.
        if url.startswith("sqlite") and url not in self.stores:
            self.stores[url] = super().open_store()
        return counted_store(self.stores.get(url) or super().open_store(), self.points)

    def storage(self, job: JobSpec) -> Storage:
        return counted_storage(super().storage(job), self.points)


def job(rows: int) -> JobSpec:
    return job_spec(
        {urn: {"rows": rows} for urn in URNS},
        commit={"scope": "job", "parallelism": 1, "durability": "fast"},
        fork={"branches": [{"name": "all"}]},
    )


class Loser(SilentListener):
    """Deletes what a dataset staged once its sequence is stored, as a wiped scratch disk does."""

    def __init__(self, urn: str) -> None:
        self._urn = urn

    def prepared(self, sequence: CommitSequence) -> None:
        for step in sequence.steps:
            if isinstance(step, RenameFileStep) and sequence.dataset_urn == self._urn:
                Path(step.source).unlink()


@dataclass
class Lake:
    """One project that was run once with a few rows; each schedule begins with a copy of it."""

    root: Path
    state: str
    loses: str = ""
    """Dataset whose staged files vanish in the run under test; empty for none."""
    hour: int = 0
    clock: SetClock = field(default_factory=SetClock)
    stores: dict[str, StateStore] = field(default_factory=dict)
    """See `World`; with one clock for all that share it."""

    def project(self, points: FaultPoints | None = None) -> Project:
        self.clock.instant = START + timedelta(hours=self.hour)
        spec = ProjectSpec(project="tests", state=self.state)
        return World(self.root, spec, (job(NEW),), self.clock, points=points or FaultPoints(), stores=self.stores)

    def run(self, rows: int = NEW, points: FaultPoints | None = None) -> None:
        listener: CommitListener | None = Loser(self.loses) if self.loses and points else None
        run_job(self.project(points), job(rows), runner=InlineRunner(), commit_listener=listener)

    def recover(self, points: FaultPoints | None = None) -> tuple[RecoveredDataset, ...]:
        """Do as `gobblin commit recover`, after all leases have expired."""
        self.hour += 1
        project = self.project(points)
        with closing(project.open_store()) as store:
            return recover_job(JobContext.of(project, job(NEW), store))

    def _ids(self, store: StateStore, urn: str) -> list[int]:
        """Return the ids in the newest snapshot of a dataset, read from its files."""
        files = [file for file in store.load_snapshot("numbers", urn) if file.branch == "all"]
        tables = [pq.ParquetFile(file.path).read(["id"], use_threads=False) for file in files]
        return sorted(value for table in tables for value in table["id"].to_pylist())

    def check_at_rest(self) -> int:
        """Require that all datasets show the same rows, that nothing is unfinished, and return how many rows."""
        with closing(self.project().open_store()) as store:
            found = {urn: self._ids(store, urn) for urn in URNS}
            counts = {len(ids) for ids in found.values()}
            assert len(counts) == 1, f"some are published and some are not: {found}"
            rows = counts.pop()
            assert all(ids == list(range(rows)) for ids in found.values())
            states = store.load_dataset_states("numbers")
            assert {str(state.watermark) for state in states.values()} == {str(rows)}
            ended = {SequenceState.COMMITTED, SequenceState.ABORTED}
            assert not store.load_sequences("numbers", {*SequenceState} - ended)
            named = {file.path for urn in URNS for file in store.load_snapshot("numbers", urn)}
        assert {str(path) for path in self.root.glob("lake/test/**/*.parquet")} == named
        return rows

    def settle(self) -> int:
        """Recover, check, run once more, check; return the rows that recovery had made visible."""
        self.recover()
        rows = self.check_at_rest()
        self.loses = ""
        self.hour += 1
        self.run()
        assert self.check_at_rest() == NEW
        return rows


Maker = Callable[..., Lake]


def on(kind: str) -> pytest.MarkDecorator:
    """Let a test use one kind of store; `make crash-storm` has the other one."""
    others = (pytest.param(other, marks=pytest.mark.storm) for other in STORES if other != kind)
    return pytest.mark.parametrize("fresh", [kind, *others], indirect=True)


@pytest.fixture(params=STORES)
def fresh(request: pytest.FixtureRequest, scratch: Path) -> Maker:
    """Return what makes a lake that holds `OLD` rows of each dataset, always in the same place."""
    state, root, template = STORES[request.param], scratch / "lake", scratch / "template"
    Lake(root, state).run(OLD)
    root.rename(template)
    clock, stores = SetClock(), dict[str, StateStore]()

    def make(loses: str = "") -> Lake:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(template, root)
        return Lake(root, state, loses, clock=clock, stores=stores)

    return make


def trace_of(fresh: Maker, loses: str = "") -> list[str]:
    """Return the calls of a run that nothing disturbs."""
    points = FaultPoints()
    fresh(loses).run(points=points)
    return points.trace


def disturb(lake: Lake, number: int, action: Action) -> None:
    """Let a run meet a fault at a call."""
    with suppress(GobblinDagsterError, OSError):
        lake.run(points=FaultPoints(Fault(number, action)))


def strike(lake: Lake, number: int, action: Action) -> None:
    """Let a run in a process of its own be killed at a call."""
    assert run_in_child(partial(disturb, lake, number, action)) in {0, CRASHED}


def test_run_killed_at_any_call_publishes_all_datasets_or_none(fresh: Maker) -> None:
    seen = []
    for number, kill in kills(trace_of(fresh)):
        lake = fresh()
        strike(lake, number, kill)
        seen.append(lake.settle())
    assert set(seen) == {OLD, NEW}
    assert seen == sorted(seen), "once decided, no later kill undoes it"


@pytest.mark.storm
@pytest.mark.parametrize("fault", ERRORS)
def test_run_that_gets_an_error_at_any_call_publishes_all_datasets_or_none(fresh: Maker, fault: str) -> None:
    seen = set()
    for number, name in enumerate(trace_of(fresh), 1):
        if fault == "answer lost" and is_look(name):
            continue  # as EIO
        lake = fresh()
        disturb(lake, number, ERRORS[fault])
        seen.add(lake.settle())
    assert seen == ({OLD, NEW} if fault == "EIO" else {NEW}), "the run itself goes on where only an answer was lost"


@on("files")
@pytest.mark.parametrize("urn", [URNS[0], pytest.param(URNS[-1], marks=pytest.mark.storm)])
def test_group_of_which_a_staged_file_is_lost_is_undone_wherever_it_is_killed(fresh: Maker, urn: str) -> None:
    for number, _ in kills(trace_of(fresh, urn)):
        lake = fresh(urn)
        # Killed before the next call: the files are lost right after the call that stores the sequence.
        strike(lake, number + 1, crash_before)
        assert lake.settle() == OLD, f"killed after call {number}"


@on("sqlite")
def test_recovery_killed_at_any_call_comes_to_the_same_end(fresh: Maker) -> None:
    rng = random.Random(SEED)  # a schedule, not a secret
    first = list(kills(trace_of(fresh)))
    for _ in range(SAMPLES):
        lake = fresh()
        strike(lake, *rng.choice(first))
        # Which calls a recovery makes depends on where the first run was killed.
        recovery = FaultPoints(Fault(rng.randint(1, len(first)), rng.choice([crash_before, crash_after])))
        assert run_in_child(partial(lake.recover, recovery)) in {0, CRASHED}
        lake.hour += 1
        assert lake.settle() in {OLD, NEW}


@on("files")
def test_run_frozen_at_any_call_while_another_recovers_tears_no_group(fresh: Maker) -> None:
    clock, stores = SetClock(), dict[str, StateStore]()
    for number, _ in kills(trace_of(fresh)):
        lake = fresh()
        other = Lake(lake.root, lake.state, clock=clock, stores=stores)
        disturb(lake, number, freeze_while(other.recover))
        lake.hour = 2
        assert lake.settle() in {OLD, NEW}
