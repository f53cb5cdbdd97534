"""Rows of events: what happened in executions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import insert, select

from gobblin_dagster.service.model import ExecutionId, ExecutionStatus
from gobblin_dagster.service.store._row_keys import is_execution, key_of
from gobblin_dagster.service.store.store import Transaction
from gobblin_dagster.service.store.tables import events


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in an execution; `job` is empty if it concerns the whole flow."""

    execution: ExecutionId
    at: datetime
    status: ExecutionStatus
    job: str = ""
    message: str = ""
    number: int = 0


def add_events(transaction: Transaction, new: Sequence[Event]) -> None:
    """Store what happened."""
    if not new:
        return
    transaction.execute(
        insert(events),
        [
            {
                **key_of(event.execution),
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
    query = select(events).where(is_execution(events, execution), events.c.number > after).order_by(events.c.number)
    return [
        Event(execution, row.at, ExecutionStatus(row.status), row.job_name, row.message, row.number)
        for row in transaction.execute(query)
    ]
