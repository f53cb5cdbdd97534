"""Rows of executions of flows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, and_, delete, exists, func, or_, select, tuple_, update

from gobblin_dagster.database.dialect import insert as insert_or_ignore
from gobblin_dagster.service.model import ExecutionId, ExecutionStatus, FailureOption, FlowId, Trigger
from gobblin_dagster.service.store._row_keys import id_of, is_execution, is_of_flow, key_of
from gobblin_dagster.service.store.event_rows import Event, add_events
from gobblin_dagster.service.store.store import Transaction
from gobblin_dagster.service.store.tables import events, executions, jobs

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


def add_executions(transaction: Transaction, new: Sequence[Execution]) -> list[Execution]:
    """Store new executions, and return those that were not there: a flow has one execution with a number."""
    if not new:
        return []
    rows = [
        {
            **key_of(execution.id),
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
    added = {id_of(row) for row in transaction.execute(statement, rows)}
    return [execution for execution in new if execution.id in added]


def update_execution(transaction: Transaction, execution: ExecutionId, **values: Any) -> None:
    """Change columns of an execution."""
    transaction.execute(update(executions).where(is_execution(executions, execution)).values(values))


def load_execution(transaction: Transaction, execution: ExecutionId, *, for_update: bool = False) -> Execution | None:
    """Return an execution, or None; `for_update` keeps other nodes from changing it until the transaction ends."""
    query = select(executions).where(is_execution(executions, execution))
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
    waiting = and_(is_of_flow(executions, flow), ~executions.c.is_over, executions.c.status.in_(_NOT_BEGUN))
    values = {"status": ExecutionStatus.CANCELLED.value, "message": message, "is_over": True, "ended_at": now}
    key = (executions.c.flow_group, executions.c.flow_name, executions.c.execution_id)
    ended = [
        id_of(row) for row in transaction.execute(update(executions).where(waiting).values(values).returning(*key))
    ]
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
    return [id_of(row) for row in transaction.execute(query)]


def first_in_the_way(transaction: Transaction, execution: ExecutionId) -> ExecutionId | None:
    """Return an execution of the same flow that is not over, and has begun or has a lower number; None if none is."""
    has_begun = executions.c.status.not_in(_NOT_BEGUN)
    query = (
        select(executions)
        .where(
            is_of_flow(executions, execution.flow), executions.c.execution_id != execution.number, ~executions.c.is_over
        )
        .where(or_(executions.c.execution_id < execution.number, has_begun))
        .order_by(executions.c.execution_id)
        .limit(1)
    )
    row = transaction.execute(query).one_or_none()
    return None if row is None else id_of(row)


def last_with_jobs(transaction: Transaction, before: ExecutionId) -> Execution | None:
    """Return the newest execution with jobs among those of the same flow with lower numbers; None if none has any."""
    of_flow = and_(is_of_flow(jobs, before.flow), jobs.c.execution_id < before.number)
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
    return [(row.ended_at, id_of(row)) for row in transaction.execute(query.limit(limit))]


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
    return [id_of(row) for row in transaction.execute(query)]


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
    return [id_of(row) for row in transaction.execute(query)]


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
    return [id_of(row) for row in transaction.execute(query)]


def _execution(row: Row[Any]) -> Execution:
    return Execution(
        id_of(row),
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
