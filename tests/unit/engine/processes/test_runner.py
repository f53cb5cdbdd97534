"""Jobs on processes of this machine: real processes, which all tests here share, and no Spark."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from gobblin_dagster.constructs.sql.limits import Limits
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.core.task_state import TaskState, WorkingState
from gobblin_dagster.core.utils.import_target import find_modules_in
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.listener import RunListener
from gobblin_dagster.engine.processes import runner as runner_module
from gobblin_dagster.engine.processes.runner import TRIES, ProcessRunner, _ForkServer, _Job, _Worker
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.results import RunResult
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.engine.task.context import RunContext, TaskInput
from gobblin_dagster.spec.job import JobSpec
from tests.unit.engine.jobs import by_urn, job_spec, project, published


@pytest.fixture(scope="module")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("processes") / ".gobblin" / "spark.log"


@pytest.fixture(scope="module")
def runner(log_file: Path) -> Iterator[ProcessRunner]:
    with closing(ProcessRunner(2, log_file)) as runner:
        runner.start_early()
        yield runner


def _run(root: Path, job: JobSpec, runner: ProcessRunner, **more: Any) -> RunResult:
    return run_job(project(root, job), job, runner=runner, **more)


def _children_of_this_process(part: str) -> set[int]:
    """Return the ids of the children with `part` in their command lines."""
    children = Path("/proc").glob(f"{os.getpid()}/task/*/children")
    pids = [pid for path in children for pid in path.read_text().split()]
    return {int(pid) for pid in pids if part in Path(f"/proc/{pid}/cmdline").read_text()}


def _is_running(process: Path) -> bool:
    try:
        return bool((process / "cmdline").read_bytes())  # one that nobody has waited for has none
    except OSError:
        return False


class Watch(RunListener):
    """Notes each work unit that ends."""

    def __init__(self) -> None:
        self.units: list[tuple[str, WorkingState]] = []

    def task_done(self, state: TaskState, done: int, total: int) -> None:
        self.units.append((state.dataset_urn, state.state))


def test_many_datasets_are_published_whole_and_each_unit_is_told_once(tmp_path: Path, runner: ProcessRunner) -> None:
    job = job_spec({f"d{i:03}": {"rows": i} for i in range(1, 60)})
    watch = Watch()
    assert _run(tmp_path, job, runner, listeners=[watch]).status is RunStatus.SUCCEEDED
    assert sorted(watch.units) == [(f"d{i:03}", WorkingState.SUCCESSFUL) for i in range(1, 60)]
    assert all(published(tmp_path, job, f"d{i:03}") == list(range(i)) for i in (1, 30, 59))


def test_unit_that_kills_its_process_fails_alone_also_in_a_group(
    tmp_path: Path, runner: ProcessRunner, log_file: Path
) -> None:
    job = job_spec(
        {"a": {"rows": 200, "unit_rows": 10}, "poison": {"rows": 200, "unit_rows": 10, "kill_at": 155}},
        commit={"policy": "successful"},
        execution={"packs": 1},
    )
    result = by_urn(_run(tmp_path, job, runner))
    assert published(tmp_path, job, "a") == list(range(200))
    assert published(tmp_path, job, "poison") == [n for n in range(200) if not 150 <= n < 160]
    (failure,) = result["poison"].failures
    assert (failure.code, "exit code 9" in failure.message) == ("worker-died", True)
    assert log_file.read_text().count("told to die") == 2, "once in the group, once alone"


_ENDS_ITSELF = """
import os, pathlib, subprocess

def datasets():
    return dict.fromkeys(("ends", "good", "leaves", "prints"), 2)

def read(unit):
    alone = pathlib.Path(__file__).with_name(unit.dataset)
    if unit.dataset == "ends" or (unit.dataset != "good" and not alone.exists()):
        alone.touch()
        os._exit(0)
    if unit.dataset == "leaves":
        left = subprocess.Popen(["sleep", "30"], stdin=subprocess.DEVNULL, start_new_session=True)
        alone.write_text(str(left.pid))
    if unit.dataset == "prints":
        os.write(1, b"not a result")
    yield from ({"id": n, "value": "x"} for n in range(unit.low, unit.high))
