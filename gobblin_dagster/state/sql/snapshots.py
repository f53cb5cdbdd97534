"""Files of snapshots in SQL. Each function runs in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, exists, insert, or_, select

from gobblin_dagster.core.commit import FileHistory, PublishedFile, body_digest
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.places import Places
from gobblin_dagster.state.sql.tables import snapshot_files, snapshot_removals
from gobblin_dagster.state.store import damaged_files

FILE_COLUMNS = tuple(field.name for field in fields(PublishedFile))
_FILES = select(*(snapshot_files.c[name] for name in (*FILE_COLUMNS, "digest")))


def load(connection: Connection, state: DatasetState, snapshot: int | None, places: Places) -> list[PublishedFile]:
    """Return the files that the snapshots of `state.chain` added and did not remove, ordered by branch and path."""
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
