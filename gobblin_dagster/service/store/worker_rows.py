"""Rows of jobs that were ordered from workers: the store in which a worker removes duplicates.

It lies in the service's own database (executors of the type `store`) or in one of the worker's (`kafka`, `rest`).
Workers that share it share the jobs of their executor. Each attempt of a job is one row, which stays after its end, so
that an order that comes again begins nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, Select, and_, delete, or_, select, tuple_, update

from gobblin_dagster.core.utils.text import storable
from gobblin_dagster.database.dialect import insert
from gobblin_dagster.service.model import ExecutionStatus, JobKey, JobReport
from gobblin_dagster.service.store.store import Transaction
from gobblin_dagster.service.store.tables import worker_jobs as jobs

REMEMBERED = timedelta(days=30)
"""How long a job that is over stays, so that an order that comes again is known."""
_NOBODY = ""


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """An attempt that was ordered from workers."""

    key: JobKey
    body: str
    holder: str
    """The worker that took it; empty before."""
    run_id: str
    """The engine's run; empty until it was handed over."""
    is_stop_requested: bool
    is_over: bool


def add_job(transaction: Transaction, executor: str, key: JobKey, body: str, now: datetime) -> bool:
    """Store a job; return False if it was ordered, or stopped, before, which changes nothing."""
    return _add(transaction, executor, key, body, now)


def change_body(transaction: Transaction, key: JobKey, body: str) -> bool:
    """Give a job that has not begun another body; return whether there is one."""
    waits = and_(_is(key), ~jobs.c.is_over, jobs.c.run_id == "")
    return bool(transaction.execute(update(jobs).where(waits).values(body=body)).rowcount)


def stop_job(transaction: Transaction, executor: str, key: JobKey, now: datetime) -> None:
    """Ask for the end of a job; one that has not begun, or that nobody holds, is cancelled and never begins."""
    _add(transaction, executor, key, "", now)
    report = JobReport.of(key, ExecutionStatus.CANCELLED, "stopped before it began")
    is_idle = or_(jobs.c.run_id == "", jobs.c.holder == _NOBODY)
    transaction.execute(
        update(jobs)
        .where(_is(key), ~jobs.c.is_over, is_idle)
        .values(is_stop_requested=True, is_over=True, **_told(report), changed_at=now)
    )
    transaction.execute(update(jobs).where(_is(key), ~jobs.c.is_over).values(is_stop_requested=True))


def load_worker_job(transaction: Transaction, key: JobKey) -> WorkerJob | None:
    """Return a job, or None."""
    row = transaction.execute(select(jobs).where(_is(key))).one_or_none()
    return None if row is None else _job(row)


def has_jobs(transaction: Transaction, executor: str) -> bool:
    """Tell whether an executor has jobs that are not over."""
    query = select(jobs.c.executor).where(jobs.c.executor == executor, ~jobs.c.is_over).limit(1)
    return transaction.execute(query).first() is not None


def list_jobs(transaction: Transaction, executor: str) -> list[WorkerJob]:
    """Return the jobs of an executor that are not over, oldest execution first."""
    query = select(jobs).where(jobs.c.executor == executor, ~jobs.c.is_over).order_by(*_ORDER)
    return [_job(row) for row in transaction.execute(query)]


def free_jobs(transaction: Transaction, executor: str, limit: int) -> list[WorkerJob]:
    """Return jobs that nobody holds, the oldest execution first; others may take them meanwhile."""
    return [_job(row) for row in transaction.execute(_of(_is_free(executor)).limit(limit))]


def take_free(
    transaction: Transaction, executor: str, holder: str, among: Collection[JobKey], limit: int
) -> list[JobKey]:
    """Give a worker jobs out of some that nobody held a moment ago, the oldest execution first; each goes to one."""
    wanted = tuple_(*(jobs.c[name] for name in _KEY)).in_([_values(key) for key in among])
    return _take(transaction, and_(_is_free(executor), wanted), holder, limit) if among else []


def give_jobs(transaction: Transaction, keys: Iterable[JobKey], holder: str) -> None:
    """Give jobs to a worker; an empty name takes them from whoever has them."""
    for key in keys:
        transaction.execute(update(jobs).where(_is(key), ~jobs.c.is_over).values(holder=holder))


def take_jobs(transaction: Transaction, executor: str, holder: str, limit: int) -> list[JobKey]:
    """Give a worker jobs that nobody holds, the oldest execution first; each goes to one worker."""
    return _take(transaction, _is_free(executor), holder, limit) if limit > 0 else []


def _take(transaction: Transaction, which: Any, holder: str, limit: int) -> list[JobKey]:
    found = [_job(row).key for row in transaction.execute(_locked(transaction, _of(which).limit(limit)))]
    give_jobs(transaction, found, holder)
    return found


def _is_free(executor: str) -> Any:
    return and_(jobs.c.executor == executor, ~jobs.c.is_over, jobs.c.holder == _NOBODY)


def stops_of(transaction: Transaction, executor: str, holder: str) -> list[JobKey]:
    """Return the jobs of a worker that are to end."""
    asked = and_(jobs.c.executor == executor, ~jobs.c.is_over, jobs.c.holder == holder, jobs.c.is_stop_requested)
    return [_job(row).key for row in transaction.execute(_of(asked))]


def left_jobs(transaction: Transaction, executor: str, holder: str, alive: Collection[str]) -> list[WorkerJob]:
    """Return the jobs of workers that are gone, and a worker's own that have not begun, oldest execution first.

    No other worker sees them until the transaction ends.
    """
    gone = jobs.c.holder.not_in([*alive, holder, _NOBODY])
    own = and_(jobs.c.holder == holder, jobs.c.run_id == "")
    lost = and_(jobs.c.executor == executor, ~jobs.c.is_over, or_(gone, own))
    return [_job(row) for row in transaction.execute(_locked(transaction, _of(lost)))]


