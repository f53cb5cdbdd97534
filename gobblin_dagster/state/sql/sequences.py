"""The commit protocol in SQL. Each function runs in the caller's transaction.

Order of locks: sequence, lease, dataset state. The compare-and-swap on the state's version keeps data right. The epoch
of the lease is checked before it, because its error message says more.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache
from operator import attrgetter, itemgetter
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Integer,
    RowMapping,
    Select,
    Table,
    bindparam,
    or_,
    select,
    update,
)
from sqlalchemy import insert as plain_insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql.compiler import SQLCompiler

from gobblin_dagster.core import serialization
from gobblin_dagster.core.commit import (
    WAITING,
    CommitEffect,
    SequenceState,
    StoredSequence,
    body_digest,
)
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError, UnfinishedSequenceError, WatermarkMovedError
from gobblin_dagster.core.places import Places
from gobblin_dagster.database.dialect import as_list, insert, is_among, texts
from gobblin_dagster.state.parts import put_together
from gobblin_dagster.state.sql import parts, startpoints
from gobblin_dagster.state.sql.leases import require_epochs
from gobblin_dagster.state.sql.snapshots import FILE_COLUMNS, count_removals, counts_after, file_digest
from gobblin_dagster.state.sql.tables import (
    dataset_states,
    is_blocking,
    is_unreported,
    sequences,
    snapshot_files,
    snapshot_removals,
)

_COLUMNS = tuple(field.name for field in fields(StoredSequence))

# Statements are made once: making one takes longer than it runs.
_BLOCKING = select(sequences.c.dataset_urn, sequences.c.id).where(
    sequences.c.job == bindparam("of_job"), is_among(sequences.c.dataset_urn, texts("urns")), is_blocking
)
# Whether a sequence with a damaged state waits is not known if it begins where a new one does. Found by the index of
# versions.
_UNREADABLE = select(sequences.c.dataset_urn, sequences.c.id, sequences.c.version_read, sequences.c.state).where(
    sequences.c.job == bindparam("of_job"),
    sequences.c.version_read.in_(bindparam("versions", expanding=True)),
    is_among(sequences.c.dataset_urn, texts("urns")),
    sequences.c.state.not_in([state.value for state in SequenceState]),
)
# Sequences of other runs that wait in a row of our job, or of one of our datasets. Written so that SQLite finds them by
# the small index of those that wait.
_WAITING_BESIDE = (
    select(sequences.c.id, sequences.c.job, sequences.c.dataset_urn, sequences.c.body)
    .where(is_blocking, sequences.c.run_id != bindparam("of_run"))
    .where(or_(sequences.c.job.concat("") == bindparam("of_job"), is_among(sequences.c.dataset_urn, texts("urns"))))
)
_AMONG_IDS = is_among(sequences.c.id, texts("ids"))
# All transactions lock in the same order, so that they cannot deadlock.
_LOCKED = select(sequences).where(_AMONG_IDS).order_by(sequences.c.number).with_for_update()
_ENDED = update(sequences).where(_AMONG_IDS)
_VERSIONS = select(dataset_states.c.dataset_urn, dataset_states.c.version).where(
    dataset_states.c.job == bindparam("of_job"), is_among(dataset_states.c.dataset_urn, texts("urns"))
)
_SWAP = (
    update(dataset_states)
    .where(
        dataset_states.c.job == bindparam("of_job"),
        dataset_states.c.dataset_urn == bindparam("urn"),
        dataset_states.c.version == bindparam("before"),
    )
    .values(counts_after(bindparam("added", type_=Integer())))
)


def prepare(connection: Connection, items: Sequence[tuple[StoredSequence, int]]) -> None:
    """Insert sequences of different datasets of one job as PREPARED, each under our epoch of its dataset."""
    job = items[0][0].job
    by_urn = {sequence.dataset_urn: sequence for sequence, _ in items}
    require_epochs(connection, job, {sequence.dataset_urn: epoch for sequence, epoch in items})
    versions = _versions(connection, job, by_urn)
    for urn, sequence in by_urn.items():
        if (found := versions.get(urn, 0)) != sequence.version_read:
            raise WatermarkMovedError(dataset_urn=urn, expected=sequence.version_read, found=found)
    for urn, sequence_id in connection.execute(_BLOCKING, {"of_job": job, "urns": as_list(by_urn)}):
        raise UnfinishedSequenceError(dataset_urn=urn, sequence_id=sequence_id)
    _require_readable(connection, job, by_urn)
    for _, fault in misplaced(connection, job, by_urn, next(iter(by_urn.values())).run_id):
        raise fault
    rows = []
    for urn, sequence in by_urn.items():
        values = {name: getattr(sequence, name) for name in _COLUMNS}
        body = parts.store_apart(connection, job, urn, sequence.body)
        rows.append(values | {"body": body, "state": SequenceState.PREPARED.value})
    connection.execute(plain_insert(sequences), rows)


def _require_readable(connection: Connection, job: str, by_urn: Mapping[str, StoredSequence]) -> None:
    """Raise CorruptRecordError if a sequence, of which nobody can say whether it is finished, begins where one does."""
    begun = {(urn, sequence.version_read) for urn, sequence in by_urn.items()}
    asked = {"of_job": job, "urns": as_list(by_urn), "versions": sorted({version for _, version in begun})}
    for urn, sequence_id, version, state in connection.execute(_UNREADABLE, asked):
        if (urn, version) in begun:
            raise CorruptRecordError(
                what=f"The state of commit sequence {sequence_id} of dataset {urn!r}",
                problem=f"it is {str(state)[:80]!r}, so nobody knows whether its rows are published. Restore the state "
                f"store; or write {SequenceState.PREPARED.value!r} in its place (table {sequences.name}): the next run "
                "finishes or undoes it",
            )


def misplaced(
    connection: Connection, job: str, urns: Collection[str], of_run: str = ""
) -> Iterator[tuple[str, CorruptRecordError]]:
    """Return, by dataset.urn, why a waiting sequence of a dataset stands in the row of another job or dataset.

    Recovery does not find it there, or cannot read it, and its rows may be published. Those of `of_run` do not count.
    """
    asked = {"of_job": job, "urns": as_list(urns), "of_run": of_run}
    for sequence_id, its_job, its_urn, body in connection.execute(_WAITING_BESIDE, asked):
        with suppress(ValueError, KeyError, TypeError):
            identity = json.loads(body)["identity"]
            urn = identity["dataset_urn"]
            if identity["job"] == job and urn in urns and (its_job, its_urn) != (job, urn):
                problem = (
                    f"it says job {its_job!r}, dataset {its_urn!r}: another program changed it, and its rows may be "
                    f"published. Restore the state store; or write the job and the dataset back (table "
                    f"{sequences.name}), its state too if it is {SequenceState.QUARANTINED.value!r} "
                    f"({SequenceState.PREPARED.value!r}): the next run finishes it"
                )
                what = f"The row of commit sequence {sequence_id} of dataset {urn!r} of job {job!r}"
                yield urn, CorruptRecordError(what=what, problem=problem)


def adopt(connection: Connection, sequence: StoredSequence, epoch: int, effect: CommitEffect, places: Places) -> None:
    """Insert a sequence as COMMITTED, and its effect, for a dataset without state, although it is not the first one."""
    job, urn = sequence.job, sequence.dataset_urn
    if found := _versions(connection, job, [urn]).get(urn, 0):
        raise WatermarkMovedError(dataset_urn=urn, expected=0, found=found)
    if sequence.version_read:
        # The commit below replaces it.
        before = {"job": job, "dataset_urn": urn, "version": sequence.version_read, "body": ""}
        connection.execute(insert(connection, dataset_states).values(before).on_conflict_do_nothing())
    prepare(connection, [(sequence, epoch)])
    commit(connection, [(sequence, epoch, effect)], places)


def commit(connection: Connection, items: Sequence[tuple[StoredSequence, int, CommitEffect]], places: Places) -> None:
    """Write the effects of commits and set their sequences to COMMITTED.

    Args:
        connection: of the transaction.
        items: sequences of different datasets of one job, locked and PREPARED; our epochs; what they change.
        places: the stored form of paths.
    """
    job = items[0][0].job
    require_epochs(connection, job, {sequence.dataset_urn: epoch for sequence, epoch, _ in items})
    for sequence, _, effect in items:
        _require_successor(sequence, effect.after)
    _swap_states(connection, [effect for _, _, effect in items])
    _add_files(connection, items, places)
    for sequence, _, effect in items:
        _remove_files(connection, effect.after, effect.removed, places)
        if effect.startpoints:
            startpoints.delete(connection, job, sequence.dataset_urn, effect.startpoints)
    _end(connection, [sequence.id for sequence, _, _ in items])


def lock(connection: Connection, sequence_id: str) -> StoredSequence:
    """Return a sequence with its body as it is stored, and lock it until the transaction ends.

    Raises:
        CorruptRecordError: there is none.
    """
    return lock_all(connection, [sequence_id])[sequence_id]


def lock_all(connection: Connection, sequence_ids: Collection[str]) -> dict[str, StoredSequence]:
    """Return sequences by id like `lock`."""
    rows = connection.execute(_LOCKED, {"ids": as_list(sequence_ids)}).mappings()
    found = {row["id"]: _sequence(row) for row in rows}
    for sequence_id in sequence_ids:
        if sequence_id not in found:
            raise CorruptRecordError(what=f"Commit sequence {sequence_id}", problem="the state store does not hold it")
    return found


def set_state(connection: Connection, sequence_id: str, state: SequenceState, reason: str | None = None) -> None:
    """Set the state of a locked sequence, and its reason if one is given."""
    values = {"state": state.value} if reason is None else {"state": state.value, "reason": reason}
    connection.execute(update(sequences).where(sequences.c.id == sequence_id).values(values))


def _end(connection: Connection, sequence_ids: Collection[str]) -> None:
    connection.execute(_ENDED, {"ids": as_list(sequence_ids), "state": SequenceState.COMMITTED.value})


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
    below: int | None,
) -> list[StoredSequence]:
    """Return sequences, newest first."""
    asked = {"of_job": job, "urns": None if urns is None else as_list(urns), "most": limit, "below": below}
    asked = {name: value for name, value in asked.items() if value is not None}
    return _whole(connection, _newest(frozenset(states), frozenset(asked)), asked)


@cache
def _newest(states: frozenset[SequenceState], asked: frozenset[str]) -> Select[Any]:
    """Return the statement of `load`, for the names of its parameters."""
    query = select(sequences).where(_has_state(states))
    job: BindParameter[str] = bindparam("of_job")
    if WAITING.issuperset(states):
        # SQLite finds the few sequences that wait by their index only if the condition is written as in the index, and
        # neither the order nor the job suggests another index, by which it would read all sequences.
        query, of_job = query.where(is_blocking), sequences.c.job.concat("") == job
        query = query.order_by((sequences.c.number + 0).desc())
    else:
        query, of_job = query.order_by(sequences.c.number.desc()), sequences.c.job == job
    if "of_job" in asked:
        query = query.where(of_job)
    if "urns" in asked:
        query = query.where(is_among(sequences.c.dataset_urn, texts("urns")))
    if "below" in asked:
        query = query.where(sequences.c.version_read < bindparam("below"))
    return query.limit(bindparam("most", type_=Integer())) if "most" in asked else query


def load_one(connection: Connection, sequence_id: str) -> StoredSequence | None:
    """Return one sequence, not locked."""
    found = _whole(connection, select(sequences).where(sequences.c.id == sequence_id))
    return found[0] if found else None


def restore_state(connection: Connection, job: str, urn: str, damage: CorruptRecordError) -> None:
    """Write the state again from the sequence of its newest commit; raise `damage` if there is no such sequence.

    If the row's version is damaged and its body is not, the body tells which commit is the newest one.
    """
    version = _version_in_body(connection, job, urn) or _versions(connection, job, [urn]).get(urn, 0)
    query = select(sequences).where(
        sequences.c.job == job,
        sequences.c.dataset_urn == urn,
        sequences.c.version_read == version - 1,
        _has_state({SequenceState.COMMITTED}),
    )
    found = _whole(connection, query)
    if not found or body_digest(found[0].body) != found[0].digest:
        raise damage
    after = serialization.from_document(DatasetState, json.loads(found[0].body)["after"])
    whole = serialization.to_json(after)
    body = parts.store_apart(connection, job, urn, whole, is_state=True)
    key = (dataset_states.c.job == job, dataset_states.c.dataset_urn == urn)
    values = {"version": after.version, "body": body, "digest": body_digest(whole)}
    connection.execute(update(dataset_states).where(*key).values(values))


def _version_in_body(connection: Connection, job: str, urn: str) -> int:
    """Return the version that an undamaged body of the dataset's state says; 0 if the body is damaged."""
    columns = dataset_states.c
    query = select(columns.body, columns.digest).where(columns.job == job, columns.dataset_urn == urn)
    stored, digest = connection.execute(query).one()
    try:
        whole = put_together(stored, parts.load(connection, [stored]), "")
        state = serialization.from_json(DatasetState, whole) if body_digest(whole) == digest else None
    except CorruptRecordError:
        return 0
    return state.version if state is not None and (state.job, state.dataset_urn) == (job, urn) else 0