"""


def test_unit_that_ends_its_process_with_0_fails_alone_and_those_that_print_or_leave_a_process_are_read(
    tmp_path: Path, runner: ProcessRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ends_itself.py").write_text(_ENDS_ITSELF)
    source = {"type": "python", "read": "ends_itself:read", "datasets": "ends_itself:datasets"}
    columns = {"columns": {"id": "int64", "value": "string"}}
    job = job_spec({}, source=source | columns, execution={"packs": 1})
    result = by_urn(_run(tmp_path, job, runner))
    os.kill(int((tmp_path / "leaves").read_text()), signal.SIGKILL)  # fails if the run has waited for its end
    (failure,) = result["ends"].failures
    assert (failure.code, "exit code 0" in failure.message) == ("worker-died", True)
    assert [urn for urn, dataset in result.items() if not dataset.failures] == ["good", "leaves", "prints"]


def test_hashes_of_texts_are_the_same_in_each_run_and_a_module_named_as_one_of_python_is_no_obstacle(
    tmp_path: Path, runner: ProcessRunner, log_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hashes.py").write_text("def read(unit):\n    yield {'id': hash('a text'), 'value': ''}\n")
    (tmp_path / "queue.py").touch()
    monkeypatch.setattr(sys, "path", [*sys.path])
    find_modules_in(tmp_path)
    monkeypatch.chdir(tmp_path)
    found = []
    with closing(ProcessRunner(1, log_file)) as another:
        for number, one in enumerate((runner, another)):
            source = {"type": "python", "read": "hashes:read"}
            job = job_spec({}, job=f"job{number}", source=source, output={"path": f"lake{number}"})
            assert _run(tmp_path, job, one).exit_code == 0
            found += published(tmp_path, job, "test.numbers")
    assert found[0] == found[1]


def test_variable_that_is_set_between_two_runs_is_seen_by_the_second_one(
    tmp_path: Path, runner: ProcessRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "says.py").write_text(
        "import os\ndef read(unit):\n    yield {'id': int(os.environ['NUMBER_OF_TEST']), 'value': ''}\n"
    )
    for number in (1, 2):
        monkeypatch.setenv("NUMBER_OF_TEST", str(number))
        source = {"type": "python", "read": "says:read"}
        job = job_spec({}, job=f"job{number}", source=source, output={"path": f"lake{number}"})
        assert _run(tmp_path, job, runner).exit_code == 0
        assert published(tmp_path, job, "test.numbers") == [number]


def test_stop_cancels_units_that_wait_and_those_that_have_not_begun(tmp_path: Path, runner: ProcessRunner) -> None:
    slow = {f"d{i}": {"rows": 1000} for i in range(4)}
    job = job_spec(slow, execution={"packs": 2, "limit": {"rows_per_second": 0.5}})
    stop = threading.Event()

    def stop_when_both_run() -> None:
        while len(list(tmp_path.glob("lake/**/_tasks/*.started"))) < 2:
            time.sleep(0.01)
        stop.set()

    threading.Thread(target=stop_when_both_run).start()
    watch = Watch()
    assert _run(tmp_path, job, runner, listeners=[watch], stop=stop).exit_code == 130
    assert sorted(watch.units) == [(urn, WorkingState.CANCELLED) for urn in slow]


def test_run_that_is_to_stop_does_not_wait_for_another_one_that_has_all_processes(
    tmp_path: Path, runner: ProcessRunner
) -> None:
    slow = job_spec(
        {f"d{i}": {"rows": 1000} for i in range(2)}, execution={"packs": 2, "limit": {"rows_per_second": 0.5}}
    )
    stop = threading.Event()
    other = threading.Thread(target=lambda: _run(tmp_path / "slow", slow, runner, stop=stop))
    other.start()
    while len(list(tmp_path.glob("slow/lake/**/_tasks/*.started"))) < 2:
        time.sleep(0.01)
    waiting = threading.Event()
    threading.Timer(0.2, waiting.set).start()
    try:
        assert _run(tmp_path / "quick", job_spec({"a": {"rows": 1}}), runner, stop=waiting).exit_code == 130
        assert other.is_alive()
    finally:
        stop.set()
        other.join()


_WAITS = """
import pathlib, time

HERE = pathlib.Path(__file__).parent

def datasets():
    return dict.fromkeys("abcdef", 1)

def read(unit):
    HERE.joinpath("begun").touch()
    while not HERE.joinpath("go").exists():
        time.sleep(0.01)
    yield {"id": unit.low, "value": "x"}
