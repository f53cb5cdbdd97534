"""Rows of executions: of flows, of their jobs, what happened to them, and orders to executors."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, Select, and_, delete, exists, func, insert, or_, select, tuple_, update

from gobblin_dagster.database.dialect import insert as insert_or_ignore
from gobblin_dagster.service.model import Dag, DagJob, ExecutionId, ExecutionStatus, FailureOption, FlowId, Trigger
from gobblin_dagster.service.store.store import Transaction
from gobblin_dagster.service.store.tables import events, executions, jobs, outbox

_START, _STOP = "start", "stop"
"""Orders, as the outbox holds them."""
_NOT_BEGUN = (ExecutionStatus.PENDING.value, ExecutionStatus.PENDING_RESUME.value)
"""Statuses of executions that wait for their start, or to go on after a resume."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a flow."""

    id: ExecutionId
    version: int
    """The version of the flow that it runs; it never changes."""
    trigger: Trigger
    status: ExecutionStatus
    created_at: datetime
    message: str = ""
    generation: int = 1
    is_kill_requested: bool = False
    is_over: bool = False
    ended_at: datetime | None = None
    finish_by: datetime | None = None
    """The execution is killed then if it is not over; None: never."""
    on_failure: FailureOption = FailureOption.FINISH_ALL_POSSIBLE
    user: str = ""
    """For whom it runs; empty: for nobody who has a quota."""
    owner: str = ""
    """The group that owns the flow; empty: none."""


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


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in an execution; `job` is empty if it concerns the whole flow."""

    execution: ExecutionId
    at: datetime
    status: ExecutionStatus
    job: str = ""
    message: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True)
class Order:
    """What an executor is asked to do."""

    executor: str
    execution: ExecutionId
    job: str
    generation: int
    attempt: int
    is_stop: bool = False
    number: int = 0


def add_executions(transaction: Transaction, new: Sequence[Execution]) -> list[Execution]:
    """Store new executions, and return those that were not there: a flow has one execution with a number."""
    if not new:
        return []
    rows = [
        {
            **_key(execution.id),
            "version": execution.version,
            "trigger": execution.trigger.value,
            "status": execution.status.value,
            "message": execution.message,
            "generation": execution.generation,
            "is_kill_requested": execution.is_kill_requested,
            "is_over": execution.is_over,
            "created_at": execution.created_at,
            "ended_at": execution.ended_at,
            "user_name": execution.user,
            "owning_group": execution.owner,
        }
        for execution in new
    ]
    key = (executions.c.flow_group, executions.c.flow_name, executions.c.execution_id)
    statement = insert_or_ignore(transaction, executions).on_conflict_do_nothing().returning(*key)
    added = {_id(row) for row in transaction.execute(statement, rows)}
    return [execution for execution in new if execution.id in added]


def update_execution(transaction: Transaction, execution: ExecutionId, **values: Any) -> None:
    """Change columns of an execution."""
    transaction.execute(update(executions).where(_is(executions, execution)).values(values))


def load_execution(transaction: Transaction, execution: ExecutionId, *, for_update: bool = False) -> Execution | None:
    """Return an execution, or None; `for_update` keeps other nodes from changing it until the transaction ends."""
    query = select(executions).where(_is(executions, execution))
    if for_update and transaction.dialect.name == "postgresql":
        query = query.with_for_update()
    row = transaction.execute(query).one_or_none()
    return None if row is None else _execution(row)


def list_executions(
    transaction: Transaction,
    flow: FlowId,
    count: int = 10,
    status: ExecutionStatus | None = None,
    before: int | None = None,
) -> list[Execution]:
    """Return the newest executions of a flow, newest first; `before`: only those with lower numbers."""
    query = select(executions).where(executions.c.flow_group == flow.group, executions.c.flow_name == flow.name)
    if status is not None:
        query = query.where(executions.c.status == status.value)
    if before is not None:
        query = query.where(executions.c.execution_id < before)
    query = query.order_by(executions.c.execution_id.desc()).limit(count)
    return [_execution(row) for row in transaction.execute(query)]


def end_waiting(transaction: Transaction, flow: FlowId, message: str, now: datetime) -> list[ExecutionId]:
    """Cancel the executions of a flow that wait for their start, or to go on after a resume, and return them."""
    waiting = and_(_is_of(executions, flow), ~executions.c.is_over, executions.c.status.in_(_NOT_BEGUN))
    values = {"status": ExecutionStatus.CANCELLED.value, "message": message, "is_over": True, "ended_at": now}
    key = (executions.c.flow_group, executions.c.flow_name, executions.c.execution_id)
    ended = [_id(row) for row in transaction.execute(update(executions).where(waiting).values(values).returning(*key))]
    add_events(transaction, [Event(one, now, ExecutionStatus.CANCELLED, message=message) for one in ended])
    return ended


def flows_with_executions(transaction: Transaction, group: str) -> list[FlowId]:
    """Return the flows of a group that have executions, by name."""
    query = select(executions.c.flow_name).where(executions.c.flow_group == group).distinct()
    return [FlowId(group, name) for name in sorted(transaction.scalars(query))]


def first_accepted(
    transaction: Transaction,
    full_groups: Collection[str] = (),
    full_users: Collection[str] = (),
    full_owners: Collection[str] = (),
    *,
    limit: int = 10_000,
) -> list[ExecutionId]:
    """Return the oldest execution of each flow that waits for its start, or to go on, oldest first.

    Without those of flow groups, users and owning groups that have as many executions as they may have.
    """
    key = (executions.c.flow_group, executions.c.flow_name)
    first = (
        select(*key, func.min(executions.c.execution_id).label("execution_id"))
        .where(~executions.c.is_over, executions.c.status.in_(_NOT_BEGUN))
        .group_by(*key)
        .subquery()
    )
    names = ("flow_group", "flow_name", "execution_id")
    query = (
        select(executions)
        .join(first, and_(*(executions.c[name] == first.c[name] for name in names)))
        .where(executions.c.flow_group.not_in(full_groups), executions.c.user_name.not_in(full_users))
        .where(executions.c.owning_group.not_in(full_owners))
        .order_by(executions.c.created_at, executions.c.execution_id)
        .limit(limit)
    )
    return [_id(row) for row in transaction.execute(query)]


def first_in_the_way(transaction: Transaction, execution: ExecutionId) -> ExecutionId | None:
    """Return an execution of the same flow that is not over, and has begun or has a lower number; None if none is."""
    has_begun = executions.c.status.not_in(_NOT_BEGUN)
    query = (
        select(executions)
        .where(_is_of(executions, execution.flow), executions.c.execution_id != execution.number, ~executions.c.is_over)
        .where(or_(executions.c.execution_id < execution.number, has_begun))
        .order_by(executions.c.execution_id)
        .limit(1)
    )
    row = transaction.execute(query).one_or_none()
    return None if row is None else _id(row)


def last_with_jobs(transaction: Transaction, before: ExecutionId) -> Execution | None:
    """Return the newest execution with jobs among those of the same flow with lower numbers; None if none has any."""
    of_flow = and_(_is_of(jobs, before.flow), jobs.c.execution_id < before.number)
    number = transaction.execute(select(func.max(jobs.c.execution_id)).where(of_flow)).scalar_one()
    return None if number is None else load_execution(transaction, ExecutionId(before.flow, number))


def running_by_group(transaction: Transaction, group: str | None = None, *, waiting: bool = False) -> dict[str, int]:
    """Return how many executions of each flow group, or of one, were started and are not over.

    Args:
        transaction: open.
        group: the only one that counts; None: all.
        waiting: whether those that were accepted and not started count too.
    """
    return _open_by(transaction, executions.c.flow_group, group, waiting=waiting)


def running_by_user(transaction: Transaction, user: str | None = None, *, waiting: bool = False) -> dict[str, int]:
    """Return how many executions of each user are not over, as `running_by_group` does; nobody is no user."""
    found = _open_by(transaction, executions.c.user_name, user, waiting=waiting)
    return {name: number for name, number in found.items() if name}


def running_by_owner(transaction: Transaction, owner: str | None = None, *, waiting: bool = False) -> dict[str, int]:
    """Return how many executions of each owning group are not over, as `running_by_user` does."""
    found = _open_by(transaction, executions.c.owning_group, owner, waiting=waiting)
    return {name: number for name, number in found.items() if name}


def _open_by(transaction: Transaction, column: Any, only: str | None, *, waiting: bool) -> dict[str, int]:
    query = select(column.label("name"), func.count().label("number")).where(~executions.c.is_over).group_by(column)
    if not waiting:
        query = query.where(executions.c.status.not_in(_NOT_BEGUN))
    if only is not None:
        query = query.where(column == only)
    return {row.name: row.number for row in transaction.execute(query)}


Ended = tuple[datetime, ExecutionId]
"""When an execution ended, and which one."""


def ended_after(transaction: Transaction, after: Ended | None, limit: int) -> list[Ended]:
    """Return executions that ended after another one (None: all), the earliest end first."""
    key = (executions.c.flow_group, executions.c.flow_name, executions.c.execution_id)
    query = select(executions).where(executions.c.ended_at.is_not(None)).order_by(executions.c.ended_at, *key)
    if after is not None:
        at, last = after
        at_once = and_(executions.c.ended_at == at, tuple_(*key) > tuple_(last.flow.group, last.flow.name, last.number))
        query = query.where(executions.c.ended_at >= at, or_(executions.c.ended_at > at, at_once))
    return [(row.ended_at, _id(row)) for row in transaction.execute(query.limit(limit))]


def over_before(transaction: Transaction, instant: datetime, limit: int) -> list[ExecutionId]:
    """Return executions that ended before an instant, the oldest end first.

    Without the newest of each flow, and without the newest that had jobs.
    """
    later = executions.alias("later")
    is_newest = ~(
        exists()
        .where(later.c.flow_group == executions.c.flow_group, later.c.flow_name == executions.c.flow_name)
        .where(later.c.execution_id > executions.c.execution_id)
    )
    query = (
        select(executions)
        .where(executions.c.is_over, executions.c.ended_at < instant, ~is_newest, _is_not_last_with_jobs())
        .order_by(executions.c.ended_at)
        .limit(limit)
    )
    return [_id(row) for row in transaction.execute(query)]


def over_beyond(transaction: Transaction, flow: FlowId, keep: int, limit: int) -> list[ExecutionId]:
    """Return executions of a flow that are over and not among its newest `keep`, newest first.

    Without the newest that had jobs.
    """
    of_flow = and_(executions.c.flow_group == flow.group, executions.c.flow_name == flow.name)
    newest_first = executions.c.execution_id.desc()
    kept = select(executions.c.execution_id).where(of_flow).order_by(newest_first).offset(keep - 1).limit(1)
    query = (
        select(executions)
        .where(of_flow, executions.c.is_over, executions.c.execution_id < kept.scalar_subquery())
        .where(_is_not_last_with_jobs())
        .order_by(newest_first)
        .limit(limit)
    )
    return [_id(row) for row in transaction.execute(query)]


def _is_not_last_with_jobs() -> Any:
    """Tell whether an execution is not the newest of its flow that had jobs, as the flow's next one goes on from it."""
    same = and_(jobs.c.flow_group == executions.c.flow_group, jobs.c.flow_name == executions.c.flow_name)
    newest = select(func.max(jobs.c.execution_id)).where(same).correlate(executions).scalar_subquery()
    return executions.c.execution_id.is_distinct_from(newest)