def load_unreported(connection: Connection, job: str, limit: int | None) -> list[StoredSequence]:
    """Return the oldest committed sequences that were not reported, oldest first."""
    query = select(sequences).where(is_unreported, sequences.c.job == job).order_by(sequences.c.number).limit(limit)
    return _whole(connection, query)


def mark_reported(connection: Connection, sequence_ids: Collection[str]) -> None:
    """Record that many sequences were reported, in one statement."""
    connection.execute(update(sequences).where(is_among(sequences.c.id, sequence_ids)).values(reported=True))


def _has_state(states: Iterable[SequenceState]) -> ColumnElement[bool]:
    return sequences.c.state.in_([state.value for state in states])


def _versions(connection: Connection, job: str, urns: Collection[str]) -> dict[str, int]:
    rows = connection.execute(_VERSIONS, {"of_job": job, "urns": as_list(urns)})
    return {row.dataset_urn: row.version for row in rows}


def _require_successor(sequence: StoredSequence, after: DatasetState) -> None:
    expected = (sequence.job, sequence.dataset_urn, sequence.version_read + 1)
    got = (after.job, after.dataset_urn, after.version)
    if got != expected:
        raise CorruptRecordError(
            what=f"Commit sequence {sequence.id}", problem=f"expected the state of {expected}, got that of {got}"
        )


