"""The embedded executor: jobs run in a worker process, which may die; what they publish is there once."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.service.model import ExecutionId, ExecutionStatus, FlowConfig, FlowId, Schedule
from gobblin_dagster.service.server import CoreServices
from gobblin_dagster.service.store.execution_rows import Execution, load_execution
from gobblin_dagster.service.store.job_rows import JobExecution, load_jobs
from gobblin_dagster.spec.load import load_project
from gobblin_dagster.spec.project import ServiceSpec
from gobblin_dagster.state import open_store

TEMPLATE = """
template: rows
parameters:
  rows: {type: integer}
job:
  source:
    type: gobblin_dagster.testing.rows_source:RowsSource
    datasets: {a: {rows: "${rows}"}, b: {rows: "${rows}"}}
  extract: {namespace: test, table: rows}
  output: {path: lake}
"""
FLOW = FlowId("g", "n")
S = ExecutionStatus


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "gobblin.yaml").write_text("project: tests\nservice: {jobs_at_once: 2}\n")
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "rows.template").write_text(TEMPLATE)
    return tmp_path


def serve(root: Path) -> CoreServices:
    command = [sys.executable, "-m", "tests.services.inline_worker", str(root)]
    core = CoreServices(root, ServiceSpec(port=0), command)
    core.start()
    return core


@pytest.fixture
def core(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CoreServices]:
    # The worker's working folder is the project's; it must find this package of tests.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[4]))
    served = serve(root)
    yield served
    served.stop(at_once=True)


def create(core: CoreServices, name: str = "n", rows: str = "5", cron: str | None = None) -> ExecutionId:
    schedule = None if cron is None else Schedule(cron)
    config = FlowConfig(FlowId("g", name), "FS:///rows.template", {"rows": rows}, schedule)
    with core.store.write() as transaction:
        number = core.manager.create(transaction, config, "tester").execution
        if cron is not None:
            number = core.manager.run_now(transaction, config.id)
    return ExecutionId(config.id, number)


def ended(core: CoreServices, execution: ExecutionId, timeout_s: float = 60) -> tuple[Execution, JobExecution]:
    """Wait until an execution is over, and return it with its first job."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with core.store.read() as transaction:
            found = load_execution(transaction, execution)
            jobs = load_jobs(transaction, execution)
        if found is not None and found.is_over:
            return found, jobs[0]
        time.sleep(0.05)
    raise AssertionError(f"{execution} is not over after {timeout_s} s: {found}")


def test_flow_runs_and_tells_rows_and_watermarks(core: CoreServices, root: Path) -> None:
    execution, job = ended(core, create(core))
    assert (execution.status, execution.message) == (S.COMPLETE, "10 rows in 1 job")
    assert (job.job.name, job.message, job.processed_count) == ("g__n__rows", "2 committed", 10)
    assert job.high_watermark == "a: 5; b: 5"
    assert job.run_id


def test_two_flows_of_one_template_share_no_watermark(core: CoreServices) -> None:
    first, second = create(core, "one"), create(core, "two")
    assert {ended(core, one)[0].message for one in (first, second)} == {"10 rows in 1 job"}


def test_job_with_a_fault_fails_with_its_message(core: CoreServices, root: Path) -> None:
    (root / "lake").write_text("a file where the folder should be")
    execution, _ = ended(core, create(core))
    assert execution.status is S.FAILED
    assert "lake" in execution.message


def test_worker_that_is_killed_is_started_again_and_its_job_ends_once(core: CoreServices, root: Path) -> None:
    (root / "die").touch()
    execution = create(core)
    deadline = time.monotonic() + 60
    while core.executor.restarts == 0:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (root / "die").unlink()
    done, job = ended(core, execution)
    assert (done.status, job.processed_count) == (S.COMPLETE, 10)


def test_job_that_always_kills_its_worker_is_given_up(core: CoreServices, root: Path) -> None:
    (root / "die").touch()
    done, _ = ended(core, create(core))
    assert done.status is S.FAILED
    assert "the worker ended 3 times while the job ran" in done.message


def test_service_that_is_killed_takes_its_jobs_up_again(
    core: CoreServices, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "die").touch()  # so that no worker gets to the end
    execution = create(core)
    while core.executor.restarts == 0:
        time.sleep(0.01)
    core.stop(at_once=True)
    (root / "die").unlink()
    second = serve(root)
    try:
        done, job = ended(second, execution)
    finally:
        second.stop(at_once=True)
    assert (done.status, job.processed_count) == (S.COMPLETE, 10), (done.message, job.message)


def test_kill_before_the_start_ends_the_execution(core: CoreServices) -> None:
    execution = create(core, cron="0 0 * ? * *")
    core.orchestrator.kill(execution)
    deadline = time.monotonic() + 60
    while not (found := load(core, execution)).is_over:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    # Whether the job had begun is up to chance; either way it comes to one end.
    assert found.status in (S.CANCELLED, S.COMPLETE)


def load(core: CoreServices, execution: ExecutionId) -> Execution:
    with core.store.read() as transaction:
        found = load_execution(transaction, execution)
    assert found is not None
    return found


def test_graceful_end_commits_what_is_whole(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[4]))
    first = serve(root)
    execution = create(first)
    ended(first, execution)
    first.stop()
    store = open_store(load_project(root).state, root, SystemClock())
    assert str(store.load_dataset_states("g__n__rows")["a"].watermark) == "5"
    store.close()