def delete_executions(transaction: Transaction, old: Sequence[ExecutionId]) -> None:
    """Delete executions with their jobs and events; those that are not over by now stay."""
    keys = [(one.flow.group, one.flow.name, one.number) for one in old]
    if not keys:
        return

    def among(table: Any, wanted: Sequence[tuple[str, str, int]]) -> Any:
        return tuple_(table.c.flow_group, table.c.flow_name, table.c.execution_id).in_(wanted)

    columns = (executions.c.flow_group, executions.c.flow_name, executions.c.execution_id)
    statement = delete(executions).where(executions.c.is_over, among(executions, keys)).returning(*columns)
    gone = [(row.flow_group, row.flow_name, row.execution_id) for row in transaction.execute(statement)]
    for table in (jobs, events) if gone else ():
        transaction.execute(delete(table).where(among(table, gone)))


def overdue_executions(transaction: Transaction, now: datetime, limit: int) -> list[ExecutionId]:
    """Return executions whose finish deadline has passed and that nobody killed yet."""
    late = and_(~executions.c.is_over, ~executions.c.is_kill_requested, executions.c.finish_by <= now)
    query = select(executions).where(late).order_by(executions.c.finish_by).limit(limit)
    return [_id(row) for row in transaction.execute(query)]


def overdue_jobs(transaction: Transaction, now: datetime, limit: int) -> list[tuple[ExecutionId, str]]:
    """Return jobs whose start deadline has passed while they wait for their start."""
    query = select(jobs).where(jobs.c.start_by <= now).order_by(jobs.c.start_by).limit(limit)
    return [(_id(row), row.job_name) for row in transaction.execute(query)]


