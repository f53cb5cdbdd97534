"""Parts of bodies as SQL, inside the caller's transaction; see `state.parts`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sqlalchemy import Connection, delete, select

from gobblin_dagster.database.dialect import insert, is_among
from gobblin_dagster.state.parts import mend, part_names, take_apart
from gobblin_dagster.state.sql.tables import body_parts


def store_apart(connection: Connection, job: str, dataset_urn: str, body: str, *, is_state: bool = False) -> str:
    """Store the parts of a body that are not there yet, and return the body with their names."""
    stored, parts = take_apart(body, is_state=is_state)
    if parts:
        columns = body_parts.c
        of_dataset = (columns.job == job, columns.dataset_urn == dataset_urn)
        # Asked first, because a part may be large and is mostly there.
        query = select(columns.name).where(*of_dataset, is_among(columns.name, parts))
        missing = parts.keys() - {*connection.scalars(query)}
        rows = [{"job": job, "dataset_urn": dataset_urn, "name": name, "body": parts[name]} for name in sorted(missing)]
        if rows:
            connection.execute(insert(connection, body_parts).on_conflict_do_nothing(), rows)
    return stored


def load(connection: Connection, stored: Iterable[str]) -> dict[str, str]:
    """Return the parts of stored bodies by name, in one query; none if the bodies have none."""
    names = part_names(stored)
    if not names:
        return {}
    columns = body_parts.c
    query = select(columns.name, columns.body).where(is_among(columns.name, names))
    return {row.name: row.body for row in connection.execute(query)}


def prune(connection: Connection, job: str, dataset_urn: str, read: Callable[[], Iterable[str]]) -> None:
    """Delete the parts of a dataset that none of its stored bodies names; the caller keeps writers away.

    Args:
        connection: the transaction.
        job: name of the job.
        dataset_urn: the dataset.
        read: returns all bodies of the dataset as they are stored; called only if there are parts.
    """
    columns = body_parts.c
    of_dataset = (columns.job == job, columns.dataset_urn == dataset_urn)
    names = {*connection.scalars(select(columns.name).where(*of_dataset))}
    unused = names - part_names(read()) if names else names
    if unused:
        connection.execute(delete(body_parts).where(*of_dataset, is_among(columns.name, unused)))


def mend_all(connection: Connection, job: str, dataset_urn: str) -> bool:
    """Store the parts of a dataset that were deleted or changed again, from their second copies; tell if any were."""
    columns = body_parts.c
    of_dataset = (columns.job == job, columns.dataset_urn == dataset_urn)
    query = select(columns.name, columns.body).where(*of_dataset)
    found = {row.name: row.body for row in connection.execute(query)}
    mended = mend(found)
    if mended == found:
        return False
    connection.execute(delete(body_parts).where(*of_dataset))
    rows = [{"job": job, "dataset_urn": dataset_urn, "name": name, "body": mended[name]} for name in sorted(mended)]
    if rows:
        connection.execute(insert(connection, body_parts), rows)
    return True
