"""Rows of job executions: the jobs of the executions of flows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, and_, func, insert, select, update

from gobblin_dagster.service.model import Dag, DagJob, ExecutionId, ExecutionStatus, FlowId, FlowSpec
from gobblin_dagster.service.store._row_keys import id_of, is_execution, is_of_flow, key_of
from gobblin_dagster.service.store.flow_rows import load_flow, load_version
from gobblin_dagster.service.store.store import Transaction
from gobblin_dagster.service.store.tables import executions, flow_versions, jobs

GIVEN = (
    ExecutionStatus.PENDING,
    ExecutionStatus.PENDING_RETRY,
    ExecutionStatus.ORCHESTRATED,
    ExecutionStatus.RUNNING,
)
"""Statuses of jobs that were ordered from an executor and are not over."""


@dataclass(frozen=True, slots=True)
class JobExecution:
    """One job of an execution."""

    job: DagJob
    status: ExecutionStatus = ExecutionStatus.COMPILED
    generation: int = 1
    attempt: int = 1
    message: str = ""
    run_id: str = ""
    """The engine's run; empty until an executor took the job."""
    processed_count: int = 0
    low_watermark: str = ""
    high_watermark: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    start_by: datetime | None = None
    """The job is given up then if it has not started; None: it runs, is over, or may wait."""
    holder: str = ""
    """The node whose executor took the job; empty before."""
    is_kill_requested: bool = False
    """Whether a person ended this job."""


def overdue_jobs(transaction: Transaction, now: datetime, limit: int) -> list[tuple[ExecutionId, str]]:
    """Return jobs whose start deadline has passed while they wait for their start."""
    query = select(jobs).where(jobs.c.start_by <= now).order_by(jobs.c.start_by).limit(limit)
    return [(id_of(row), row.job_name) for row in transaction.execute(query)]


def add_jobs(transaction: Transaction, execution: ExecutionId, dag: Dag) -> None:
    """Store the jobs of an execution."""
    rows = [
        {
            **key_of(execution),
            **_whose(execution, job),
            "job_name": job.name,
            "position": position,
            "parents": json.dumps(job.parents),
            "max_attempts": job.max_attempts,
            "start_within_s": job.start_within_s,
            "executor": job.executor,
            "body": job.body,
            "status": ExecutionStatus.COMPILED.value,
            "message": "",
            "generation": 1,
            "attempt": 1,
            "run_id": "",
            "processed_count": 0,
            "low_watermark": "",
            "high_watermark": "",
        }
        for position, job in enumerate(dag.jobs)
    ]
    transaction.execute(insert(jobs), rows)


def _whose(execution: ExecutionId, job: DagJob) -> dict[str, Any]:
    flow, version = job.child or (execution.flow, None)
    return {"of_group": flow.group, "of_name": flow.name, "of_version": version}


def load_jobs(transaction: Transaction, execution: ExecutionId) -> list[JobExecution]:
    """Return the jobs of an execution, parents first."""
    query = select(jobs).where(is_execution(jobs, execution)).order_by(jobs.c.position)
    return [job_of(row) for row in transaction.execute(query)]


def load_job(transaction: Transaction, execution: ExecutionId, name: str) -> JobExecution | None:
    """Return one job of an execution, or None."""
    row = transaction.execute(select(jobs).where(is_execution(jobs, execution), jobs.c.job_name == name)).one_or_none()
    return None if row is None else job_of(row)


def update_job(transaction: Transaction, execution: ExecutionId, name: str, values: Mapping[str, Any]) -> None:
    """Change columns of a job."""
    transaction.execute(update(jobs).where(is_execution(jobs, execution), jobs.c.job_name == name).values(dict(values)))


def jobs_that_ran(transaction: Transaction, flow: FlowId) -> list[DagJob]:
    """Return each job that executions of a flow had, as its newest execution has it, by name."""
    of_flow = and_(jobs.c.flow_group == flow.group, jobs.c.flow_name == flow.name)
    newest = (
        select(jobs.c.job_name, func.max(jobs.c.execution_id).label("newest"))
        .where(of_flow)
        .group_by(jobs.c.job_name)
        .subquery()
    )
    query = (
        select(jobs)
        .join(newest, and_(jobs.c.job_name == newest.c.job_name, jobs.c.execution_id == newest.c.newest))
        .where(of_flow)
        .order_by(jobs.c.job_name)
    )
    return [job_of(row).job for row in transaction.execute(query)]


