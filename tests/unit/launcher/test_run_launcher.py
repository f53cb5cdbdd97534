"""Runs of a Dagster instance whose launcher is ours: one worker process, which is terminated, busy and killed."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dagster._core.code_pointer import FileCodePointer
from dagster._core.launcher.base import WorkerStatus
from dagster._core.origin import JobPythonOrigin, RepositoryPythonOrigin
from dagster._core.remote_origin import ManagedGrpcPythonEnvCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._daemon.monitoring.run_monitoring import monitor_started_run

from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.engine.project import open_project
from gobblin_dagster.launcher.run_launcher import PLACE_TAG, GobblinWarmRunLauncher
from gobblin_dagster.orchestration import build_definitions
from gobblin_dagster.testing.inline_runner import InlineRunner
from gobblin_dagster.warm.address import DAGSTER, WarmAddress
from gobblin_dagster.warm.client import ask_at

DEFINITIONS = """
import time
from pathlib import Path
from gobblin_dagster.orchestration import build_definitions
from gobblin_dagster.testing.inline_runner import InlineRunner

ROOT = Path(__file__).parent

class HeldRunner(InlineRunner):
    def run(self, *given):
        states = super().run(*given)
        if (ROOT / "hold").exists():
            (ROOT / "held").touch()
        while (ROOT / "hold").exists():
            time.sleep(0.01)
        return states

defs = build_definitions(ROOT, runner=HeldRunner())
"""
JOB = """\
job: numbers
source: {type: files, path: "in/{dataset}/*.csv", format: csv}
extract: {namespace: test, table: numbers}
output: {path: lake}
"""


@dataclass
class Pages:
    """What Dagster's pages do with one project, whose code location is a file."""

    root: Path
    instance: dg.DagsterInstance

    @property
    def definitions(self) -> dg.Definitions:
        return build_definitions(self.root, runner=InlineRunner())

    def add(self, first: int) -> None:
        """Add a file of three rows."""
        (self.root / "in" / "a" / f"{first}.csv").write_text("id\n" + "".join(f"{first + n}\n" for n in range(3)))

    def make(self, job: dg.JobDefinition | None = None, python: str = sys.executable, location: str = "shop") -> str:
        """Make a run, as the button does, and return its id."""
        job = job or self.definitions.resolve_job_def("numbers_job")
        file = str(self.root / "definitions.py")
        code = RepositoryPythonOrigin(python, FileCodePointer(file, "defs", str(self.root)), None, None, None)
        origin = ManagedGrpcPythonEnvCodeLocationOrigin(LoadableTargetOrigin(python_file=file), location)
        run = self.instance.create_run_for_job(
            job,
            remote_job_origin=RemoteJobOrigin(RemoteRepositoryOrigin(origin, "__repository__"), job.name),
            job_code_origin=JobPythonOrigin(job.name, code),
        )
        return run.run_id

    def launch(self, run_id: str) -> str:
        self.instance.launch_run(run_id, None)  # type: ignore[arg-type]  # only runs that start cold need a workspace
        return run_id

    def run(self, run_id: str) -> dg.DagsterRun:
        found = self.instance.get_run_by_id(run_id)
        assert found is not None
        return found

    def status(self, run_id: str) -> str:
        return self.run(run_id).status.value

    def ended(self, run_id: str) -> str:
        until(lambda: self.run(run_id).is_finished and self.pid_of(run_id) is None)
        return self.status(run_id)

    def held(self) -> str:
        """Launch a run that stops before it commits, and return its id."""
        (self.root / "hold").touch()
        run_id = self.launch(self.make())
        until((self.root / "held").exists)
        (self.root / "held").unlink()
        return run_id

    def pid_of(self, run_id: str) -> int | None:
        """Return the worker that has a run; None if none has it."""
        answer = ask_at(WarmAddress.of(self.root, DAGSTER), "status")
        return int(answer["pid"]) if answer and run_id in (answer["runs_now"] or ()) else None

    def said(self, run_id: str) -> str:
        return "\n".join(record.message or record.user_message for record in self.instance.all_logs(run_id))


