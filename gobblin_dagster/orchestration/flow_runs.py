"""FlowRuns: what the service orders from the executor `dagster` becomes runs, and what became of runs is reported.

Nothing is kept in memory: orders stand in the service's outbox until their run exists, runs are found by their tag,
and what a run did is read from the state store, where the engine records it. Dagster's own status of a run never tells
that a job is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

import dagster as dg

from gobblin_dagster.core.run_record import DatasetOutcome, RunRecord, RunStatus
from gobblin_dagster.orchestration._internal import end_run
from gobblin_dagster.service.catalog.flow_config import ExecutorName
from gobblin_dagster.service.executors.remote_dagster import KEY_TAG, run_tags
from gobblin_dagster.service.model import DagJob, ExecutionId, ExecutionStatus, JobKey, JobReport
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator
from gobblin_dagster.service.store.job_rows import JobExecution, load_job, open_jobs
from gobblin_dagster.service.store.order_rows import Order, drop_orders, list_orders
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.state.store import StateStore

AT_ONCE = 50
"""Runs that one call requests: Dagster makes 5 to 6 a second."""
_ALL = 1_000_000
"""Orders that one call looks at: an order to stop may stand behind all others."""
_KEYS_AT_ONCE = 500
"""Runs that are looked up in one query."""

_STATUS = {
    RunStatus.SUCCEEDED: ExecutionStatus.COMPLETE,
    RunStatus.PARTIAL: ExecutionStatus.FAILED,
    RunStatus.FAILED: ExecutionStatus.FAILED,
    RunStatus.BUSY: ExecutionStatus.FAILED,
    RunStatus.INTERRUPTED: ExecutionStatus.CANCELLED,
}


@dataclass
class Ordered:
    """What the service asks for."""

    requests: list[dg.RunRequest] = field(default_factory=list)
    unknown: int = 0
    """Orders of jobs that are not among the loaded definitions."""


class FlowRuns:
    """Works for one tick of a sensor.

    Args:
        store: the service's store.
        orchestrator: takes in reports.
        state: the project's state store.
        instance: where the runs are.
    """

    def __init__(
        self, store: ServiceStore, orchestrator: Orchestrator, state: StateStore, instance: dg.DagsterInstance
    ) -> None:
        self._store = store
        self._orchestrator = orchestrator
        self._state = state
        self._instance = instance

    def take_orders(self, known: Collection[str], fault_of: Callable[[DagJob], str] = lambda _: "") -> Ordered:
        """Return a request for each order that has no run yet; end the runs that are ordered to stop.

        At most `AT_ONCE` requests, those of the oldest orders; the next call returns the others. An order is dropped
        once its run exists, so that a tick that is killed loses nothing; requests have run keys, so that Dagster makes
        one run of each.

        Args:
            known: names of the Dagster jobs that can be launched.
            fault_of: tells why a job that is not among them cannot be; empty if it can, once the definitions are loaded
                again. A job with a fault is reported as failed.
        """
        with self._store.read() as transaction:
            orders = list_orders(transaction, ExecutorName.DAGSTER, _ALL)
        stopped = {_key(order) for order in orders if order.is_stop}
        runs = self._runs(map(_key, orders))
        ordered = Ordered()
        for order in orders:
            key = _key(order)
            run = runs.get(key)
            if order.is_stop:
                self._stop(order, run)
            elif run is not None:
                self._tell(key, ExecutionStatus.ORCHESTRATED, run_id=run.run_id)
                self._drop(order)
            elif key in stopped:
                self._drop(order)
            elif f"{order.job}_job" not in known:
                # Those behind the first ones are looked at once these are gone.
                is_refused = ordered.unknown < AT_ONCE and self._refuse(order, fault_of)
                ordered.unknown += not is_refused
            elif len(ordered.requests) < AT_ONCE:
                ordered.requests.append(_request(key))
        return ordered

    def watch(self) -> int:
        """Report the jobs whose runs began or ended, and return how many were told."""
        with self._store.read() as transaction:
            going = open_jobs(transaction, ExecutorName.DAGSTER)
        keys = [_key_of(execution, job) for execution, job in going]
        runs = self._runs(keys)
        told = 0
        for key, (_, job) in zip(keys, going, strict=True):
            run = runs.get(key)
            if run is None:
                continue
            if run.is_finished:
                self._end(key, run, has_begun=job.started_at is not None)
                told += 1
            elif run.status is dg.DagsterRunStatus.STARTED and job.status is not ExecutionStatus.RUNNING:
                self._tell(key, ExecutionStatus.RUNNING, run_id=run.run_id)
                told += 1
        return told

    def _refuse(self, order: Order, fault_of: Callable[[DagJob], str]) -> bool:
        """Report a job that has a fault as failed, and tell whether it has one."""
        with self._store.read() as transaction:
            found = load_job(transaction, order.execution, order.job)
        fault = fault_of(found.job) if found is not None else ""
        if fault:
            self._orchestrator.report(JobReport.of(_key(order), ExecutionStatus.FAILED, fault, may_retry=False))
            self._drop(order)
        return bool(fault)

    def _stop(self, order: Order, run: dg.DagsterRun | None) -> None:
        if run is None:
            self._tell(_key(order), ExecutionStatus.CANCELLED, "stopped before it began")
            self._drop(order)
        elif run.is_finished:
            self._drop(order)
        elif run.status is not dg.DagsterRunStatus.CANCELING:
            end_run(self._instance, run.run_id)

    def _end(self, key: JobKey, run: dg.DagsterRun, *, has_begun: bool) -> None:
        # Of a step that Dagster tries again, the newest record counts.
        record = next(iter(self._state.find_runs(key.job, [run.run_id])), None)
        is_success = run.status is dg.DagsterRunStatus.SUCCESS
        if not has_begun and (is_success or record is not None):
            # It was over before it was looked at, and has a start nevertheless.
            self._tell(key, ExecutionStatus.RUNNING, run_id=run.run_id)
        if record is None and is_success:
            # A run that found nothing new leaves no record.
            self._tell(key, ExecutionStatus.COMPLETE, "nothing to do", run_id=run.run_id)
            return
        if record is None or record.status not in _STATUS:
            is_cancelled = run.status is dg.DagsterRunStatus.CANCELED
            status = ExecutionStatus.CANCELLED if is_cancelled else ExecutionStatus.FAILED
            message = f"its Dagster run {run.run_id} ended as {run.status.value} before the job did; see its log"
            self._tell(key, status, message, run_id=run.run_id)
            return
        moved = {urn: one for urn, one in record.datasets.items() if one.outcome is DatasetOutcome.COMMITTED}
        self._orchestrator.report(
            JobReport.of(
                key,
                _STATUS[record.status],
                _message(record),
                run.run_id,
                sum(one.rows for one in moved.values()),
                "; ".join(f"{urn}: {one.low}" for urn, one in moved.items() if one.low),
                "; ".join(f"{urn}: {one.high}" for urn, one in moved.items() if one.high),
            )
        )

    def _tell(self, key: JobKey, status: ExecutionStatus, message: str = "", run_id: str = "") -> None:
        self._orchestrator.report(JobReport.of(key, status, message, run_id))

    def _drop(self, order: Order) -> None:
        with self._store.write() as transaction:
            drop_orders(transaction, [order])

    def _runs(self, keys: Iterable[JobKey]) -> dict[JobKey, dg.DagsterRun]:
        """Return the newest run of each job that has one."""
        wanted = {str(key): key for key in keys}
        texts, found = list(wanted), dict[JobKey, dg.DagsterRun]()
        for at in range(0, len(texts), _KEYS_AT_ONCE):
            asked = dg.RunsFilter(tags={KEY_TAG: texts[at : at + _KEYS_AT_ONCE]})
            for run in self._instance.get_runs(asked):  # newest first
                found.setdefault(wanted[run.tags[KEY_TAG]], run)
        return found


def _request(key: JobKey) -> dg.RunRequest:
    return dg.RunRequest(run_key=str(key), job_name=f"{key.job}_job", tags=run_tags(key))


def _key(order: Order) -> JobKey:
    flow = order.execution.flow
    return JobKey(flow.group, flow.name, order.execution.number, order.job, order.generation, order.attempt)


def _key_of(execution: ExecutionId, job: JobExecution) -> JobKey:
    flow = execution.flow
    return JobKey(flow.group, flow.name, execution.number, job.job.name, job.generation, job.attempt)


def _message(record: RunRecord) -> str:
    """Say what became of the datasets that had work, and why some failed."""
    counts: dict[str, int] = {}
    for dataset in record.datasets.values():
        counts[dataset.outcome.value] = counts.get(dataset.outcome.value, 0) + 1
    told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    if not told:
        is_idle = record.status is RunStatus.SUCCEEDED
        told = "nothing to do" if is_idle else f"Dagster run {record.run_id} ended before any dataset; see its log"
    failed = [f"{urn}: {one.error}" for urn, one in record.datasets.items() if one.error]
    return "; ".join([told, *failed[:5]])
