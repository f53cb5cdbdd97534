"""Files of snapshots in SQL. Each function runs in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    ScalarSelect,
    Table,
    bindparam,
    case,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)

from gobblin_dagster.core.commit import FileHistory, PublishedFile, body_digest
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.places import Places
from gobblin_dagster.state.sql.tables import dataset_states, snapshot_files, snapshot_removals
from gobblin_dagster.state.store import damaged_files

FILE_COLUMNS = tuple(field.name for field in fields(PublishedFile))
_FILES = select(*(snapshot_files.c[name] for name in (*FILE_COLUMNS, "digest")))


def _rows_of(table: Table) -> ScalarSelect[int]:
    of_dataset = (table.c.job == dataset_states.c.job, table.c.dataset_urn == dataset_states.c.dataset_urn)
    return select(func.count()).select_from(table).where(*of_dataset).scalar_subquery()


_columns = dataset_states.c
# One statement, so that no commit comes between the numbers that it compares.
_COUNTED = select(_columns.files, _rows_of(snapshot_files), _columns.removals, _rows_of(snapshot_removals)).where(
    _columns.job == bindparam("of_job"),
    _columns.dataset_urn == bindparam("urn"),
    _columns.counted_version == _columns.version,
)


def counts_after(files: BindParameter[int]) -> dict[str, ColumnElement[int]]:
    """Return the values that the update of a dataset's state sets, before the commit's own rows are written.

    Args:
        files: how many files the commit adds. Its removals are counted by `count_removals`.
    """
    is_counted = _columns.counted_version == _columns.version
    return {
        "files": files + case((is_counted, _columns.files), else_=_rows_of(snapshot_files)),
        "removals": case((is_counted, _columns.removals), else_=_rows_of(snapshot_removals)),
    }


def load(connection: Connection, state: DatasetState, snapshot: int | None, places: Places) -> list[PublishedFile]:
    """Return the files that the snapshots of `state.chain` added and did not remove, ordered by branch and path."""
    _require_all(connection, state.job, state.dataset_urn)
    chain = state.chain(snapshot)

    def is_on_chain(table: Table) -> ColumnElement[bool]:
        return or_(*(table.c.snapshot.between(after + 1, upto) for after, upto in chain))

    files, removals = snapshot_files.c, snapshot_removals.c
    is_removed = exists().where(
        removals.job == files.job,
        removals.dataset_urn == files.dataset_urn,
        removals.path == files.path,
        is_on_chain(snapshot_removals),
    )
    query = _FILES.where(
        files.job == state.job, files.dataset_urn == state.dataset_urn, is_on_chain(snapshot_files), ~is_removed
    )
    # Sorted in Python, because databases sort text by different rules.
    found = (_file(places, state.job, state.dataset_urn, *row) for row in connection.execute(query))
    return sorted(found, key=lambda file: (file.branch, file.path))


def load_history(connection: Connection, job: str, dataset_urn: str, places: Places) -> list[FileHistory]:
    """Return every file of a dataset, with the snapshots that removed it."""
    _require_all(connection, job, dataset_urn)
    files, removals = snapshot_files.c, snapshot_removals.c
    removed: dict[str, list[int]] = {}
    query = select(removals.path, removals.snapshot).where(removals.job == job, removals.dataset_urn == dataset_urn)
    for path, snapshot in connection.execute(query.order_by(removals.snapshot)):
        if not (isinstance(path, str) and isinstance(snapshot, int) and snapshot > 0):
            what = f"The record of the snapshot that removed file {path} of dataset {dataset_urn!r} of job {job!r}"
            raise damaged_files(what, f"it says {snapshot!r}")
        removed.setdefault(places.from_stored(path), []).append(snapshot)
    rows = connection.execute(_FILES.where(files.job == job, files.dataset_urn == dataset_urn))
    found = (_file(places, job, dataset_urn, *row) for row in rows)
    return [FileHistory(file, tuple(removed.get(file.path, ()))) for file in found]


def add_removals(connection: Connection, state: DatasetState, history: Iterable[FileHistory], places: Places) -> None:
    """Store which snapshots removed which files."""
    rows = [
        {
            "job": state.job,
            "dataset_urn": state.dataset_urn,
            "path": places.to_stored(one.file.path),
            "snapshot": number,
        }
        for one in history
        for number in one.removed
    ]
    if rows:
        connection.execute(insert(snapshot_removals), rows)
        count_removals(connection, state, len(rows))


def count_removals(connection: Connection, state: DatasetState, added: int) -> None:
    """Store that the dataset has more rows of removals."""
    of_dataset = (_columns.job == state.job, _columns.dataset_urn == state.dataset_urn)
    connection.execute(update(dataset_states).where(*of_dataset).values(removals=_columns.removals + added))


def _require_all(connection: Connection, job: str, dataset_urn: str) -> None:
    """Raise CorruptRecordError if another program deleted rows of the dataset, or added some."""
    for files, files_now, removals, removals_now in connection.execute(_COUNTED, {"of_job": job, "urn": dataset_urn}):
        for what, stored, found in (("files", files, files_now), ("removed files", removals, removals_now)):
            if stored != found:
                raise damaged_files(
                    f"The list of {what} of dataset {dataset_urn!r} of job {job!r}",
                    f"its commits wrote {stored} rows and {found} are there: another program changed it",
                )


def file_digest(*row: str | int) -> str:
    """Return the digest of a file's row (job, dataset.urn and columns as stored), which shows foreign changes."""
    return body_digest(repr(row))


def _file(places: Places, *row: Any) -> PublishedFile:
    *facts, digest = row
    job, dataset_urn, branch, path, *rest = facts
    if digest is not None and digest != file_digest(*facts):
        what = f"The record of file {path} of dataset {dataset_urn!r} of job {job!r}"
        raise damaged_files(what, "it does not match its digest: another program changed it")
    return PublishedFile(branch, places.from_stored(path), *rest)
