"""Startpoints in SQL. Each function runs in the caller's transaction."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, select, update
from sqlalchemy import delete as delete_from

from gobblin_dagster.core import serialization
from gobblin_dagster.core.startpoint import Startpoint
from gobblin_dagster.database.dialect import insert, is_among
from gobblin_dagster.state.sql.tables import startpoints


def save(connection: Connection, startpoint: Startpoint) -> None:
    """Insert a startpoint, or replace the one that the dataset has."""
    values = _values(startpoint)
    statement = insert(connection, startpoints).values(job=startpoint.job, dataset_urn=startpoint.dataset_urn, **values)
    connection.execute(statement.on_conflict_do_update(index_elements=["job", "dataset_urn"], set_=values))


def pin(connection: Connection, startpoint: Startpoint) -> bool:
    """Replace the startpoint with this id; return False if there is none."""
    is_it = _is(startpoint.job, startpoint.dataset_urn, startpoint.id)
    return connection.execute(update(startpoints).where(is_it).values(_values(startpoint))).rowcount == 1


def load(connection: Connection, job: str, urns: Collection[str] | None) -> dict[str, Startpoint]:
    """Return startpoints by dataset.urn."""
    query = select(startpoints.c.dataset_urn, startpoints.c.body).where(startpoints.c.job == job)
    if urns is not None:
        query = query.where(is_among(connection, startpoints.c.dataset_urn, urns))
    return {urn: serialization.from_json(Startpoint, body) for urn, body in connection.execute(query)}


def delete(connection: Connection, job: str, dataset_urn: str, startpoint_id: str) -> bool:
    """Delete the dataset's startpoint if it has this id; return whether it did."""
    return connection.execute(delete_from(startpoints).where(_is(job, dataset_urn, startpoint_id))).rowcount == 1


def _is(job: str, dataset_urn: str, startpoint_id: str) -> ColumnElement[bool]:
    columns = startpoints.c
    return and_(columns.job == job, columns.dataset_urn == dataset_urn, columns.id == startpoint_id)


def _values(startpoint: Startpoint) -> dict[str, Any]:
    return {"id": startpoint.id, "body": serialization.to_json(startpoint)}
