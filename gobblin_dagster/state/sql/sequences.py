"""The commit protocol in SQL. Each function runs in the caller's transaction.

Order of locks: sequence, lease, dataset state. The compare-and-swap on the state's version keeps data right. The epoch
of the lease is checked before it, because its error message says more.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from operator import attrgetter, itemgetter
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, Table, select, update
from sqlalchemy import insert as plain_insert
from sqlalchemy.exc import IntegrityError

from gobblin_dagster.core import serialization
from gobblin_dagster.core.commit import (
    WAITING,
    CommitEffect,
    PublishedFile,
    SequenceState,
    StoredSequence,
    body_digest,
)
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError, UnfinishedSequenceError, WatermarkMovedError
from gobblin_dagster.core.places import Places
from gobblin_dagster.database.dialect import insert, is_among
from gobblin_dagster.state.parts import put_together
from gobblin_dagster.state.sql import parts, startpoints
from gobblin_dagster.state.sql.leases import require_epoch
from gobblin_dagster.state.sql.snapshots import FILE_COLUMNS, file_digest
from gobblin_dagster.state.sql.tables import dataset_states, is_unreported, sequences, snapshot_files, snapshot_removals

_COLUMNS = tuple(field.name for field in fields(StoredSequence))


def prepare(connection: Connection, sequence: StoredSequence, epoch: int) -> None:
    """Insert the sequence as PREPARED."""
    job, urn = sequence.job, sequence.dataset_urn
    require_epoch(connection, job, urn, epoch)
    found = _version(connection, job, urn)
    if found != sequence.version_read:
        raise WatermarkMovedError(dataset_urn=urn, expected=sequence.version_read, found=found)
    blocking = connection.scalar(
        select(sequences.c.id).where(sequences.c.job == job, sequences.c.dataset_urn == urn, _has_state(WAITING))
    )
    if blocking is not None:
        raise UnfinishedSequenceError(dataset_urn=urn, sequence_id=blocking)
    values = {name: getattr(sequence, name) for name in _COLUMNS}
    body = parts.store_apart(connection, job, urn, sequence.body)
    values |= {"body": body, "state": SequenceState.PREPARED.value}
    connection.execute(plain_insert(sequences).values(values))


def commit(connection: Connection, sequence: StoredSequence, epoch: int, effect: CommitEffect, places: Places) -> None:
    """Write the effect of a commit and set the sequence, which must be locked and PREPARED, to COMMITTED."""
    require_epoch(connection, sequence.job, sequence.dataset_urn, epoch)
    _require_successor(sequence, effect.after)
    _swap_state(connection, effect.after)
    _add_files(connection, sequence, effect.files, places)
    _remove_files(connection, effect.after, effect.removed, places)
    if effect.startpoint:
        startpoints.delete(connection, sequence.job, sequence.dataset_urn, effect.startpoint)
    set_state(connection, sequence.id, SequenceState.COMMITTED)


def lock(connection: Connection, sequence_id: str) -> StoredSequence:
    """Return a sequence with its body as it is stored, and lock it until the transaction ends.

    Raises:
        CorruptRecordError: there is none.
    """
    query = select(sequences).where(sequences.c.id == sequence_id).with_for_update()
    row = connection.execute(query).mappings().one_or_none()
    if row is None:
        raise CorruptRecordError(what=f"Commit sequence {sequence_id}", problem="the state store does not hold it")
    return _sequence(row)


def require_state(sequence: StoredSequence, expected: Collection[SequenceState]) -> None:
    """Raise CorruptRecordError if the sequence is in another state."""
    if sequence.state not in expected:
        problem = f"expected state {' or '.join(sorted(expected))}, got {sequence.state}"
        raise CorruptRecordError(
            what=f"Commit sequence {sequence.id} of dataset {sequence.dataset_urn!r}", problem=problem
        )


def set_state(connection: Connection, sequence_id: str, state: SequenceState, reason: str | None = None) -> None:
    """Set the state of a locked sequence, and its reason if one is given."""
    values = {"state": state.value} if reason is None else {"state": state.value, "reason": reason}
    connection.execute(update(sequences).where(sequences.c.id == sequence_id).values(values))


def count_redo_failure(connection: Connection, sequence_id: str, reason: str) -> int:
    """Add one to the failed redos of a sequence, and return the new count."""
    failures = lock(connection, sequence_id).redo_failures + 1
    values = {"redo_failures": failures, "reason": reason}
    connection.execute(update(sequences).where(sequences.c.id == sequence_id).values(values))
    return failures


def forget_redo_failures(connection: Connection, sequence_id: str) -> None:
    """Set the count of failed redos of a locked sequence to 0."""
    connection.execute(update(sequences).where(sequences.c.id == sequence_id).values(redo_failures=0))


def load(
    connection: Connection,
    job: str | None,
    states: Collection[SequenceState],
    urns: Collection[str] | None,
    limit: int | None,
) -> list[StoredSequence]:
    """Return sequences, newest first."""
    query = select(sequences).where(_has_state(states)).order_by(sequences.c.number.desc()).limit(limit)
    if job is not None:
        query = query.where(sequences.c.job == job)
    if urns is not None:
        query = query.where(is_among(connection, sequences.c.dataset_urn, urns))
    return _whole(connection, query)


def load_one(connection: Connection, sequence_id: str) -> StoredSequence | None:
    """Return one sequence, not locked."""
    found = _whole(connection, select(sequences).where(sequences.c.id == sequence_id))
    return found[0] if found else None


def restore_state(connection: Connection, job: str, urn: str, damage: CorruptRecordError) -> None:
    """Write the state again from the sequence of its newest commit; raise `damage` if there is no such sequence."""
    query = select(sequences).where(
        sequences.c.job == job,
        sequences.c.dataset_urn == urn,
        sequences.c.version_read == _version(connection, job, urn) - 1,
        _has_state({SequenceState.COMMITTED}),
    )
    found = _whole(connection, query)
    if not found or body_digest(found[0].body) != found[0].digest:
        raise damage
    after = serialization.from_document(DatasetState, json.loads(found[0].body)["after"])
    whole = serialization.to_json(after)
    body = parts.store_apart(connection, job, urn, whole, is_state=True)
    key = (dataset_states.c.job == job, dataset_states.c.dataset_urn == urn)
    connection.execute(update(dataset_states).where(*key).values(body=body, digest=body_digest(whole)))


def load_unreported(connection: Connection, job: str, limit: int | None) -> list[StoredSequence]:
    """Return the oldest committed sequences that were not reported, oldest first."""
    query = select(sequences).where(is_unreported, sequences.c.job == job).order_by(sequences.c.number).limit(limit)
    return _whole(connection, query)


def mark_reported(connection: Connection, sequence_ids: Collection[str]) -> None:
    """Record that many sequences were reported, in one statement."""
    connection.execute(
        update(sequences).where(is_among(connection, sequences.c.id, sequence_ids)).values(reported=True)
    )


def _has_state(states: Iterable[SequenceState]) -> ColumnElement[bool]:
    return sequences.c.state.in_([state.value for state in states])


def _version(connection: Connection, job: str, urn: str) -> int:
    query = select(dataset_states.c.version).where(dataset_states.c.job == job, dataset_states.c.dataset_urn == urn)
    return connection.scalar(query) or 0


def _require_successor(sequence: StoredSequence, after: DatasetState) -> None:
    expected = (sequence.job, sequence.dataset_urn, sequence.version_read + 1)
    got = (after.job, after.dataset_urn, after.version)
    if got != expected:
        raise CorruptRecordError(
            what=f"Commit sequence {sequence.id}", problem=f"expected the state of {expected}, got that of {got}"
        )


def _swap_state(connection: Connection, after: DatasetState) -> None:
    """Replace the state if it has the version before (compare-and-swap); raises WatermarkMovedError."""
    key = {"job": after.job, "dataset_urn": after.dataset_urn}
    whole = serialization.to_json(after)
    body = parts.store_apart(connection, after.job, after.dataset_urn, whole, is_state=True)
    values = {"version": after.version, "body": body, "digest": body_digest(whole)}
    if after.version == 1:
        statement = insert(connection, dataset_states).values({**key, **values}).on_conflict_do_nothing()
    else:
        statement = update(dataset_states).values(values)
        statement = statement.where(*(dataset_states.c[name] == value for name, value in key.items()))
        statement = statement.where(dataset_states.c.version == after.version - 1)
    if connection.execute(statement).rowcount != 1:
        found = _version(connection, after.job, after.dataset_urn)
        raise WatermarkMovedError(dataset_urn=after.dataset_urn, expected=after.version - 1, found=found)


def _add_files(
    connection: Connection, sequence: StoredSequence, files: Sequence[PublishedFile], places: Places
) -> None:
    if not files:
        return
    key, values = (sequence.job, sequence.dataset_urn), attrgetter(*FILE_COLUMNS)
    rows = []
    for file in files:
        branch, path, *facts = values(file)
        row = (*key, branch, places.to_stored(path), *facts)
        rows.append((*row, file_digest(*row)))
    try:
        _insert_rows(connection, snapshot_files, ("job", "dataset_urn", *FILE_COLUMNS, "digest"), rows)
    except IntegrityError as error:
        raise CorruptRecordError(
            what=f"Commit sequence {sequence.id} of dataset {sequence.dataset_urn!r}",
            problem="it publishes a path that is already in a snapshot",
        ) from error


def _remove_files(connection: Connection, after: DatasetState, paths: Collection[str], places: Places) -> None:
    if paths:
        removed = {*paths}
        # By the names of their own rows: older programs stored absolute paths.
        of_dataset = (snapshot_files.c.job == after.job, snapshot_files.c.dataset_urn == after.dataset_urn)
        known = connection.scalars(select(snapshot_files.c.path).where(*of_dataset))
        stored = [path for path in known if places.from_stored(path) in removed]
        rows = [(after.job, after.dataset_urn, path, after.snapshot) for path in stored]
        _insert_rows(connection, snapshot_removals, ("job", "dataset_urn", "path", "snapshot"), rows)


def _insert_rows(connection: Connection, table: Table, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
    """Insert rows through the driver itself: with thousands of rows, SQLAlchemy would take half of the time."""
    statement = plain_insert(table).compile(dialect=connection.dialect, column_keys=columns)
    parameters: list[Any]
    if statement.positiontup is None:
        parameters = [dict(zip(columns, row, strict=True)) for row in rows]
    else:
        parameters = list(map(itemgetter(*(columns.index(name) for name in statement.positiontup)), rows))
    connection.exec_driver_sql(str(statement), parameters)


def _whole(connection: Connection, query: Select[Any]) -> list[StoredSequence]:
    """Return sequences with whole bodies; a body with a missing part stays as it is stored, and its digest tells."""
    found = [_sequence(row) for row in connection.execute(query).mappings()]
    known = parts.load(connection, [one.body for one in found])
    whole = []
    for one in found:
        with suppress(CorruptRecordError):
            one = replace(one, body=put_together(one.body, known, "Its body"))  # noqa: PLW2901
        whole.append(one)
    return whole


def _sequence(row: RowMapping) -> StoredSequence:
    values = {name: row[name] for name in _COLUMNS}
    return StoredSequence(**{**values, "state": SequenceState(row["state"])})
