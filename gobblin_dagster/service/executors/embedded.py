"""EmbeddedExecutor: runs jobs in one worker process of the service, which keeps its Spark warm.

Orders come from the outbox in the store. An order is deleted once its job was handed over; jobs that were handed over
to a worker that is gone are handed over again, since what a job publishes is exactly once in any case.
"""

from __future__ import annotations

import logging
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from gobblin_dagster.core.clock import Clock
from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.core.ids import new_run_id
from gobblin_dagster.service.catalog.flow_config import ExecutorName
from gobblin_dagster.service.executors.messages import (
    JobKey,
    JobNews,
    Message,
    RunOrder,
    Shutdown,
    StopOrder,
    from_line,
    to_line,
)
from gobblin_dagster.service.logs import about
from gobblin_dagster.service.model import ExecutionId, ExecutionStatus, JobReport
from gobblin_dagster.service.store.execution_rows import Order, list_orders, load_job, take_orders, take_over_jobs
from gobblin_dagster.service.store.node_rows import load_nodes
from gobblin_dagster.service.store.store import ServiceStore

log = logging.getLogger(__name__)

NAME = ExecutorName.EMBEDDED.value
TICK_S = 0.2
"""How often the outbox is looked at."""
TAKE_OVER_S = 5
"""How often jobs of nodes that are gone are looked for."""
MAX_RESTARTS = 2
"""How often a job is handed over again because its worker ended under it."""
_SHUTDOWN_S = 300