def add_jobs(transaction: Transaction, execution: ExecutionId, dag: Dag) -> None:
    """Store the jobs of an execution."""
    rows = [
        {
            **_key(execution),
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


def load_jobs(transaction: Transaction, execution: ExecutionId) -> list[JobExecution]:
    """Return the jobs of an execution, parents first."""
    query = select(jobs).where(_is(jobs, execution)).order_by(jobs.c.position)
    return [_job(row) for row in transaction.execute(query)]


def load_job(transaction: Transaction, execution: ExecutionId, name: str) -> JobExecution | None:
    """Return one job of an execution, or None."""
    row = transaction.execute(select(jobs).where(_is(jobs, execution), jobs.c.job_name == name)).one_or_none()
    return None if row is None else _job(row)


def update_job(transaction: Transaction, execution: ExecutionId, name: str, values: Mapping[str, Any]) -> None:
    """Change columns of a job."""
    transaction.execute(update(jobs).where(_is(jobs, execution), jobs.c.job_name == name).values(dict(values)))


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
    return [_job(row).job for row in transaction.execute(query)]


def open_jobs(transaction: Transaction, executor: str) -> list[tuple[ExecutionId, JobExecution]]:
    """Return the jobs that an executor was given and that are not over, oldest execution first."""
    given = jobs.c.status.in_([status.value for status in _GIVEN])
    query = select(jobs).where(jobs.c.executor == executor, given).order_by(jobs.c.execution_id, jobs.c.position)
    return [(_id(row), _job(row)) for row in transaction.execute(query)]


def unfinished_jobs(transaction: Transaction, flow: FlowId) -> list[tuple[ExecutionId, JobExecution]]:
    """Return the jobs of a flow that are not over, in the order of their executions and in each of its DAG."""
    is_open = jobs.c.status.in_([status.value for status in (ExecutionStatus.COMPILED, *_GIVEN)])
    query = select(jobs).where(_is_of(jobs, flow), is_open).order_by(jobs.c.execution_id, jobs.c.position)
    return [(_id(row), _job(row)) for row in transaction.execute(query)]


_GIVEN = (
    ExecutionStatus.PENDING,
    ExecutionStatus.PENDING_RETRY,
    ExecutionStatus.ORCHESTRATED,
    ExecutionStatus.RUNNING,
)
"""Statuses of jobs that were ordered from an executor and are not over."""


def take_over_jobs(
    transaction: Transaction, executor: str, holder: str, alive: Collection[str]
) -> list[tuple[ExecutionId, JobExecution]]:
    """Give a node the jobs that were taken by nodes that are gone and that are not over, oldest execution first.

    Its own jobs that have not begun are among them.

    Args:
        transaction: open for writing.
        executor: the executor that was given the jobs.
        holder: the node.
        alive: nodes whose jobs are left to them.
    """
    # The order to an executor that was lost waits until it is back, wherever the job moved.
    is_ordered = exists().where(_same_job(), outbox.c.order == _START, outbox.c.executor == executor)
    lost = and_(
        jobs.c.executor == executor,
        jobs.c.status.in_([status.value for status in _GIVEN]),
        or_(jobs.c.holder.not_in([*alive, holder]), and_(jobs.c.holder == holder, jobs.c.run_id == "")),
        ~is_ordered,
    )
    taken = transaction.execute(update(jobs).where(lost).values(holder=holder).returning(jobs)).all()
    return [(_id(row), _job(row)) for row in sorted(taken, key=lambda row: (row.execution_id, row.position))]


def add_events(transaction: Transaction, new: Sequence[Event]) -> None:
    """Store what happened."""
    if not new:
        return
    transaction.execute(
        insert(events),
        [
            {
                **_key(event.execution),
                "job_name": event.job,
                "at": event.at,
                "status": event.status.value,
                "message": event.message,
            }
            for event in new
        ],
    )


def add_event(transaction: Transaction, event: Event) -> None:
    """Store one thing that happened."""
    add_events(transaction, [event])


def list_events(transaction: Transaction, execution: ExecutionId, after: int = 0) -> list[Event]:
    """Return what happened in an execution, in order, after the event with a number."""
    query = select(events).where(_is(events, execution), events.c.number > after).order_by(events.c.number)
    return [
        Event(execution, row.at, ExecutionStatus(row.status), row.job_name, row.message, row.number)
        for row in transaction.execute(query)
    ]


def add_orders(transaction: Transaction, orders: Iterable[Order]) -> None:
    """Store orders to executors."""
    rows = [
        {
            "executor": order.executor,
            **_key(order.execution),
            "job_name": order.job,
            "generation": order.generation,
            "attempt": order.attempt,
            "order": _STOP if order.is_stop else _START,
        }
        for order in orders
    ]
    if rows:
        transaction.execute(insert(outbox), rows)


def take_orders(transaction: Transaction, executor: str, holder: str, limit: int) -> list[Order]:
    """Give a node orders to start jobs, and those to stop jobs that it holds or that nobody has taken.

    An order goes to one node only, whichever asks first. An order to start is deleted. One to stop stays until the job
    is over, so that it is neither lost with the answer, nor with the node.

    Args:
        transaction: open for writing.
        executor: the executor that the orders are for.
        holder: the node.
        limit: jobs that the node starts at most.

    Returns:
        The orders, oldest first.
    """
    stops = select(outbox).where(outbox.c.executor == executor, outbox.c.order == _STOP).order_by(outbox.c.number)
    taken: list[Order] = []
    for order in [_order(row) for row in transaction.execute(_locked(transaction, stops))]:
        is_same = and_(outbox.c.generation == order.generation, outbox.c.attempt == order.attempt)
        started = select(outbox).where(_of_job(outbox, order), is_same, outbox.c.order == _START)
        waiting = [_order(row) for row in transaction.execute(_locked(transaction, started))]
        job = load_job(transaction, order.execution, order.job)
        if job is None or job.status.is_final:
            drop_orders(transaction, [order, *waiting])
        elif waiting or job.holder == holder:
            taken.append(order)
            is_current = (job.generation, job.attempt) == (order.generation, order.attempt)
            if is_current:
                transaction.execute(update(jobs).where(_of_job(jobs, order)).values(holder=holder))
            drop_orders(transaction, waiting if is_current else [order, *waiting])
    starts = select(outbox).where(outbox.c.executor == executor, outbox.c.order == _START).order_by(outbox.c.number)
    begun = [_order(row) for row in transaction.execute(_locked(transaction, starts.limit(limit)))] if limit > 0 else []
    for order in begun:
        transaction.execute(update(jobs).where(_of_job(jobs, order)).values(holder=holder))
    drop_orders(transaction, begun)
    return sorted([*taken, *begun], key=lambda one: one.number)


def list_orders(transaction: Transaction, executor: str, limit: int = 100) -> list[Order]:
    """Return orders to an executor, oldest first."""
    query = select(outbox).where(outbox.c.executor == executor).order_by(outbox.c.number).limit(limit)
    return [_order(row) for row in transaction.execute(query)]


def drop_orders(transaction: Transaction, orders: Sequence[Order]) -> None:
    """Delete orders that were handed over."""
    if orders:
        transaction.execute(delete(outbox).where(outbox.c.number.in_([order.number for order in orders])))


def _locked(transaction: Transaction, query: Select[Any]) -> Select[Any]:
    """Keep rows from other nodes until the transaction ends; those that another node keeps are left out."""
    return query.with_for_update(skip_locked=True) if transaction.dialect.name == "postgresql" else query


def _of_job(table: Any, order: Order) -> Any:
    return and_(_is(table, order.execution), table.c.job_name == order.job)


def _same_job() -> Any:
    names = ("flow_group", "flow_name", "execution_id", "job_name")
    return and_(*(outbox.c[name] == jobs.c[name] for name in names))


def _order(row: Row[Any]) -> Order:
    is_stop = row.order == _STOP
    return Order(row.executor, _id(row), row.job_name, row.generation, row.attempt, is_stop, row.number)


def _key(execution: ExecutionId) -> dict[str, Any]:
    return {
        "flow_group": execution.flow.group,
        "flow_name": execution.flow.name,
        "execution_id": execution.number,
    }


def _is_of(table: Any, flow: FlowId) -> Any:
    return and_(table.c.flow_group == flow.group, table.c.flow_name == flow.name)


def _is(table: Any, execution: ExecutionId) -> Any:
    return and_(
        table.c.flow_group == execution.flow.group,
        table.c.flow_name == execution.flow.name,
        table.c.execution_id == execution.number,
    )


def _id(row: Any) -> ExecutionId:
    return ExecutionId(FlowId(row.flow_group, row.flow_name), row.execution_id)


def _execution(row: Row[Any]) -> Execution:
    return Execution(
        _id(row),
        row.version,
        Trigger(row.trigger),
        ExecutionStatus(row.status),
        row.created_at,
        row.message,
        row.generation,
        row.is_kill_requested,
        row.is_over,
        row.ended_at,
        row.finish_by,
        FailureOption(row.on_failure),
        row.user_name,
        row.owning_group,
    )


def _job(row: Row[Any]) -> JobExecution:
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