"""


def test_job_of_many_packs_keeps_a_small_one_waiting_for_one_of_them_only(
    tmp_path: Path, log_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "waits.py").write_text(_WAITS)
    source = {"type": "python", "read": "waits:read", "datasets": "waits:datasets"}
    columns = {"columns": {"id": "int64", "value": "string"}}
    large = job_spec({}, job="large", source=source | columns, execution={"packs": 6})
    small = job_spec({"small": {"rows": 1}})
    watch = Watch()
    with closing(ProcessRunner(1, log_file)) as runner:
        threads = [threading.Thread(target=lambda: _run(tmp_path / "large", large, runner, listeners=[watch]))]
        threads[0].start()
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        threads.append(threading.Thread(target=lambda: _run(tmp_path / "small", small, runner, listeners=[watch])))
        threads[1].start()
        while not runner._slots.waiting:
            time.sleep(0.01)
        (tmp_path / "go").touch()
        for thread in threads:
            thread.join()
    assert [urn for urn, _ in watch.units].index("small") <= 2
    assert len(watch.units) == 7


def test_run_goes_on_with_a_new_server_after_the_old_one_was_killed(tmp_path: Path, runner: ProcessRunner) -> None:
    job = job_spec({"a": {"rows": 3}})
    assert _run(tmp_path, job, runner).exit_code == 0
    (server,) = _children_of_this_process("fork_server")
    os.kill(server, signal.SIGKILL)
    longer = job_spec({"a": {"rows": 5}})
    assert _run(tmp_path, longer, runner).exit_code == 0
    assert published(tmp_path, longer, "a") == list(range(5))


def test_processes_that_died_while_they_waited_for_work_cost_the_next_run_no_try(
    tmp_path: Path, log_file: Path
) -> None:
    others = _children_of_this_process("fork_server")
    with closing(ProcessRunner(TRIES, log_file)) as runner:
        many = job_spec({f"d{i}": {"rows": 200} for i in range(TRIES)}, execution={"packs": TRIES})
        assert _run(tmp_path / "many", many, runner).exit_code == 0
        (server,) = _children_of_this_process("fork_server") - others
        idle = [Path("/proc") / pid for pid in Path(f"/proc/{server}/task/{server}/children").read_text().split()]
        os.kill(server, signal.SIGKILL)
        while any(_is_running(process) for process in idle):
            time.sleep(0.01)
        one = job_spec({"a": {"rows": 3}})
        assert _run(tmp_path / "one", one, runner).exit_code == 0
        assert published(tmp_path / "one", one, "a") == [0, 1, 2]


class _SlowToStop(_Worker):
    """A worker's socket whose `stop` begins before the worker has left its job, and ends later if it can."""

    begun = threading.Event()
    left = threading.Event()

    def stop(self) -> None:
        self.begun.set()
        self.left.wait(0.2)
        super().stop()


def test_order_to_stop_never_reaches_the_next_job_of_a_process(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    job = job_spec({"a": {"rows": 2}})
    stop = threading.Event()
    stop.set()
    stopped = _Job(_context(project(tmp_path, job), job), "{}", stop, iter([]))
    worker = _SlowToStop(ours)
    with closing(theirs), closing(ours):
        told = threading.Thread(target=lambda: list(stopped.new_states(1)))
        with stopped.using(worker):
            told.start()
            worker.begun.wait()
        ours.sendall(b"next pack\n")
        worker.left.set()
        stopped.tell(None)
        told.join()
        assert theirs.recv(100) == b"stop\nnext pack\n"


def _packs(*urns: str) -> list[list[TaskInput]]:
    units = [WorkUnit(f"{urn}-0", urn, LongWatermark(0), LongWatermark(2), rows=2) for urn in urns]
    return [[TaskInput(unit, "c1")] for unit in units]


def _context(opened: Project, job: JobSpec) -> RunContext:
    return opened.run_context(job, "r1")


def test_pack_that_cannot_be_run_fails_with_the_reason_after_four_tries(tmp_path: Path, runner: ProcessRunner) -> None:
    job = job_spec({"a": {"rows": 2}})
    broken = replace(_context(project(tmp_path, job), job), job_json=json.dumps({"job": "numbers"}))
    (state,) = runner.run(broken, _packs("a"), lambda _: None, threading.Event())
    assert state.state is WorkingState.FAILED
    (failure,) = state.failures
    assert (failure.code, failure.transient) == ("task-lost", True)
    assert "tried 4 times" in failure.message
    assert "Field required" in failure.message


def test_error_of_a_listener_ends_the_run_and_the_next_one_has_its_processes(
    tmp_path: Path, runner: ProcessRunner
) -> None:
    job = job_spec({"a": {"rows": 2}, "b": {"rows": 2}})

    def refuse(state: TaskState) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run(_context(project(tmp_path / "1", job), job), _packs("a", "b"), refuse, threading.Event())
    told: list[str] = []
    context = _context(project(tmp_path / "2", job), job)
    states = runner.run(context, _packs("b", "a"), lambda state: told.append(state.dataset_urn), threading.Event())
    assert [state.dataset_urn for state in states] == ["b", "a"], "in the order given"
    assert sorted(told) == ["a", "b"]


def test_workers_do_not_get_the_limit_of_an_expression_that_runs_as_they_start(monkeypatch: pytest.MonkeyPatch) -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    monkeypatch.setattr(runner_module, "python_for_module", lambda _: ["sleep"])
    limits = Limits(duckdb.connect(":memory:"))
    limits.end()
    with limits:
        server = _ForkServer(None)
        assert resource.getrlimit(resource.RLIMIT_AS) != before
        assert resource.prlimit(server._process.pid, resource.RLIMIT_AS) == before
    server._process.kill()
    server.end()
