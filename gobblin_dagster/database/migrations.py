"""Bring the tables of a store to the newest revision when it is opened.

The stored revision is read with plain SQL; Alembic is used only if it is not the newest one, because importing Alembic
takes half a second. Several stores may share a database: each has its own version table and its own chain of
revisions.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, func, inspect, select, text

from gobblin_dagster.core.errors import StorageError, StoreVersionError

_ALEMBIC = threading.Lock()
"""Alembic keeps the connection of the migration that runs in a global variable: two threads would share one."""


@dataclass(frozen=True, slots=True)
class RevisionChain:
    """The revisions of one store.

    Example:
        >>> RevisionChain("gobblin_schema_version", ("0001", "0002"), Path("migrations"), 1, "gobblin_runs").newest
        '0002'
    """

    version_table: str
    """Alembic's table with the revision of the store."""
    revisions: tuple[str, ...]
    """All revisions, oldest first; the code works with the last one."""
    scripts: Path
    """The folder with Alembic's `env.py` and `versions/`."""
    advisory_lock: int
    """Number of the PostgreSQL advisory lock that a migration holds; another number for each chain."""
    first_table: str
    """A table of the first revision."""

    @property
    def newest(self) -> str:
        """The revision that the code works with."""
        return self.revisions[-1]

    def is_current(self, connection: Connection, shown: str) -> bool:
        """Return whether the store has the newest revision.

        Args:
            connection: an open connection to the store's database.
            shown: the store's URL for messages (`shown_url`).

        Raises:
            StoreVersionError: the store has a revision that this program does not know.
        """
        found = self.revision(connection)
        if found is not None and found not in self.revisions:
            raise StoreVersionError(store=shown, found=found, known=self.newest)
        return bool(found == self.newest)

    def revision(self, connection: Connection) -> str | None:
        """Return the revision of the store; None if it has none."""
        if not connection.dialect.has_table(connection, self.version_table):
            return None
        query = text(f"SELECT version_num FROM {self.version_table}")  # noqa: S608 - a constant of ours
        found: str | None = connection.scalar(query)
        return found

    def upgrade(self, connection: Connection, shown: str) -> None:
        """Bring the store to the newest revision, in the caller's transaction.

        If two programs open a new store at once, one migrates; the other waits and then has nothing to do.

        Raises:
            StoreVersionError: as `is_current`.
            StorageError: the store has tables, but no revision.
        """
        if connection.dialect.name == "postgresql":  # SQLite's write lock is held already
            connection.execute(select(func.pg_advisory_xact_lock(self.advisory_lock)))
        if self.is_current(connection, shown):
            return
        self._require_revision(connection, shown)
        # Imported here because it is slow to import and rarely needed.
        from alembic import command  # noqa: PLC0415
        from alembic.config import Config  # noqa: PLC0415

        config = Config()
        # Alembic reads its options through configparser, where a percent sign begins a reference.
        config.set_main_option("script_location", str(self.scripts).replace("%", "%%"))
        config.attributes["connection"] = connection
        with _ALEMBIC:
            command.upgrade(config, self.newest)

    def _require_revision(self, connection: Connection, shown: str) -> None:
        """Raise StorageError if there are tables without a revision: the first migration would make them again."""
        if self.revision(connection) is not None or not inspect(connection).has_table(self.first_table):
            return
        is_there = inspect(connection).has_table(self.version_table)
        make = "" if is_there else f"CREATE TABLE {self.version_table} (version_num VARCHAR(32) NOT NULL PRIMARY KEY); "
        row = f"INSERT INTO {self.version_table} (version_num) VALUES ('{self.newest}')"  # noqa: S608 - names of ours
        raise StorageError(
            operation="use the store",
            path=shown,
            problem=f"it has tables, but nothing in `{self.version_table}`, which says their version. Nothing was "
            "changed. Restore the whole database from a backup; or, if no program of another version wrote to it last, "
            f"add what is missing: {make}{row}",
        )
