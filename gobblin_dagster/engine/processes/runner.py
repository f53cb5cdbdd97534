"""ProcessRunner: runs packs in Python processes of this machine. It needs no JVM, so a small run ends sooner.

What a work unit does is the same code as in a Spark task, so checkpoints, staged files and retries are the same, too.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from gobblin_dagster.core.errors import EnvironmentFaultError, TaskLostError
from gobblin_dagster.core.failure import describe_failure
from gobblin_dagster.core.memory import address_space
from gobblin_dagster.core.serialization import from_json, to_json
from gobblin_dagster.core.task_state import TaskState, WorkingState
from gobblin_dagster.core.utils.environment import lasting
from gobblin_dagster.core.utils.import_target import python_environment, python_for_module
from gobblin_dagster.engine.processes import fork_server
from gobblin_dagster.engine.processes.slots import FairSlots
from gobblin_dagster.engine.processes.worker import DONE, ERROR, EXIT, STOP, pack_line
from gobblin_dagster.engine.task.checkpoint import TaskCheckpoints
from gobblin_dagster.engine.task.context import RunContext, TaskInput
from gobblin_dagster.engine.task.multi_work_unit import unrun
from gobblin_dagster.storage import open_storage

TRIES = 4
"""Number of times that a pack is tried, as in `local[2,4]`, when its worker dies."""
_POLL_S = 0.1
"""Seconds between two looks at `stop`."""


class ProcessRunner:
    """Runs packs in forked processes, as many at once as there are cores; implements `engine.task.runner.TaskRunner`.

    Several runs may use it at once, from several threads, and have the processes in turn, pack by pack. Processes stay
    for the next run until `close`, or until the environment changes.

    Args:
        cores: number of processes.
        log_file: receives what work units print, and their stack traces; default: it is dropped.
    """

    def __init__(self, cores: int, log_file: Path | None = None) -> None:
        self.cores: int | None = cores
        self._log_file = log_file
        self._slots = FairSlots(cores)
        self._lock = threading.Lock()
        self._server: _ForkServer | None = None
        self._idle: list[_Worker] = []
        self._runs = 0

    def start_early(self) -> None:
        """Begin to start the process that forks the others."""
        with suppress(EnvironmentFaultError):  # `run` says it
            self._fork_server()

    def run(
        self,
        run_context: RunContext,
        packs: Sequence[Sequence[TaskInput]],
        on_result: Callable[[TaskState], None],
        stop: threading.Event,
    ) -> list[TaskState]:
        """Run all packs; return one TaskState per work unit, in the order given.

        If a worker dies, its pack is tried again, which finished units survive; a unit that kills its worker is run
        alone, and fails alone (`multi_work_unit`). After `TRIES` deaths, units without a result fail.

        Raises:
            EnvironmentFaultError: no process can be started.
        """
        with self._in_environment_of_now():
            return self._run_job(_Job(run_context, to_json(run_context), stop, iter(packs)), packs, on_result)

    def close(self) -> None:
        """End all processes, those with work too."""
        with self._lock:
            processes = self._take_processes()
        for process in processes:
            process.end()

    def _take_processes(self) -> list[_Worker | _ForkServer]:
        """Return all processes, so that nobody else begins to use them; under the lock."""
        server, self._server = self._server, None
        idle, self._idle = self._idle, []
        return [*idle, *([server] if server else [])]

    @contextmanager
    def _in_environment_of_now(self) -> Iterator[None]:
        """Replace processes that have another environment: a notebook may have set a variable since the last run.

        Not while another run uses them; they are replaced for the next run then.
        """
        with self._lock:
            self._runs += 1
            is_other = self._server is not None and self._server.environment != _environment()
            former = self._take_processes() if is_other and self._runs == 1 else []
        try:
            for process in former:
                process.end()
            yield
        finally:
            with self._lock:
                self._runs -= 1

    def _run_job(
        self, job: _Job, packs: Sequence[Sequence[TaskInput]], on_result: Callable[[TaskState], None]
    ) -> list[TaskState]:
        threads = [
            threading.Thread(target=self._work, args=(job,), name="process-pack", daemon=True)
            for _ in range(min(self.cores or 1, len(packs)))
        ]
        for thread in threads:
            thread.start()
        states: dict[str, TaskState] = {}
        try:
            for state in job.new_states(len(threads)):
                if state.work_unit_id not in states:  # a pack that is tried again repeats what has finished
                    states[state.work_unit_id] = state
                    on_result(state)
        except BaseException:  # a second Ctrl-C, mostly: nothing may go on
            job.abort()
            raise
        if job.error is not None:
            raise job.error
        return [states[task.unit.id] for pack in packs for task in pack]

    def _work(self, job: _Job) -> None:
        """Run packs of a job until none is left; the body of a thread."""
        try:
            while (pack := job.next_pack()) is not None:
                if self._has_slot(job):
                    try:
                        self._run_pack(job, pack)
                    finally:
                        self._slots.release()
                else:
                    for task in pack:
                        job.tell(unrun(task, WorkingState.CANCELLED, None))
        except BaseException as error:  # noqa: BLE001 - raised again in the thread of the run
            job.error = error
        finally:
            job.tell(None)

    def _has_slot(self, job: _Job) -> bool:
        """Wait for one of the processes, which other runs may have for long; return False if the job is to stop."""
        slot = self._slots.ask(job)
        while not job.stop.is_set() and not job.is_aborted:
            if slot.wait(_POLL_S):
                return True
        self._slots.give_up(job, slot)
        return False

    def _run_pack(self, job: _Job, pack: Sequence[TaskInput]) -> None:
        line, why = pack_line(job.context_json, [to_json(task) for task in pack]), ""
        missing = {task.unit.id: task for task in pack}
        for _ in range(TRIES):
            worker = self._take_worker()
            with job.using(worker):
                for state in worker.run(line, job.stop):
                    missing.pop(state.work_unit_id, None)
                    job.tell(state)
            if worker.is_fit:
                with self._lock:
                    self._idle.append(worker)
            else:
                worker.end()
            if not missing or job.is_aborted:
                return
            why = worker.problem
        self._give_up(job, missing, why)

    def _give_up(self, job: _Job, missing: dict[str, TaskInput], why: str) -> None:
        storage = open_storage(job.run_context.output_root, durable=False)
        results = TaskCheckpoints(storage, job.run_context.staging_root).all_results()
        lost = describe_failure(TaskLostError(problem=f"This work unit was tried {TRIES} times: {why}."))
        for unit_id, task in missing.items():
            job.tell(results.get(unit_id) or unrun(task, WorkingState.FAILED, lost))

    def _take_worker(self) -> _Worker:
        while (idle := self._take_idle()) is not None:
            # One that died while it waited costs a pack no try: all of them die with their server.
            if idle.is_alive():
                return idle
            idle.end()
        for _ in range(TRIES):
            server = self._fork_server()
            with suppress(OSError):
                return server.fork()
            with self._lock:  # it died
                if self._server is server:
                    self._server = None
            server.end()
        raise EnvironmentFaultError(problem="The processes of work units cannot be started.", hint=self._hint())

    def _take_idle(self) -> _Worker | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _fork_server(self) -> _ForkServer:
        with self._lock:
            if self._server is None:
                try:
                    self._server = _ForkServer(self._log_file)
                except OSError as error:
                    raise EnvironmentFaultError(
                        problem=f"No process can be started: {error}.", hint=self._hint()
                    ) from error
            return self._server

    def _hint(self) -> str:
        return f"The log is {self._log_file}." if self._log_file else "Nothing was logged."


@dataclass(slots=True, eq=False)
class _Job:
    """One call of `ProcessRunner.run`, as its threads see it."""

    run_context: RunContext
    context_json: str
    stop: threading.Event
    packs: Iterator[Sequence[TaskInput]]
    error: BaseException | None = None
    """Why a thread ended before its time."""
    is_aborted: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    told: queue.SimpleQueue[TaskState | None] = field(default_factory=queue.SimpleQueue)
    workers: set[_Worker] = field(default_factory=set)

    def next_pack(self) -> Sequence[TaskInput] | None:
        """Return a pack that nobody has begun; None if there is none, or nothing more is to begin."""
        with self.lock:
            return None if self.is_aborted or self.error else next(self.packs, None)

    def tell(self, state: TaskState | None) -> None:
        """Pass on a result; None: a thread has ended."""
        self.told.put(state)

    def new_states(self, threads: int) -> Iterator[TaskState]:
        """Yield results until all threads have ended; tell the workers when the run is to stop."""
        is_told = False
        while threads:
            if self.stop.is_set() and not is_told:
                is_told = True
                self._stop_workers()
            try:
                state = self.told.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            if state is None:
                threads -= 1
            else:
                yield state

    @contextmanager
    def using(self, worker: _Worker) -> Iterator[None]:
        """Let `abort` end a worker while it runs a pack."""
        with self.lock:
            self.workers.add(worker)
            if self.is_aborted:
                worker.abort()
        try:
            yield
        finally:
            with self.lock:
                self.workers.remove(worker)

    def abort(self) -> None:
        """End all work at once."""
        with self.lock:
            self.is_aborted = True
            for worker in self.workers:
                worker.abort()

    def _stop_workers(self) -> None:
        # Inside of the lock: a worker that has left this job may be running a pack of another one.
        with self.lock:
            for worker in self.workers:
                worker.stop()


class _Worker:
    """The driver's end of the socket that it shares with a worker."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._answers = connection.makefile("r", encoding="utf-8", errors="replace")
        self._lock = threading.Lock()
        self.is_fit = False
        """Whether the worker can run another pack."""
        self.problem = ""
        """Why the last pack did not end; empty if it did."""

    def run(self, line: str, stop: threading.Event) -> Iterator[TaskState]:
        """Let the worker run a pack; yield the results of its work units until it ends, or the worker dies."""
        self.is_fit, self.problem = False, "its process died"
        try:
            self._send(line)
            if stop.is_set():
                self.stop()
            for raw in self._answers:
                answer = raw.rstrip("\n")
                if answer == DONE:
                    self.is_fit, self.problem = True, ""
                    return
                if answer.startswith(ERROR):
                    self.is_fit, self.problem = True, json.loads(answer.removeprefix(ERROR))
                    return
                if answer.startswith(EXIT):
                    code = int(answer.removeprefix(EXIT))
                    how = f"signal {-code}" if code < 0 else f"exit code {code}"
                    self.problem = f"its process died ({how})"
                    return
                if raw.endswith("\n") and answer:
                    with suppress(ValueError):  # half of a line, which a killed worker sent
                        yield from_json(TaskState, answer)
        except OSError:
            return

    def is_alive(self) -> bool:
        """Tell whether a worker without a pack can be given one: it says nothing, and its socket is open."""
        try:
            self._connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def stop(self) -> None:
        """Ask the worker to begin no further work unit."""
        with suppress(OSError):
            self._send(STOP)

    def abort(self) -> None:
        """End the worker at once; another thread may be reading from it."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """End the worker."""
        self._answers.close()
        self._connection.close()

    def _send(self, line: str) -> None:
        with self._lock:  # half a pack must not stand before `stop`
            self._connection.sendall(f"{line}\n".encode())


class _ForkServer:
    """The process that forks workers, and the driver's end of the socket that orders them."""

    def __init__(self, log_file: Path | None) -> None:
        if log_file is not None:  # the folder may not exist, if the state is stored elsewhere
            log_file.parent.mkdir(parents=True, exist_ok=True)
        self.environment = _environment()
        self._control, theirs = socket.socketpair()
        self._lock = threading.Lock()
        self._is_ready = False
        # Another thread may run an expression.
        with theirs, (log_file or Path(os.devnull)).open("ab") as log, address_space.lifted():
            # This interpreter and a module of ours; the only other word is a number.
            self._process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603
                [*python_for_module(fork_server.__name__), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                env=python_environment(),
                start_new_session=True,  # Ctrl-C in a terminal reaches only the driver
            )

    def fork(self) -> _Worker:
        """Return a new worker; raises OSError if the server has died."""
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            try:
                if not self._is_ready and self._control.recv(1) != fork_server.READY:
                    raise ConnectionResetError("the server did not start")
                self._is_ready = True
                socket.send_fds(self._control, [fork_server.FORK], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        return _Worker(ours)

    def end(self) -> None:
        """End the server, and with it all workers."""
        self._control.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _environment() -> dict[str, str]:
    """Return the variables that processes must have been started with."""
    return lasting(python_environment())
