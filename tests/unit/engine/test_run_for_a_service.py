"""What a service needs of the engine: one open store for all, run ids of its own, several listeners of one run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from gobblin_dagster.core.commit import CommitSequence, CommitStep
from gobblin_dagster.core.errors import StorageError, UsageError
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.core.task_state import TaskState
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.commit.listener import CrashListener
from gobblin_dagster.engine.listener import RunListener
from gobblin_dagster.engine.maintenance.clean import clean
from gobblin_dagster.engine.maintenance.compact import compact
from gobblin_dagster.engine.maintenance.replay import replay_quarantine
from gobblin_dagster.engine.maintenance.rollback import rollback
from gobblin_dagster.engine.new_data import look
from gobblin_dagster.engine.plan.model import JobPlan
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.results import DatasetResult, RecoveredDataset, RunResult
from gobblin_dagster.engine.run.job_run import plan_job, run_job
from gobblin_dagster.engine.snapshots.reader import load_published
from gobblin_dagster.engine.task.runner import TaskPlace
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.state import StateStore
from gobblin_dagster.testing.inline_runner import InlineRunner

from .jobs import job_spec, project, published

JOB = job_spec({"a": {"rows": 5}, "b": {"rows": 3}})


@dataclass(frozen=True, slots=True)
class Sealed(Project):
    """A project that opens no store: what runs in it uses the one that it was given."""

    def open_store(self) -> StateStore:
        raise AssertionError("a store of its own was opened")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with closing(project(tmp_path, JOB).open_store()) as opened:
        yield opened


def run_as(root: Path, run_id: str, job: JobSpec = JOB) -> RunResult:
    return run_job(project(root, job), job, runner=InlineRunner(), run_id=run_id)


# -- one store ---------------------------------------------------------------------------------------------------------
ENTRY_POINTS: dict[str, Callable[[Project, StateStore], object]] = {
    "plan": lambda p, store: plan_job(p, JOB, store=store),
    "run": lambda p, store: run_job(p, JOB, runner=InlineRunner(), store=store),
    "look": lambda p, store: look(p, JOB, store=store),
    "load": lambda p, store: load_published(p, JOB, "a", store=store),
    "rollback": lambda p, store: rollback(p, JOB, "a", 1, store=store),
    "compact": lambda p, store: compact(p, JOB, store=store),
    "replay": lambda p, store: replay_quarantine(p, JOB, "a", store=store),
    "clean": lambda p, store: clean(p, JOB, store=store),
}


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_open_store_is_used_and_stays_open(tmp_path: Path, store: StateStore, name: str) -> None:
    run_job(project(tmp_path, JOB), JOB, runner=InlineRunner())
    run_job(project(tmp_path, JOB), grown := job_spec({"a": {"rows": 8}, "b": {"rows": 3}}), runner=InlineRunner())
    ENTRY_POINTS[name](Sealed(tmp_path, ProjectSpec(project="tests"), (grown,)), store)
    assert set(store.load_dataset_states("numbers")) == {"a", "b"}


# -- ids of runs -------------------------------------------------------------------------------------------------------
def test_run_bears_the_id_that_it_was_given(tmp_path: Path, store: StateStore) -> None:
    assert run_as(tmp_path, "flow-7.load").run_id == "flow-7.load"
    assert [run.run_id for run in store.load_runs("numbers")] == ["flow-7.load"]
    assert {one.run_id for one in store.load_dataset_states("numbers").values()} == {"flow-7.load"}


def test_id_that_ran_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    run_as(tmp_path, "flow-7")
    grown = job_spec({"a": {"rows": 8}, "b": {"rows": 3}})
    with pytest.raises(UsageError, match=r"'numbers' has run as 'flow-7' already: the job's history holds it"):
        run_as(tmp_path, "flow-7", grown)
    assert published(tmp_path, JOB, "a") == list(range(5))
    run_as(tmp_path, "flow-8", grown)
    assert published(tmp_path, JOB, "a") == list(range(8))


def test_id_of_a_run_that_works_is_refused(tmp_path: Path, store: StateStore) -> None:
    store.acquire_leases("numbers", ["a"], LeaseOwner.current("flow-7"), timedelta(seconds=60))
    with pytest.raises(UsageError, match="already: it holds datasets"):
        run_as(tmp_path, "flow-7")


def test_output_that_nobody_can_look_into_is_named(tmp_path: Path) -> None:
    # Root may look into all folders; a name of 300 letters is refused to everybody.
    with pytest.raises(StorageError, match=r"cannot look for staged files in .*/x{300}/_gobblin/staging: .*too long"):
        run_as(tmp_path, "flow-7", job_spec({"a": {"rows": 5}}, output={"path": "x" * 300}))


def test_id_whose_staging_is_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lake/_gobblin/staging/flow-7").mkdir(parents=True)
    with pytest.raises(UsageError, match="already: it left staged files"):
        run_as(tmp_path, "flow-7")


def test_id_of_a_run_whose_sequence_waits_is_refused(tmp_path: Path, store: StateStore) -> None:
    class Stop(CrashListener):
        def prepared(self, sequence: CommitSequence) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(project(tmp_path, JOB), JOB, runner=InlineRunner(), commit_listener=Stop(1), run_id="flow-7")
    assert store.load_sequences("numbers")
    with pytest.raises(UsageError, match="already: the job's history holds it"):
        run_as(tmp_path, "flow-7")
    store.prune_runs("numbers", 0)  # the sequence outlives the record
    with pytest.raises(UsageError, match="already: it holds datasets"):
        run_as(tmp_path, "flow-7")
    other = LeaseOwner.current("another")
    taken = store.acquire_leases("numbers", list(store.load_leases("numbers")), other, timedelta(seconds=60)).granted
    store.release_leases("numbers", list(taken.values()))
    with pytest.raises(UsageError, match="already: it left a commit sequence"):
        run_as(tmp_path, "flow-7")


def test_id_that_is_no_name_of_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot name a run"):
        run_as(tmp_path, "../flow")
    with pytest.raises(UsageError, match="cannot name a run"):
        run_as(tmp_path, "")


# -- listeners ---------------------------------------------------------------------------------------------------------
class Hears(RunListener):
    """Notes which events it hears."""

    def __init__(self) -> None:
        self.events: set[str] = set()

    def begun(self, run_id: str, started_at: datetime) -> None:
        self.events.add("begun")

    def recovered(self, dataset: RecoveredDataset) -> None:
        self.events.add("recovered")

    def planned(self, plan: JobPlan) -> None:
        self.events.add("planned")

    def spark_starting(self) -> None:
        self.events.add("spark_starting")

    def processes_starting(self) -> None:
        self.events.add("processes_starting")

    def task_done(self, state: TaskState, done: int, total: int) -> None:
        self.events.add("task_done")

    def extracted(self) -> None:
        self.events.add("extracted")

    def step_done(self, sequence: CommitSequence, step: CommitStep, number: int) -> None:
        self.events.add("step_done")

    def dataset_done(self, result: DatasetResult) -> None:
        self.events.add("dataset_done")

    def finished(self, result: RunResult) -> None:
        self.events.add("finished")


class WithoutSpark(InlineRunner):
    """A runner that says that it needs no Spark."""

    def place(self, job: JobSpec, units: Iterable[WorkUnit]) -> TaskPlace:
        return TaskPlace(False, "little is to be read")


class Broken(Hears):
    """Raises at every event of a work unit and of a commit."""

    def task_done(self, state: TaskState, done: int, total: int) -> None:
        raise RuntimeError("no route to the dashboard")

    def step_done(self, sequence: CommitSequence, step: CommitStep, number: int) -> None:
        raise RuntimeError("no route to the dashboard")


def test_every_listener_hears_every_event(tmp_path: Path) -> None:
    def die(self: object, sequence: CommitSequence) -> None:
        raise KeyboardInterrupt

    first, second = Hears(), Hears()
    dying = type("Dying", (CrashListener,), {"prepared": die})(1)
    with pytest.raises(KeyboardInterrupt):
        run_job(project(tmp_path, JOB), JOB, runner=InlineRunner(), commit_listener=dying)
    grown = job_spec({"a": {"rows": 8}, "b": {"rows": 5}})
    run_job(project(tmp_path, grown), grown, runner=InlineRunner(), listeners=[first, second])
    more = job_spec({"a": {"rows": 9}, "b": {"rows": 5}})
    run_job(project(tmp_path, more), more, runner=WithoutSpark(), listeners=[first, second])
    names = {name for name in vars(RunListener) if not name.startswith("_")}
    assert first.events == second.events == names


def test_listener_that_raises_harms_neither_the_run_nor_the_others_and_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken, healthy = Broken(), Hears()
    with caplog.at_level(logging.ERROR):
        result = run_job(project(tmp_path, JOB), JOB, runner=InlineRunner(), listeners=[broken, healthy])
    assert result.status is RunStatus.SUCCEEDED
    assert published(tmp_path, JOB, "a") == list(range(5))
    assert {"task_done", "step_done", "finished"} <= healthy.events
    assert "finished" in broken.events, "it is still called: a network may be back"
    [record] = [record for record in caplog.records if "Listener" in record.getMessage()]
    assert f"{__name__}.Broken" in record.getMessage()
    assert "no route to the dashboard" in caplog.text
