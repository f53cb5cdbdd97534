"""Steps of the DAG engine in rows: how far an execution is by its rows, and what a step or a report changes in them.

The engine (`dag.py`) decides on values and knows no database; `Orchestrator` asks it, and stores its answers with this.
Each function runs in the caller's transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from gobblin_dagster.service.model import (
    Change,
    Dag,
    DagJob,
    ExecutionId,
    ExecutionStatus,
    FlowSpec,
    JobReport,
)
from gobblin_dagster.service.orchestrator.dag import (
    WAITING,
    FlowProgress,
    JobProgress,
    Start,
    Step,
    Stop,
    flow_status,
    is_over,
)
from gobblin_dagster.service.store.event_rows import Event, add_event
from gobblin_dagster.service.store.execution_rows import Execution, load_execution, update_execution
from gobblin_dagster.service.store.flow_rows import is_last_run, load_flow, save_flow
from gobblin_dagster.service.store.job_rows import JobExecution, load_jobs, update_job
from gobblin_dagster.service.store.order_rows import Order, add_orders
from gobblin_dagster.service.store.store import Transaction, serialize_changes

log = logging.getLogger(__name__)

SERVICE = "service"
"""The name under which the service itself changes flows."""


def locked_execution(transaction: Transaction, execution_id: ExecutionId, *, may_end: bool = True) -> Execution | None:
    """Return an execution, and keep others from changing it until the transaction ends.

    If its flow leaves the catalog with the end of it, the catalog's lock is taken first, as by all who take both. A
    flow that was changed since can never be the one that ran again.
    """
    if may_end and transaction.dialect.name == "postgresql" and is_last_run(transaction, execution_id):
        serialize_changes(transaction)
    return load_execution(transaction, execution_id, for_update=True)


def dag_of(execution: Execution, jobs: Iterable[JobExecution]) -> Dag:
    """Return the jobs of an execution as the engine takes them."""
    return Dag(tuple(job.job for job in jobs), execution.on_failure)


def progress_of(execution: Execution, jobs: Iterable[JobExecution]) -> FlowProgress:
    """Return how far the jobs of an execution are, as the engine takes it."""
    known = {job.job.name: JobProgress(job.status, job.generation, job.attempt, job.is_kill_requested) for job in jobs}
    return FlowProgress(MappingProxyType(known), execution.is_kill_requested)


def orders_of(execution: ExecutionId, executors: dict[str, str], step: Step) -> list[Order]:
    """Return what a step tells executors to start and to end.

    Args:
        execution: the execution.
        executors: names of executors, by job.
        step: the step.
    """
    return [
        Order(executors[action.job], execution, action.job, action.generation, action.attempt, isinstance(action, Stop))
        for action in step.actions
        if isinstance(action, Start | Stop)
    ]


def save_report(transaction: Transaction, report: JobReport, now: datetime) -> None:
    """Store what an executor says of a job, without its status: `save_step` stores this."""
    values: dict[str, Any] = {"message": report.message}
    if report.run_id:
        values["run_id"] = report.run_id
    if report.status is ExecutionStatus.RUNNING:
        values["started_at"] = now
    if report.status.is_final:
        values["ended_at"] = now
        values["processed_count"] = report.processed_count
        values["low_watermark"] = report.low_watermark
        values["high_watermark"] = report.high_watermark
    log.info("job %s is %s%s", report.job, report.status, f": {report.message}" if report.message else "")
    update_job(transaction, report.execution, report.job, values)
    add_event(transaction, Event(report.execution, now, report.status, report.job, report.message))


def save_step(
    transaction: Transaction,
    execution: Execution,
    jobs: list[JobExecution],
    before: FlowProgress,
    step: Step,
    now: datetime,
) -> None:
    """Store what a step changed: statuses of jobs and of the flow, and orders to executors."""
    dag_jobs = {job.job.name: job.job for job in jobs}
    begun = {action.job for action in step.actions if isinstance(action, Start)}
    for name, progress in step.progress.jobs.items():
        old = before.jobs[name]
        if progress != old:
            values: dict[str, Any] = {
                "status": progress.status.value,
                "generation": progress.generation,
                "attempt": progress.attempt,
                "is_kill_requested": progress.is_killed,
            }
            if progress.status is ExecutionStatus.PENDING_RETRY or progress.generation > old.generation:
                values |= {"ended_at": None, "started_at": None, "run_id": ""}
            if name in begun:
                values["start_by"] = _start_by(dag_jobs[name], now)
            elif progress.status not in WAITING:
                values["start_by"] = None
            update_job(transaction, execution.id, name, values)
            if progress.status is ExecutionStatus.CANCELLED and old.status is ExecutionStatus.COMPILED:
                message = _why_skipped(execution, dag_jobs[name], step.progress)
                update_job(transaction, execution.id, name, {"message": message, "ended_at": now})
                event = Event(execution.id, now, ExecutionStatus.CANCELLED, name, message)
                add_event(transaction, event)
    executors = {name: job.executor for name, job in dag_jobs.items()}
    add_orders(transaction, orders_of(execution.id, executors, step))
    status = flow_status(step.progress)
    if is_over(step.progress):
        told = _end_message(transaction, execution.id)
        # What was said before the end is the reason for it: a deadline that passed.
        end_execution(transaction, execution.id, status, f"{execution.message}; {told}".removeprefix("; "), now)
    elif status is not execution.status:
        update_execution(transaction, execution.id, status=status.value)
        add_event(transaction, Event(execution.id, now, status))


def end_execution(
    transaction: Transaction, execution_id: ExecutionId, status: ExecutionStatus, message: str, now: datetime
) -> None:
    """Store the end of an execution; its flow leaves the catalog if it has no schedule."""
    # Written before the transaction ends: if it fails after all, a line with the error follows.
    log.info("execution %s is %s: %s", execution_id, status, message)
    update_execution(transaction, execution_id, status=status.value, message=message, is_over=True, ended_at=now)
    add_event(transaction, Event(execution_id, now, status, message=message))
    spec = load_flow(transaction, execution_id.flow) if is_last_run(transaction, execution_id) else None
    if spec is not None:
        # As in Gobblin, a flow without a schedule leaves the catalog once it has run.
        done = FlowSpec(spec.config, 0, Change.FINISHED, now, SERVICE, managed_by=spec.managed_by)
        save_flow(transaction, done, None)


def _start_by(job: DagJob, now: datetime) -> datetime | None:
    return None if job.start_within_s is None else now + timedelta(seconds=job.start_within_s)


def _why_skipped(execution: Execution, job: DagJob, progress: FlowProgress) -> str:
    """Return why a job is over that was never given to an executor."""
    if progress.jobs[job.name].is_killed:
        return "killed before it started"
    if progress.is_killed:
        return "not started: the flow was killed"
    for parent in job.parents:
        status = progress.jobs[parent].status
        if status.is_final and status is not ExecutionStatus.COMPLETE:
            return f"not started: job {parent} before it is {status}"
    return f"not started: another job did not complete, and flow.failureOption is {execution.on_failure}"


def _end_message(transaction: Transaction, execution: ExecutionId) -> str:
    """Return what people read of an execution that is over: messages of failed jobs, or the rows that were read."""
    jobs = load_jobs(transaction, execution)
    failed = [f"{job.job.name}: {job.message}" for job in jobs if job.status is ExecutionStatus.FAILED]
    if failed:
        return "; ".join(failed)
    rows = sum(job.processed_count for job in jobs)
    return f"{rows:,} rows in {len(jobs)} job{'s' if len(jobs) != 1 else ''}"
