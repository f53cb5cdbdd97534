"""Files of snapshots as SQL, inside the caller's transaction."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, Table, exists, or_, select

from gobblin_dagster.core.commit import FileHistory, PublishedFile
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.state.sql.tables import snapshot_files, snapshot_removals


def load(connection: Connection, state: DatasetState, snapshot: int | None) -> list[PublishedFile]:
    """Return the files of a snapshot: added on its chain and not removed there, ordered by branch and path."""
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
    query = select(files.branch, files.path, files.size_bytes, files.sha256, files.rows, files.snapshot).where(
        files.job == state.job, files.dataset_urn == state.dataset_urn, is_on_chain(snapshot_files), ~is_removed
    )
    # Sorted here, because databases sort text by rules of their own.
    found = (PublishedFile(*row) for row in connection.execute(query))
    return sorted(found, key=lambda file: (file.branch, file.path))


def load_history(connection: Connection, job: str, dataset_urn: str) -> list[FileHistory]:
    """Return every file of a dataset, with the snapshots that removed it."""
    files, removals = snapshot_files.c, snapshot_removals.c
    removed: dict[str, list[int]] = {}
    query = select(removals.path, removals.snapshot).where(removals.job == job, removals.dataset_urn == dataset_urn)
    for path, snapshot in connection.execute(query.order_by(removals.snapshot)):
        removed.setdefault(path, []).append(snapshot)
    rows = select(files.branch, files.path, files.size_bytes, files.sha256, files.rows, files.snapshot)
    found = connection.execute(rows.where(files.job == job, files.dataset_urn == dataset_urn))
    return [FileHistory(file, tuple(removed.get(file.path, ()))) for file in (PublishedFile(*row) for row in found)]
