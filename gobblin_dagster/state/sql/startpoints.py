"""Startpoints and their history in SQL. Each function runs in the caller's transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Insert, Row, and_, bindparam, select, update
from sqlalchemy import delete as delete_from

from gobblin_dagster.core import serialization
from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.core.startpoint import (
    DamagedStartpoint,
    Startpoint,
    StartpointChange,
    StartpointEvent,
    StartpointKey,
    events_of,
)
from gobblin_dagster.database.dialect import as_list, insert, is_among, texts
from gobblin_dagster.state.sql.tables import startpoint_events, startpoints

log = logging.getLogger(__name__)

_KEY = ["job", "dataset_urn", "partition"]
_ROWS = select(startpoints)
# Made once: making a statement takes longer than it runs.
_OF_JOB = _ROWS.where(startpoints.c.job == bindparam("of_job"))
_AMONG = _OF_JOB.where(is_among(startpoints.c.dataset_urn, texts("urns")))


def save(connection: Connection, startpoint: Startpoint, at: datetime) -> None:
    """Insert a startpoint, or replace the one of its key."""
    _store(connection, startpoint, lambda _: True, "set", at, startpoint.who)


def pin(connection: Connection, startpoint: Startpoint, at: datetime, run_id: str) -> bool:
    """Replace the startpoint with this key and id; return False if there is none."""
    before = _locked(connection, startpoint.key)
    if before is None or before.id != startpoint.id:
        return False
    _replace(connection, startpoint)
    _note(connection, events_of("fanned out", startpoint, before, at, run_id))
    return True


def fan_out(connection: Connection, copy: Startpoint, at: datetime, run_id: str) -> bool:
    """Store a copy unless its key has a newer startpoint; return whether the key has the copy now."""
    return _store(connection, copy, copy.replaces, "fanned out", at, run_id)


def _store(
    connection: Connection,
    startpoint: Startpoint,
    may_replace: Callable[[Startpoint], bool],
    change: StartpointChange,
    at: datetime,
    who: str,
) -> bool:
    before = None
    while connection.execute(_insert(connection, startpoint)).rowcount == 0:
        before = _locked(connection, startpoint.key)
        if before is None:
            continue  # deleted meanwhile
        if not may_replace(before):
            return False
        _replace(connection, startpoint)
        break
    _note(connection, events_of(change, startpoint, before, at, who))
    return True


def _insert(connection: Connection, startpoint: Startpoint) -> Insert:
    """Return the statement that inserts a startpoint if its key is free."""
    values = _key_values(startpoint.key) | _values(startpoint)
    statement: Insert = insert(connection, startpoints).values(values).on_conflict_do_nothing(index_elements=_KEY)
    return statement


def _locked(connection: Connection, key: StartpointKey) -> Startpoint | None:
    # The row is locked until the transaction ends, so that a startpoint that a person sets meanwhile comes after it.
    row = connection.execute(_ROWS.where(_is(key)).with_for_update()).one_or_none()
    return None if row is None else _load(row)


def _replace(connection: Connection, startpoint: Startpoint) -> None:
    connection.execute(update(startpoints).where(_is(startpoint.key)).values(_values(startpoint)))


def load(connection: Connection, job: str, urns: Collection[str] | None) -> list[Startpoint]:
    """Return startpoints by dataset and partition, damaged ones too (`DamagedStartpoint`)."""
    query, asked = (_OF_JOB, {}) if urns is None else (_AMONG, {"urns": as_list(urns)})
    found = map(_load, connection.execute(query, {"of_job": job, **asked}))
    return sorted(found, key=lambda one: (one.dataset_urn, one.partition))


def delete(connection: Connection, job: str, dataset_urn: str, ids: Collection[str]) -> None:
    """Delete the dataset's startpoints that have these ids."""
    columns = startpoints.c
    is_one = and_(columns.job == job, columns.dataset_urn == dataset_urn, is_among(columns.id, ids))
    connection.execute(delete_from(startpoints).where(is_one))


def remove(connection: Connection, event: StartpointEvent) -> bool:
    """Delete the startpoint of an event that tells so (`StartpointEvent.may_delete`); return whether there was one."""
    stored = _locked(connection, event.startpoint.key)
    if stored is None or not event.may_delete(stored):
        return False
    connection.execute(delete_from(startpoints).where(_is(event.startpoint.key)))
    _note(connection, [event])
    return True


def _note(connection: Connection, events: Iterable[StartpointEvent]) -> None:
    for event in events:
        one = event.startpoint
        values = {"job": one.job, "dataset_urn": one.dataset_urn, "body": serialization.to_json(event)}
        connection.execute(startpoint_events.insert().values(**values))


def load_events(connection: Connection, job: str, urns: Collection[str] | None) -> list[StartpointEvent]:
    """Return the history, oldest first; events of one instant in the order in which they were written.

    A damaged one hides no other.
    """
    columns = startpoint_events.c
    query = select(columns.dataset_urn, columns.body).where(columns.job == job).order_by(columns.number)
    if urns is not None:
        query = query.where(is_among(columns.dataset_urn, urns))
    events = []
    for urn, body in connection.execute(query):
        try:
            events.append(serialization.from_json(StartpointEvent, body))
        except CorruptRecordError as error:
            log.warning("An event of the startpoints of dataset %r is damaged, and left out: %s", urn, error.problem)
    return sorted(events, key=lambda event: event.at)  # imported ones may be older than those before them


def bring(connection: Connection, brought: Iterable[Startpoint], events: Iterable[StartpointEvent]) -> None:
    """Add startpoints whose keys are free, and events, as they are in another store."""
    for one in brought:
        connection.execute(_insert(connection, one))
    _note(connection, events)


def _is(key: StartpointKey) -> ColumnElement[bool]:
    columns = startpoints.c
    return and_(columns.job == key.job, columns.dataset_urn == key.dataset_urn, columns.partition == key.partition)


def _key_values(key: StartpointKey) -> dict[str, str]:
    return {"job": key.job, "dataset_urn": key.dataset_urn, "partition": key.partition}


def _values(startpoint: Startpoint) -> dict[str, Any]:
    return {"id": startpoint.id, "body": serialization.to_json(startpoint)}


def _load(row: Row[Any]) -> Startpoint:
    key = StartpointKey(row.dataset_urn, row.partition, row.job)
    try:
        found = serialization.from_json(Startpoint, row.body, older_formats=Startpoint.older_formats)
    except CorruptRecordError as error:
        return DamagedStartpoint.of(key, row.id, error.problem)
    if (found.key, found.id) != (key, row.id):
        return DamagedStartpoint.of(key, row.id, f"its row holds that of {found.key} with the id {found.id}")
    return found
