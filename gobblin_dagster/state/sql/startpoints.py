"""Startpoints and their history in SQL. Each function runs in the caller's transaction."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, select, update
from sqlalchemy import delete as delete_from

from gobblin_dagster.core import serialization
from gobblin_dagster.core.startpoint import Startpoint, StartpointEvent, StartpointKey
from gobblin_dagster.database.dialect import insert, is_among
from gobblin_dagster.state.sql.tables import startpoint_events, startpoints

_KEY = ["job", "dataset_urn", "partition"]


def save(connection: Connection, startpoint: Startpoint) -> None:
    """Insert a startpoint, or replace the one of its key."""
    values = _values(startpoint)
    statement = insert(connection, startpoints).values(**_key_values(startpoint.key), **values)
    connection.execute(statement.on_conflict_do_update(index_elements=_KEY, set_=values))


def pin(connection: Connection, startpoint: Startpoint) -> bool:
    """Replace the startpoint with this key and id; return False if there is none."""
    is_it = and_(_is(startpoint.key), startpoints.c.id == startpoint.id)
    return connection.execute(update(startpoints).where(is_it).values(_values(startpoint))).rowcount == 1


def fan_out(connection: Connection, copy: Startpoint) -> bool:
    """Store a copy unless its key has a newer startpoint; return whether the key has the copy now."""
    statement = insert(connection, startpoints).values(**_key_values(copy.key), **_values(copy))
    if connection.execute(statement.on_conflict_do_nothing(index_elements=_KEY)).rowcount == 1:
        return True
    # The row is locked until the transaction ends, so that a startpoint that a person sets meanwhile comes after it.
    body = connection.scalar(select(startpoints.c.body).where(_is(copy.key)).with_for_update())
    if body is not None and not copy.replaces(_load(body)):
        return False
    save(connection, copy)
    return True


def load(connection: Connection, job: str, urns: Collection[str] | None) -> list[Startpoint]:
    """Return startpoints by dataset and partition."""
    query = select(startpoints.c.body).where(startpoints.c.job == job)
    if urns is not None:
        query = query.where(is_among(connection, startpoints.c.dataset_urn, urns))
    found = [_load(body) for body in connection.scalars(query)]
    return sorted(found, key=lambda one: (one.dataset_urn, one.partition))


def delete(connection: Connection, job: str, dataset_urn: str, ids: Collection[str]) -> None:
    """Delete the dataset's startpoints that have these ids."""
    columns = startpoints.c
    is_one = and_(columns.job == job, columns.dataset_urn == dataset_urn, is_among(connection, columns.id, ids))
    connection.execute(delete_from(startpoints).where(is_one))


def remove(connection: Connection, startpoint: Startpoint) -> bool:
    """Delete the startpoint with this key and id; return whether there was one."""
    is_it = and_(_is(startpoint.key), startpoints.c.id == startpoint.id)
    return connection.execute(delete_from(startpoints).where(is_it)).rowcount == 1


def note(connection: Connection, event: StartpointEvent) -> None:
    """Add an event to the history."""
    one = event.startpoint
    values = {"job": one.job, "dataset_urn": one.dataset_urn, "body": serialization.to_json(event)}
    connection.execute(startpoint_events.insert().values(**values))


def load_events(connection: Connection, job: str, urns: Collection[str] | None) -> list[StartpointEvent]:
    """Return the history, oldest first."""
    columns = startpoint_events.c
    query = select(columns.body).where(columns.job == job).order_by(columns.number)
    if urns is not None:
        query = query.where(is_among(connection, columns.dataset_urn, urns))
    return [serialization.from_json(StartpointEvent, body) for body in connection.scalars(query)]


def _is(key: StartpointKey) -> ColumnElement[bool]:
    columns = startpoints.c
    return and_(columns.job == key.job, columns.dataset_urn == key.dataset_urn, columns.partition == key.partition)


def _key_values(key: StartpointKey) -> dict[str, str]:
    return {"job": key.job, "dataset_urn": key.dataset_urn, "partition": key.partition}


def _values(startpoint: Startpoint) -> dict[str, Any]:
    return {"id": startpoint.id, "body": serialization.to_json(startpoint)}


def _load(body: str) -> Startpoint:
    return serialization.from_json(Startpoint, body, older_formats=Startpoint.older_formats)
