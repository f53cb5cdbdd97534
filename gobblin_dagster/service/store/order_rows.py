"""Rows of orders to executors (the outbox), and what nodes take of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, and_, delete, exists, insert, or_, select, update

from gobblin_dagster.service.model import ExecutionId
from gobblin_dagster.service.store._row_keys import id_of, is_execution, key_of
from gobblin_dagster.service.store.job_rows import GIVEN, JobExecution, job_of, load_job
from gobblin_dagster.service.store.store import Transaction
from gobblin_dagster.service.store.tables import jobs, outbox

_START, _STOP = "start", "stop"
"""Orders, as the outbox holds them."""


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


def add_orders(transaction: Transaction, orders: Iterable[Order]) -> None:
    """Store orders to executors."""
    rows = [
        {
            "executor": order.executor,
            **key_of(order.execution),
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
        jobs.c.status.in_([status.value for status in GIVEN]),
        or_(jobs.c.holder.not_in([*alive, holder]), and_(jobs.c.holder == holder, jobs.c.run_id == "")),
        ~is_ordered,
    )
    taken = transaction.execute(update(jobs).where(lost).values(holder=holder).returning(jobs)).all()
    return [(id_of(row), job_of(row)) for row in sorted(taken, key=lambda row: (row.execution_id, row.position))]


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
    return and_(is_execution(table, order.execution), table.c.job_name == order.job)


def _same_job() -> Any:
    names = ("flow_group", "flow_name", "execution_id", "job_name")
    return and_(*(outbox.c[name] == jobs.c[name] for name in names))


def _order(row: Row[Any]) -> Order:
    is_stop = row.order == _STOP
    return Order(row.executor, id_of(row), row.job_name, row.generation, row.attempt, is_stop, row.number)