class EmbeddedExecutor:
    """An executor inside of the service's own process tree.

    Args:
        store: the service's store.
        report: called with what becomes of jobs; raises TransientError or StorageError while the store is away.
        command: starts the worker process, which speaks `messages` on its standard input and output.
        folder: working folder of the worker: the project's.
        log_file: what the worker and its Spark print.
        clock: names runs.
        jobs_at_once: jobs that the worker runs side by side; the others wait in the outbox, for this node or another.
        node: names this process; jobs that it took are its own while it is alive.

    Source: gobblin-runtime `InMemorySpecExecutor`. Differs: the jobs run, in a process that can be killed.
    """

    name = NAME

    def __init__(
        self,
        store: ServiceStore,
        report: Callable[[JobReport], None],
        command: Sequence[str],
        folder: Path,
        log_file: Path,
        clock: Clock,
        jobs_at_once: int,
        node: str,
    ) -> None:
        self._store = store
        self._tell = report
        self._command = list(command)
        self._folder = folder
        self._log_file = log_file
        self._clock = clock
        self._jobs_at_once = jobs_at_once
        self._node = node
        self._look_at = 0.0
        """When jobs of nodes that are gone are looked for, by the process's own clock."""
        self._waiting: deque[JobKey] = deque()
        self._running: set[JobKey] = set()
        self._restarts: dict[JobKey, int] = {}
        self._stopped: set[JobKey] = set()
        """Jobs that were ordered to stop; others that end as cancelled were cut short by the end of the service."""
        self._lock = threading.RLock()
        self._worker: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._wake = threading.Event()

    @property
    def restarts(self) -> int:
        """How often running jobs lost their worker, of those that are not over."""
        with self._lock:
            return sum(self._restarts.values())

    def start(self) -> None:
        """Take up jobs that killed nodes left, and go on with the outbox, in a thread."""
        self._thread = threading.Thread(target=self._loop, name="executor-embedded", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look at the outbox now."""
        self._wake.set()

    def stop(self) -> None:
        """End jobs gracefully: work units that run end, what is whole is committed. Waits for it."""
        self._stopping.set()
        self._wake.set()
        self.join()
        worker = self._worker
        if worker is None:
            return
        self._send(Shutdown())
        try:
            worker.wait(_SHUTDOWN_S)
        except subprocess.TimeoutExpired:
            log.warning(
                "the worker did not end within %d s and is killed; the next start takes its jobs up", _SHUTDOWN_S
            )
            worker.kill()

    def kill(self) -> None:
        """End the worker at once; the next start takes its jobs up again."""
        self._stopping.set()
        self._wake.set()
        if self._worker is not None:
            self._worker.kill()

    def join(self) -> None:
        """Wait for the thread that `kill` told to end."""
        if self._thread is not None:
            self._thread.join()

    def _loop(self) -> None:
        while not self._stopping.is_set():
            try:
                if time.monotonic() >= self._look_at:
                    self._take_over()
                    self._look_at = time.monotonic() + TAKE_OVER_S
                self._take_orders()
                self._hand_over()
            except GobblinDagsterError as error:
                # The store may be away for a while; what was decided stands in it and waits.
                log.warning("executor %s: %s", NAME, error)
                self._stopping.wait(1)
            self._wake.wait(TICK_S)
            self._wake.clear()

    def _take_over(self) -> None:
        """Take up the jobs of nodes that are gone."""
        with self._store.write() as transaction:
            now = self._store.now(transaction)
            alive = [node.name for node in load_nodes(transaction) if node.is_alive(now)]
            left = take_over_jobs(transaction, NAME, self._node, alive)
        for execution, job in left:
            key = JobKey(*_names(execution), job.job.name, job.generation, job.attempt)
            with about(execution, job.job.name):
                log.info("job %s is taken up again", key)
            with self._lock:
                self._waiting.append(key)

    def _take_orders(self) -> None:
        with self._store.read() as transaction:
            if not list_orders(transaction, NAME, 1):
                return
        with self._lock:
            free = self._jobs_at_once - len(self._waiting) - len(self._running)
        with self._store.write() as transaction:
            orders = take_orders(transaction, NAME, self._node, free)
        for order in orders:
            key = _key(order)
            with self._lock:
                if not order.is_stop:
                    if key not in self._running and key not in self._waiting:
                        self._waiting.append(key)
                    continue
                self._stopped.add(key)
                is_running = key in self._running
                if key in self._waiting:
                    self._waiting.remove(key)
            if is_running:
                self._send(StopOrder(key))
            else:
                self._report(JobNews(key, ExecutionStatus.CANCELLED, "stopped before it began"))

    def _hand_over(self) -> None:
        while True:
            with self._lock:
                is_full = len(self._running) >= self._jobs_at_once
                if not self._waiting or is_full or self._stopping.is_set():
                    return
                key = self._waiting[0]
            with self._store.read() as transaction:
                job = load_job(transaction, key.execution_id, key.job)
            with self._lock:
                self._waiting.popleft()
                is_other = job is None or (job.generation, job.attempt) != (key.generation, key.attempt)
                if job is None or is_other or job.status.is_final or job.holder != self._node:
                    continue
                self._running.add(key)
            run_id = new_run_id(self._clock.now())
            self._report(JobNews(key, ExecutionStatus.ORCHESTRATED), run_id)
            self._send(RunOrder(key, run_id, job.job.body))

    def _send(self, message: Message) -> None:
        worker = self._started()
        try:
            if worker is not None and worker.stdin is not None:
                worker.stdin.write(to_line(message))
                worker.stdin.flush()
        except OSError:
            log.warning("the worker ended; it is started again")  # its reader finds out, and sorts its jobs

    def _started(self) -> subprocess.Popen[str] | None:
        """Return the worker, which is started if there is none; None if there is none and the service ends."""
        with self._lock:
            if self._worker is None and not self._stopping.is_set():
                self._log_file.parent.mkdir(parents=True, exist_ok=True)
                with self._log_file.open("a", encoding="utf-8") as output:
                    self._worker = subprocess.Popen(  # noqa: S603 - the service's own program
                        self._command,
                        cwd=self._folder,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=output,
                        text=True,
                        encoding="utf-8",
                        # A Ctrl-C for the service must not reach the worker: the service decides how it ends.
                        start_new_session=True,
                    )
                threading.Thread(target=self._read, args=(self._worker,), name="worker-reader", daemon=True).start()
            return self._worker

    def _read(self, worker: subprocess.Popen[str]) -> None:
        """Take in what the worker says, until it ends; then hand its jobs over again, or give them up."""
        for line in worker.stdout or ():
            try:
                news = from_line(line)
            except ValueError as error:
                log.warning("%s", error)
                continue
            if isinstance(news, JobNews):
                self._report(news)
        code = worker.wait()
        with self._lock:
            self._worker = None
            left = sorted(self._running)
            self._running.clear()
        if self._stopping.is_set():
            return
        for key in left:
            with self._lock:
                restarts = self._restarts[key] = self._restarts.get(key, 0) + 1
            if restarts <= MAX_RESTARTS:
                with about(key.execution_id, key.job):
                    log.warning("the worker ended (code %d) while job %s ran; it is handed over again", code, key)
                with self._lock:
                    self._waiting.append(key)
            else:
                message = (
                    f"the worker ended {restarts} times while the job ran, last with code {code}; see {self._log_file}"
                )
                self._report(JobNews(key, ExecutionStatus.FAILED, message))
        self._wake.set()

    def _report(self, news: JobNews, run_id: str = "") -> None:
        """Tell what became of a job, for as long as it takes: the store may be away for a while."""
        key = news.key
        if news.status is ExecutionStatus.CANCELLED and self._stopping.is_set() and key not in self._stopped:
            return  # the next start takes the job up again; what is whole is committed
        report = JobReport(
            key.execution_id,
            key.job,
            key.generation,
            key.attempt,
            news.status,
            news.message,
            run_id,
            news.processed_count,
            news.low_watermark,
            news.high_watermark,
            news.may_retry,
        )
        while True:
            try:
                self._tell(report)
                break
            except GobblinDagsterError as error:
                with about(key.execution_id, key.job):
                    log.warning("the report of job %s waits for the store: %s", key, error)
                if self._stopping.wait(1):
                    return
        if news.status.is_final:
            with self._lock:
                self._running.discard(key)
                self._restarts.pop(key, None)
                self._stopped.discard(key)
            self._wake.set()


def _names(execution: ExecutionId) -> tuple[str, str, int]:
    return execution.flow.group, execution.flow.name, execution.number


def _key(order: Order) -> JobKey:
    return JobKey(*_names(order.execution), order.job, order.generation, order.attempt)
