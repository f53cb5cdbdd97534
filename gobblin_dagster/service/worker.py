"""A worker: takes jobs from its standard input, runs them side by side on one warm Spark, and reports each.

It runs as a process of its own, so that a construct of a user's that crashes or leaks takes no REST down with it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from gobblin_dagster.core.errors import EnvironmentFaultError, GobblinDagsterError, SpecError
from gobblin_dagster.core.run_record import DatasetOutcome, RunStatus
from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.results import DatasetResult, RunResult
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.engine.task.runner import TaskRunner
from gobblin_dagster.service.executors.flows_around import split_body
from gobblin_dagster.service.executors.job_body import read_job_body
from gobblin_dagster.service.executors.messages import JobNews, RunOrder, Shutdown, StopOrder, from_line
from gobblin_dagster.service.known_jobs import with_order
from gobblin_dagster.service.logs import about
from gobblin_dagster.service.model import ExecutionStatus, JobKey

log = logging.getLogger(__name__)

BUSY_STEP_S = 5.0
"""Seconds between two looks at datasets that another run holds; they double after a while."""
LONGEST_STEP_S = 60.0
"""Seconds between two such looks at most."""
SHOWN_DATASETS = 20
"""Datasets whose watermarks are reported one by one."""

_STATUS = {
    RunStatus.SUCCEEDED: ExecutionStatus.COMPLETE,
    RunStatus.PARTIAL: ExecutionStatus.FAILED,
    RunStatus.FAILED: ExecutionStatus.FAILED,
    RunStatus.INTERRUPTED: ExecutionStatus.CANCELLED,
}


class Worker:
    """Runs jobs.

    Args:
        project: gives the state store, the roots of paths, and what jobs may touch.
        runner: runs work units; all jobs share it.
        tell: called with what happens, from several threads at once.
        jobs_at_once: jobs that run side by side.
        unfit: tells why the runner can run no job any more; empty if it can.
        give_up: ends the process at once; the service hands its jobs to another one.
    """

    def __init__(
        self,
        project: Project,
        runner: TaskRunner,
        tell: Callable[[JobNews], None],
        jobs_at_once: int,
        unfit: Callable[[], str] = lambda: "",
        give_up: Callable[[], None] = lambda: os._exit(1),
    ) -> None:
        self._project = project
        self._runner = runner
        self._tell = tell
        self._unfit = unfit
        self._give_up = give_up
        self._pool = ThreadPoolExecutor(jobs_at_once, thread_name_prefix="job")
        self._stops: dict[JobKey, threading.Event] = {}
        self._lock = threading.Lock()

    def serve(self, lines: Iterable[str]) -> bool:
        """Take orders until the input ends or a shutdown is ordered; wait for the jobs that run.

        Returns:
            True after a shutdown; False if the input ended without one, because the service was killed.
        """
        for line in lines:
            order = from_line(line)
            if isinstance(order, RunOrder):
                self._begin(order)
            elif isinstance(order, StopOrder):
                self._stop(order.key)
            elif isinstance(order, Shutdown):
                with self._lock:
                    for stop in self._stops.values():
                        stop.set()
                self._pool.shutdown()
                return True
        return False

    def _begin(self, order: RunOrder) -> None:
        with self._lock:
            if order.key in self._stops:
                return
            self._stops[order.key] = threading.Event()
        self._pool.submit(self._run, order)

    def _stop(self, key: JobKey) -> None:
        with self._lock:
            stop = self._stops.get(key)
        if stop is not None:
            stop.set()

    def _run(self, order: RunOrder) -> None:
        with about(order.key.execution_id, order.key.job):
            self._run_one(order)

    def _run_one(self, order: RunOrder) -> None:
        stop = self._stops[order.key]
        try:
            if stop.is_set():
                self._tell(JobNews(order.key, ExecutionStatus.CANCELLED, "stopped before it began"))
                return
            self._end_if_unfit()
            log.info("run %s begins", order.run_id)
            self._tell(JobNews(order.key, ExecutionStatus.RUNNING))
            self._tell(self._outcome(order, stop))
        finally:
            with self._lock:
                del self._stops[order.key]

    def _outcome(self, order: RunOrder, stop: threading.Event) -> JobNews:
        try:
            news = self._result(order, stop)
        except EnvironmentFaultError as error:  # Spark did not start, and the message says why
            return JobNews(order.key, ExecutionStatus.FAILED, str(error))
        except SpecError as error:
            news = JobNews(order.key, ExecutionStatus.FAILED, str(error), may_retry=False)
        except GobblinDagsterError as error:
            news = JobNews(order.key, ExecutionStatus.FAILED, str(error))
        except Exception as error:  # a fault of one job, a construct's own too, must not end the worker
            log.exception("run %s failed", order.run_id)
            news = JobNews(order.key, ExecutionStatus.FAILED, hidden(f"{type(error).__name__}: {error}"))
        if news.status is ExecutionStatus.FAILED:
            self._end_if_unfit()
        return news

    def _end_if_unfit(self) -> None:
        """End the process if its Spark has ended: each further job would fail in this process, and not in another."""
        if reason := self._unfit():
            log.warning("%s: this worker ends, and its jobs go on in another one", reason)
            self._give_up()

    def _result(self, order: RunOrder, stop: threading.Event) -> JobNews:
        project = with_order(self._project, split_body(order.body)[1])
        job = read_job_body(order.key.job, order.body, project.root, project.spec)
        result = run_job(project, job, runner=self._runner, stop=stop, run_id=order.run_id)
        moved = [dataset for dataset in result.datasets if dataset.is_committed]
        # A worker that was killed on another machine holds its datasets until its leases end. The former copy of a job
        # that moved, or another execution with this job, may go on as long as it likes: flows have a deadline for that.
        leases_end_at = time.monotonic() + project.spec.lease_ttl_s + BUSY_STEP_S
        tries, step_s = 0, BUSY_STEP_S
        while _is_busy(result) and not stop.wait(step_s):
            tries += 1
            if time.monotonic() > leases_end_at:
                step_s = min(2 * step_s, LONGEST_STEP_S)
            log.info("run %s waits for datasets that another run holds", order.run_id)
            result = run_job(project, job, runner=self._runner, stop=stop, run_id=f"{order.run_id}.{tries}")
            moved += [dataset for dataset in result.datasets if dataset.is_committed]
        # One that was stopped while it waited has not failed: a worker that ends leaves it to another one.
        status = ExecutionStatus.CANCELLED if stop.is_set() and _is_busy(result) else _STATUS[result.status]
        return JobNews(
            order.key,
            status,
            _message(result),
            sum(dataset.rows_read for dataset in moved),
            _watermarks(moved, "low"),
            _watermarks(moved, "actual_high"),
        )


def _is_busy(result: RunResult) -> bool:
    return result.status is RunStatus.BUSY or any(dataset.outcome is DatasetOutcome.BUSY for dataset in result.datasets)


def _message(result: RunResult) -> str:
    """Say what became of a job's datasets, and why some failed."""
    counts: dict[str, int] = {}
    for dataset in result.datasets:
        counts[dataset.outcome.value] = counts.get(dataset.outcome.value, 0) + 1
    told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())) or "nothing to do"
    failed = [f"{one.dataset_urn}: {failure.message}" for one in result.datasets for failure in one.failures[:1]]
    return "; ".join([told, *failed[:5]])


def _watermarks(datasets: list[DatasetResult], name: str) -> str:
    """Return the watermarks of datasets as people read them: one alone, or several by their datasets."""
    texts = [(one.dataset_urn, getattr(one, name)) for one in datasets]
    if len(texts) == 1:
        return "" if texts[0][1] is None else str(texts[0][1])
    shown = [f"{urn}: {mark}" for urn, mark in texts[:SHOWN_DATASETS] if mark is not None]
    more = [f"and {len(texts) - SHOWN_DATASETS} more"] if len(texts) > SHOWN_DATASETS else []
    return "; ".join([*shown, *more])