def until(is_so: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 180
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """Yield an instance with our launcher, whose worker is ended afterwards."""
    folder = tmp_path_factory.mktemp("launcher")
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(dir="/tmp") as sockets:
        patch.setenv("XDG_RUNTIME_DIR", sockets)
        root = folder / "project"
        for name in ("jobs", "in/a"):
            (root / name).mkdir(parents=True)
        (root / "gobblin.yaml").write_text("project: shop\nstate: sqlite:///state.db\n")
        (root / "jobs" / "numbers.yaml").write_text(JOB)
        (root / "definitions.py").write_text(DEFINITIONS)
        patch.chdir(root)
        launcher = {
            "module": "gobblin_dagster.launcher",
            "class": "GobblinWarmRunLauncher",
            "config": {"projects": {"shop": str(root)}},
        }
        with dg.instance_for_test({"run_launcher": launcher}, temp_dir=str(folder)) as instance:
            yield Pages(root, instance)
        ask_at(WarmAddress.of(root, DAGSTER), "stop", at_once=True)


def test_runs_share_a_worker_and_a_killed_one_loses_and_doubles_no_row(pages: Pages) -> None:
    launcher, root = pages.instance.run_launcher, pages.root
    assert isinstance(launcher, GobblinWarmRunLauncher)
    pages.add(0)
    first = pages.held()
    pid = pages.pid_of(first)
    assert pid is not None
    assert f"(pid: {pid})" in pages.said(first)
    mode = WarmAddress.of(root, DAGSTER).path.stat().st_mode & 0o777
    assert mode == 0o600
    assert launcher.check_run_worker_health(pages.run(first)).status is WorkerStatus.RUNNING

    # A second run does not wait: Dagster's own launcher has it.
    with pytest.raises(Exception, match="requires a workspace"):
        pages.launch(second := pages.make())
    assert "not in the warm worker: another command runs." in pages.said(second)
    assert not launcher.terminate(second)

    (root / "hold").unlink()
    assert pages.ended(first) == "SUCCESS"
    assert launcher.check_run_worker_health(pages.run(first)).status is WorkerStatus.NOT_FOUND
    assert not launcher.terminate(first)

    # Terminated: the record of the run says so, as that of any interrupted run, and the worker ends with it.
    pages.add(10)
    stopped = pages.held()
    assert pages.pid_of(stopped) == pid
    assert launcher.terminate(stopped)
    assert pages.ended(stopped) == "CANCELED"
    project = open_project(root)
    with closing(project.open_store()) as store:
        [ended] = [record.status for record in store.find_runs("numbers", [stopped])]
    assert ended is RunStatus.INTERRUPTED

    # Killed: Dagster's run monitoring finds it, and the next run publishes each row once.
    killed = pages.held()
    second_pid = pages.pid_of(killed)
    assert second_pid not in (None, pid)
    os.kill(int(second_pid or 0), signal.SIGKILL)
    until(lambda: launcher.check_run_worker_health(pages.run(killed)).status is WorkerStatus.NOT_FOUND)
    [record] = pages.instance.get_run_records(dg.RunsFilter(run_ids=[killed]))
    monitor_started_run(pages.instance, None, record, logging.getLogger())  # type: ignore[arg-type]  # asked nothing
    assert pages.status(killed) == "FAILURE"
    assert "The worker that had the run is gone." in pages.said(killed)
    job = pages.definitions.resolve_job_def("numbers_job")
    assert job.execute_in_process(instance=pages.instance).success
    tables = [pq.read_table(file) for file in (root / "lake/test/numbers/main/a").glob("*.parquet")]
    assert sorted(pa.concat_tables(tables)["id"].to_pylist()) == [0, 1, 2, 10, 11, 12]


def test_other_runs_start_as_always(pages: Pages) -> None:
    @dg.job
    def other() -> None:
        dg.op(name="nothing")(lambda: None)()

    for run_id in (pages.make(other), pages.make(location="elsewhere")):
        with pytest.raises(Exception, match="requires a workspace"):
            pages.launch(run_id)
        assert PLACE_TAG not in pages.run(run_id).tags
    with pytest.raises(Exception, match="requires a workspace"):
        pages.launch(foreign := pages.make(python="/usr/bin/another"))
    assert "its code location has another Python, /usr/bin/another" in pages.said(foreign)
    launcher = pages.instance.run_launcher
    assert launcher.check_run_worker_health(pages.run(foreign)).status is WorkerStatus.RUNNING


def test_worker_on_another_machine_is_not_taken_for_dead(pages: Pages) -> None:
    run_id = pages.make()
    pages.instance.add_run_tags(run_id, {PLACE_TAG: '{"host": "elsewhere", "socket": "/nowhere/x.sock"}'})
    launcher = pages.instance.run_launcher
    health = launcher.check_run_worker_health(pages.run(run_id))
    assert health.status is WorkerStatus.RUNNING
    assert f"it is on elsewhere, this process on {socket.gethostname()}" in str(health.msg)
    assert not launcher.terminate(run_id)
    assert pages.status(run_id) == "CANCELING"


def test_run_whose_worker_is_gone_is_ended_by_the_button(pages: Pages) -> None:
    run_id = pages.make()
    pages.instance.add_run_tags(
        run_id, {PLACE_TAG: f'{{"host": "{socket.gethostname()}", "socket": "/nowhere/x.sock"}}'}
    )
    assert not pages.instance.run_launcher.terminate(run_id)
    assert pages.status(run_id) == "CANCELED"


def test_wrong_time_is_refused() -> None:
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="`keep_warm` is 'soon'; expected a number and a unit"):
        GobblinWarmRunLauncher(keep_warm="soon")