def begin_job(transaction: Transaction, key: JobKey, holder: str, run_id: str, now: datetime) -> str | None:
    """Note that a worker's job is handed over as a run; return its body, or None if it is not the worker's to run."""
    report = JobReport.of(key, ExecutionStatus.ORCHESTRATED, run_id=run_id)
    held = and_(_is(key), ~jobs.c.is_over, jobs.c.holder == holder)
    first = {} if _has_begun(transaction, key) else _told(report)
    changed = update(jobs).where(held).values(run_id=run_id, changed_at=now, **first).returning(jobs.c.body)
    body: str | None = transaction.execute(changed).scalar_one_or_none()
    return body


def save_report(transaction: Transaction, report: JobReport, holder: str, now: datetime) -> bool:
    """Store what became of a worker's job; return False if it is over, or another's by now, which changes nothing."""
    held = and_(_is(report.key), ~jobs.c.is_over, jobs.c.holder == holder)
    run_id = transaction.execute(select(jobs.c.run_id).where(held)).scalar_one_or_none()
    if run_id is None:
        return False
    told = _told(replace(report, run_id=run_id))
    statement = update(jobs).where(held).values(**told, is_over=report.status.is_final, changed_at=now)
    return bool(transaction.execute(statement).rowcount)


def untold_reports(transaction: Transaction, executor: str, limit: int) -> list[JobReport]:
    """Return reports that the service has not taken in, oldest first; of each job the newest.

    The beginning of a job that ended before it was told comes before its end.
    """
    query = (
        select(jobs)
        .where(jobs.c.executor == executor, jobs.c.status != jobs.c.told)
        .order_by(jobs.c.changed_at, *_ORDER)
        .limit(limit)
    )
    found: list[JobReport] = []
    for row in transaction.execute(query):
        report = read_report(row.report)
        if report.status.is_final and row.run_id and row.told != ExecutionStatus.RUNNING:
            found.append(JobReport.of(_job(row).key, ExecutionStatus.RUNNING, run_id=row.run_id))
        found.append(report)
    return found


def mark_told(transaction: Transaction, reports: Sequence[JobReport]) -> None:
    """Note that the service has taken reports in."""
    for report in reports:
        transaction.execute(update(jobs).where(_is(report.key)).values(told=report.status.value))


def forget_old_jobs(transaction: Transaction, executor: str, now: datetime) -> None:
    """Delete jobs that were over for long and that the service knows about."""
    old = and_(jobs.c.is_over, jobs.c.status == jobs.c.told, jobs.c.changed_at < now - REMEMBERED)
    transaction.execute(delete(jobs).where(jobs.c.executor == executor, old))


def write_report(report: JobReport) -> str:
    """Return a report as JSON."""
    more = {name: getattr(report, name) for name in _MORE}
    return json.dumps({"key": asdict(report.key), "status": report.status, **more}, separators=(",", ":"))


def read_report(text: str) -> JobReport:
    """Read a report; raises ValueError if the text is none that a database can hold."""
    try:
        fields = json.loads(text)
        key = JobKey.read(fields["key"])
        more = {name: fields[name] for name in _MORE}
        if any(type(more[name]) is not kind for name, kind in _MORE.items()) or abs(more["processed_count"]) >> 63:
            raise ValueError("a field has another type")
        more = {name: storable(value) if isinstance(value, str) else value for name, value in more.items()}
        status = ExecutionStatus(fields["status"])
        return JobReport.of(key, status, **more)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:  # the last: too deep
        raise ValueError(f"no report of a job: {str(text)[:200]!r}") from error


_MORE: dict[str, type] = {
    "message": str,
    "run_id": str,
    "processed_count": int,
    "low_watermark": str,
    "high_watermark": str,
    "may_retry": bool,
}

_ORDER = (jobs.c.execution_id, jobs.c.flow_group, jobs.c.flow_name, jobs.c.job_name, jobs.c.generation, jobs.c.attempt)


def _add(transaction: Transaction, executor: str, key: JobKey, body: str, now: datetime) -> bool:
    values = {
        **dict(zip(_KEY, _values(key), strict=True)),
        "executor": executor,
        "body": body,
        "holder": _NOBODY,
        "run_id": "",
        "is_stop_requested": False,
        "is_over": False,
        "report": "",
        "status": "",
        "told": "",
        "changed_at": now,
    }
    return bool(transaction.execute(insert(transaction, jobs).values(values).on_conflict_do_nothing()).rowcount)


def _has_begun(transaction: Transaction, key: JobKey) -> bool:
    return bool(transaction.execute(select(jobs.c.run_id).where(_is(key))).scalar_one_or_none())


def _told(report: JobReport) -> dict[str, str]:
    return {"report": write_report(report), "status": report.status.value}


_KEY = ("flow_group", "flow_name", "execution_id", "job_name", "generation", "attempt")


def _values(key: JobKey) -> tuple[Any, ...]:
    return key.group, key.flow, key.execution, key.job, key.generation, key.attempt


def _is(key: JobKey) -> Any:
    return and_(*(jobs.c[name] == value for name, value in zip(_KEY, _values(key), strict=True)))


def _of(condition: Any) -> Select[Any]:
    return select(jobs).where(condition).order_by(*_ORDER)


def _locked(transaction: Transaction, query: Select[Any]) -> Select[Any]:
    return query.with_for_update(skip_locked=True) if transaction.dialect.name == "postgresql" else query


def _job(row: Row[Any]) -> WorkerJob:
    return WorkerJob(
        JobKey(*(getattr(row, name) for name in _KEY)),
        row.body,
        row.holder,
        row.run_id,
        row.is_stop_requested,
        row.is_over,
    )