def other_definition_ran(transaction: Transaction, execution: ExecutionId, job: DagJob) -> ExecutionId | None:
    """Return a later execution in which a job of the same name ran with another body; None if there is none."""
    is_later = and_(jobs.c.job_name == job.name, jobs.c.execution_id > execution.number)
    query = select(jobs).where(is_later, jobs.c.run_id != "", jobs.c.body != job.body).limit(1)
    row = transaction.execute(query).first()
    return None if row is None else id_of(row)


@dataclass(frozen=True, slots=True)
class JobOfFlow:
    """A job that a flow had in its newest execution with jobs."""

    body: str
    is_changed: bool
    """Whether the flow has another template or other properties since; then it may have other jobs."""


def find_job_of_flow(transaction: Transaction, job: str) -> JobOfFlow | None:
    """Return a job that a flow which exists had in the newest execution with jobs of it, or None.

    The execution may be one of a flow of flows that names it as a child.
    """
    other = jobs.alias()
    of_same_flow = and_(other.c.of_group == jobs.c.of_group, other.c.of_name == jobs.c.of_name)
    newest = select(func.max(other.c.execution_id)).where(of_same_flow).scalar_subquery()
    row = transaction.execute(
        select(jobs).where(jobs.c.job_name == job, jobs.c.execution_id == newest).limit(1)
    ).first()
    if row is None:
        return None
    flow = FlowId(row.of_group, row.of_name)
    now = load_flow(transaction, flow)
    if now is None:
        return None
    version = row.of_version
    if version is None:
        version = transaction.scalar(select(executions.c.version).where(is_execution(executions, id_of(row))))
    then = None if version is None else load_version(transaction, flow, version)
    return JobOfFlow(row.body, then is not None and _jobs_made_of(now) != _jobs_made_of(then))


def _jobs_made_of(spec: FlowSpec) -> tuple[str, Mapping[str, str]]:
    return spec.config.template_uris, spec.config.properties


def flow_changed_at(transaction: Transaction, job: str) -> datetime | None:
    """Return when the flow that had a job was changed last, posted or deleted; None if no flow had such a job."""
    flow = select(jobs.c.of_group, jobs.c.of_name).where(jobs.c.job_name == job).distinct().subquery()
    is_of_it = and_(flow_versions.c.flow_group == flow.c.of_group, flow_versions.c.flow_name == flow.c.of_name)
    query = select(func.max(flow_versions.c.changed_at)).select_from(flow.join(flow_versions, is_of_it))
    found: datetime | None = transaction.execute(query).scalar()
    return found


def open_jobs(transaction: Transaction, executor: str) -> list[tuple[ExecutionId, JobExecution]]:
    """Return the jobs that an executor was given and that are not over, oldest execution first."""
    given = jobs.c.status.in_([status.value for status in GIVEN])
    query = select(jobs).where(jobs.c.executor == executor, given).order_by(jobs.c.execution_id, jobs.c.position)
    return [(id_of(row), job_of(row)) for row in transaction.execute(query)]


def unfinished_jobs(transaction: Transaction, flow: FlowId) -> list[tuple[ExecutionId, JobExecution]]:
    """Return the jobs of a flow that are not over, in the order of their executions and in each of its DAG."""
    is_open = jobs.c.status.in_([status.value for status in (ExecutionStatus.COMPILED, *GIVEN)])
    query = select(jobs).where(is_of_flow(jobs, flow), is_open).order_by(jobs.c.execution_id, jobs.c.position)
    return [(id_of(row), job_of(row)) for row in transaction.execute(query)]


def job_of(row: Row[Any]) -> JobExecution:
    """Return the job of a row of `jobs`."""
    parents = tuple(json.loads(row.parents))
    dag_job = DagJob(row.job_name, row.executor, row.body, parents, row.max_attempts, row.start_within_s)
    return JobExecution(
        dag_job,
        ExecutionStatus(row.status),
        row.generation,
        row.attempt,
        row.message,
        row.run_id,
        row.processed_count,
        row.low_watermark,
        row.high_watermark,
        row.started_at,
        row.ended_at,
        row.start_by,
        row.holder,
        row.is_kill_requested,
    )
