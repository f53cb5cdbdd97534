"""JobMonitor: takes jobs from an inlet, has a worker run them side by side, and tells the inlet what became of them.

Jobs that were handed over to a worker that is gone are handed over again, since what a job publishes is exactly once in
any case. All that must not be lost stands behind the inlet: after a kill, another monitor goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from gobblin_dagster.core.clock import Clock
from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.core.ids import new_run_id
from gobblin_dagster.service.executors.messages import JobNews, RunOrder, StopOrder
from gobblin_dagster.service.executors.turns import Turns
from gobblin_dagster.service.executors.worker_process import WorkerChannel
from gobblin_dagster.service.logs import about
from gobblin_dagster.service.model import ExecutionStatus, JobKey, JobReport

log = logging.getLogger(__name__)

TICK_S = 0.2
"""How often the inlet is looked at."""
TAKE_OVER_S = 5
"""How often jobs of holders that are gone are looked for."""
MAX_RESTARTS = 2
"""How often a job is handed over again because its worker ended under it."""
_UNTOLD = "what was said of it cannot be stored; the log says why"


@dataclass(frozen=True, slots=True)
class Taken:
    """An order that was taken from an inlet."""

    key: JobKey
    is_stop: bool = False


class Inlet(Protocol):
    """Where a monitor's orders come from, and where its reports go. Durable; raises while its store is away."""

    def take_over(self) -> Sequence[JobKey]:
        """Return the jobs that holders had taken who are gone; they are this monitor's now.

        Jobs that it took itself and has not begun are among them: the answer to `take` may have been lost.
        """

    def take(self, free: int) -> Sequence[Taken]:
        """Return orders to end jobs of this monitor, and at most `free` jobs to run; they are this monitor's now."""

    def begin(self, key: JobKey, run_id: str) -> str | None:
        """Note that a job is handed to a worker as a run, and return its body; None if it is not to run any more."""

    def tell(self, report: JobReport) -> None:
        """Make a report durable; one of a job that is not this monitor's any more changes nothing."""