def _swap_states(connection: Connection, effects: Sequence[CommitEffect]) -> None:
    """Replace each state if it has the version before (compare-and-swap); raises WatermarkMovedError."""
    first = []
    for effect in effects:
        after, files = effect.after, len(effect.files)
        whole = serialization.to_json(after)
        body = parts.store_apart(connection, after.job, after.dataset_urn, whole, is_state=True)
        values = {"version": after.version, "body": body, "digest": body_digest(whole)}
        values["counted_version"] = after.version
        if after.version == 1:
            key = {"job": after.job, "dataset_urn": after.dataset_urn}
            first.append({**key, "files": files, "removals": 0, **values})
            continue
        asked = {"of_job": after.job, "urn": after.dataset_urn, "before": after.version - 1, "added": files}
        if connection.execute(_SWAP, values | asked).rowcount != 1:
            raise _moved(connection, after)
    if first:
        statement = insert(connection, dataset_states).on_conflict_do_nothing().returning(dataset_states.c.dataset_urn)
        inserted = {*connection.scalars(statement, first)}
        for effect in effects:
            if effect.after.version == 1 and effect.after.dataset_urn not in inserted:
                raise _moved(connection, effect.after)


def _moved(connection: Connection, after: DatasetState) -> WatermarkMovedError:
    found = _versions(connection, after.job, [after.dataset_urn]).get(after.dataset_urn, 0)
    return WatermarkMovedError(dataset_urn=after.dataset_urn, expected=after.version - 1, found=found)


