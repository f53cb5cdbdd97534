"""Rows of topology files that came over REST: with the files of the folder they make one topology."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select

from gobblin_dagster.database.dialect import insert
from gobblin_dagster.service.store.store import Transaction, serialize_changes
from gobblin_dagster.service.store.tables import topology_files


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A topology file in the database."""

    name: str
    body: str
    """YAML."""
    version: int
    changed_at: datetime
    changed_by: str


def newest_topology(transaction: Transaction) -> int:
    """Return the number of the newest change; 0 if there was none."""
    return transaction.execute(select(func.max(topology_files.c.version))).scalar_one() or 0


def list_files(transaction: Transaction) -> list[StoredFile]:
    """Return the files that there are, by name."""
    query = select(topology_files).where(topology_files.c.body.is_not(None)).order_by(topology_files.c.name)
    return [StoredFile(*row) for row in transaction.execute(query)]


def save_file(transaction: Transaction, name: str, body: str | None, by: str, now: datetime) -> int:
    """Store a file in the place of one with its name, or delete it (None); return the number of the change."""
    serialize_changes(transaction)
    version = newest_topology(transaction) + 1
    values = {"name": name, "body": body, "version": version, "changed_at": now, "changed_by": by}
    changed = {key: value for key, value in values.items() if key != "name"}
    statement = insert(transaction, topology_files).values(values)
    transaction.execute(statement.on_conflict_do_update(index_elements=["name"], set_=changed))
    return version