class JobMonitor:
    """Runs the jobs of one inlet.

    Args:
        name: of the executor, for logs.
        inlet: orders and reports.
        worker: runs the jobs.
        clock: names runs.
        jobs_at_once: jobs that run side by side; the others wait behind the inlet, for this monitor or another.

    Source: gobblin-cluster `JobConfigurationManager`, `ScheduledJobConfigurationManager`.
    """

    def __init__(self, name: str, inlet: Inlet, worker: WorkerChannel, clock: Clock, jobs_at_once: int) -> None:
        self._name = name
        self._inlet = inlet
        self._worker = worker
        self._clock = clock
        self._jobs_at_once = jobs_at_once
        self._look_at = 0.0
        """When jobs of holders that are gone are looked for, by the process's own clock."""
        self._waiting: deque[JobKey] = deque()
        self._running: dict[JobKey, int] = {}
        """Jobs that were handed over, each with the number of its worker."""
        self._restarts: dict[JobKey, int] = {}
        self._stopped: set[JobKey] = set()
        """Jobs that were ordered to stop; others that end as cancelled were cut short by the end of the program."""
        self._lock = threading.RLock()
        self._turns = Turns(f"executor-{name}", self._turn)
        worker.listen(self._report, self._worker_ended)

    @property
    def restarts(self) -> int:
        """How often running jobs lost their worker, of those that are not over."""
        with self._lock:
            return sum(self._restarts.values())

    def start(self) -> None:
        """Take up jobs that killed holders left, and go on with the inlet, in a thread."""
        self._turns.start()

    def wake(self) -> None:
        """Look at the inlet now."""
        self._turns.wake()

    def stop(self) -> None:
        """End jobs gracefully: work units that run end, what is whole is committed. Waits for it."""
        self._turns.end()
        self.join()
        self._worker.shutdown()

    def kill(self) -> None:
        """End the worker at once; another monitor takes its jobs up again."""
        self._turns.end()
        self._worker.kill()

    def join(self) -> None:
        """Wait for the thread that `kill` told to end."""
        self._turns.join()

    def step(self, *, takes_over: bool = True) -> None:
        """Take over, take and hand over what there is; raises while the inlet's store is away."""
        if takes_over:
            self._take_over()
        self._take_orders()
        self._hand_over()

    def _turn(self) -> float:
        try:
            is_due = time.monotonic() >= self._look_at
            self.step(takes_over=is_due)
            if is_due:
                self._look_at = time.monotonic() + TAKE_OVER_S
        except GobblinDagsterError as error:
            # The store may be away for a while; what was decided stands in it and waits.
            log.warning("executor %s: %s", self._name, error)
            self._turns.wait(1)
        except Exception:  # a fault with one job must not stop the others for ever
            log.exception("executor %s goes on after an error", self._name)
            self._turns.wait(1)
        return TICK_S

    def _take_over(self) -> None:
        """Take up the jobs of holders that are gone, and our own that this process does not know."""
        for key in self._inlet.take_over():
            with self._lock:
                if key in self._running or key in self._waiting:
                    continue
                self._waiting.append(key)
            with about(key.execution_id, key.job):
                log.info("job %s is taken up again", key)

    def _take_orders(self) -> None:
        with self._lock:
            free = self._jobs_at_once - len(self._waiting) - len(self._running)
        for taken in self._inlet.take(free):
            key = taken.key
            with self._lock:
                if not taken.is_stop:
                    if key not in self._running and key not in self._waiting:
                        self._waiting.append(key)
                    continue
                is_new = key not in self._stopped
                self._stopped.add(key)
                is_running = key in self._running
                if key in self._waiting:
                    self._waiting.remove(key)
            if is_running and is_new:
                self._worker.send(StopOrder(key))
            elif not is_running:
                self._report(JobNews(key, ExecutionStatus.CANCELLED, "stopped before it began"))

    def _hand_over(self) -> None:
        while True:
            with self._lock:
                is_full = len(self._running) >= self._jobs_at_once
                if not self._waiting or is_full or self._turns.is_ending:
                    return
                key = self._waiting[0]
            run_id = new_run_id(self._clock.now())
            body = self._inlet.begin(key, run_id)
            with self._lock:
                self._waiting.popleft()
                if body is not None:
                    # Inside of the lock: the end of this worker must be heard of after it is known to have the job.
                    self._running[key] = 0
                    self._running[key] = self._worker.send(RunOrder(key, run_id, body))

    def _worker_ended(self, worker: int, how: str) -> None:
        """Hand the jobs of a worker that ended over again, or give them up; the next worker may have others already."""
        with self._lock:
            left = sorted(key for key, number in self._running.items() if number == worker)
            for key in left:
                del self._running[key]
        if self._turns.is_ending:
            return
        for key in left:
            if key in self._stopped:
                self._report(JobNews(key, ExecutionStatus.CANCELLED, "its worker ended while the job was to stop"))
                continue
            with self._lock:
                restarts = self._restarts[key] = self._restarts.get(key, 0) + 1
            if restarts <= MAX_RESTARTS:
                with about(key.execution_id, key.job):
                    log.warning("the worker ended (%s) while job %s ran; it is handed over again", how, key)
                with self._lock:
                    self._waiting.append(key)
            else:
                message = f"the worker ended {restarts} times while the job ran, last with {how}"
                self._report(JobNews(key, ExecutionStatus.FAILED, message))
        self._turns.wake()

    def _report(self, news: JobNews) -> None:
        """Tell what became of a job, for as long as it takes: the store may be away for a while."""
        key = news.key
        if news.status is ExecutionStatus.CANCELLED and self._turns.is_ending and key not in self._stopped:
            return  # another monitor takes the job up again; what is whole is committed
        report = news.report()
        while True:
            try:
                self._inlet.tell(report)
                break
            except GobblinDagsterError as error:
                with about(key.execution_id, key.job):
                    log.warning("the report of job %s waits for the store: %s", key, error)
                if self._turns.wait(1):
                    return
            except Exception:
                # Whatever is wrong with this report, those of other jobs come by the same thread.
                if report.message == _UNTOLD:
                    raise
                log.exception("the report of job %s cannot be stored", key)
                report = replace(report, message=_UNTOLD, processed_count=0, low_watermark="", high_watermark="")
        if news.status.is_final:
            with self._lock:
                self._running.pop(key, None)
                self._restarts.pop(key, None)
                self._stopped.discard(key)
            self._turns.wake()
