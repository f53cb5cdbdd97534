"""Rows of the ways that flows took last, which their next executions keep; they outlive the executions."""

from __future__ import annotations

import json

from sqlalchemy import and_, select

from gobblin_dagster.database.dialect import insert
from gobblin_dagster.service.model import FlowId, TakenWay
from gobblin_dagster.service.store.store import Transaction
from gobblin_dagster.service.store.tables import ways


def save_way(transaction: Transaction, way: TakenWay) -> None:
    """Store the way that a flow takes, in the place of the one before."""
    changed = {"route": way.route, "jobs": json.dumps(sorted(way.jobs))}
    values = {"flow_group": way.flow.group, "flow_name": way.flow.name, **changed}
    statement = insert(transaction, ways).values(values)
    transaction.execute(statement.on_conflict_do_update(index_elements=["flow_group", "flow_name"], set_=changed))


def load_way(transaction: Transaction, flow: FlowId) -> TakenWay | None:
    """Return the way that a flow took last; None if none was stored."""
    query = select(ways).where(and_(ways.c.flow_group == flow.group, ways.c.flow_name == flow.name))
    row = transaction.execute(query).one_or_none()
    return None if row is None else TakenWay(flow, row.route, frozenset(json.loads(row.jobs)))