def _add_files(
    connection: Connection, items: Sequence[tuple[StoredSequence, int, CommitEffect]], places: Places
) -> None:
    values = attrgetter(*FILE_COLUMNS)
    rows = []
    for sequence, _, effect in items:
        for file in effect.files:
            branch, path, *facts = values(file)
            row = (sequence.job, sequence.dataset_urn, branch, places.to_stored(path), *facts)
            rows.append((*row, file_digest(*row)))
    if not rows:
        return
    try:
        _insert_rows(connection, snapshot_files, ("job", "dataset_urn", *FILE_COLUMNS, "digest"), rows)
    except IntegrityError as error:
        sequence = items[0][0]
        more = f" or of {len(items) - 1} more" if len(items) > 1 else ""
        raise CorruptRecordError(
            what=f"Commit sequence {sequence.id} of dataset {sequence.dataset_urn!r}{more}",
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
        count_removals(connection, after, len(rows))


_INSERTS: dict[tuple[str, Table, tuple[str, ...]], SQLCompiler] = {}
"""Statements that insert rows, by dialect, table and columns."""


def _insert_rows(
    connection: Connection, table: Table, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]
) -> None:
    """Insert rows through the driver itself: with thousands of rows, SQLAlchemy would take half of the time."""
    key = (connection.dialect.name, table, columns)
    statement = _INSERTS.get(key)
    if statement is None:
        statement = _INSERTS[key] = plain_insert(table).compile(dialect=connection.dialect, column_keys=columns)
    parameters: list[Any]
    if statement.positiontup is None:
        parameters = [dict(zip(columns, row, strict=True)) for row in rows]
    else:
        parameters = list(map(itemgetter(*(columns.index(name) for name in statement.positiontup)), rows))
    connection.exec_driver_sql(str(statement), parameters)


def _whole(connection: Connection, query: Select[Any], asked: Mapping[str, Any] | None = None) -> list[StoredSequence]:
    """Return sequences with whole bodies; a body with a missing part stays as it is stored, and its digest tells."""
    found = [_sequence(row) for row in connection.execute(query, asked or {}).mappings()]
    known = parts.load(connection, [one.body for one in found])
    whole = []
    for one in found:
        with suppress(CorruptRecordError):
            one = replace(one, body=put_together(one.body, known, "Its body"))  # noqa: PLW2901  # the same one
        whole.append(one)
    return whole


def _sequence(row: RowMapping) -> StoredSequence:
    values = {name: row[name] for name in _COLUMNS}
    # A damaged number must not stop those who sort by it; that it is not the body's tells of the damage.
    values |= {name: -1 for name in ("version_read", "redo_failures") if not isinstance(row[name], int)}
    try:
        return StoredSequence(**{**values, "state": SequenceState(row["state"])})
    except ValueError as error:
        raise CorruptRecordError(what=f"Commit sequence {row['id']}", problem=str(error)) from error
