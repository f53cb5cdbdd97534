"""Bring the tables of a store to the newest revision when it is opened.

The stored revision is read with plain SQL; Alembic is used only if it is not the newest one, because importing Alembic
takes half a second. Several stores may share a database: each has its own version table and its own chain of
revisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Column, Connection, MetaData, Table, Text, func, inspect, select

from gobblin_dagster.core.errors import StoreVersionError


@dataclass(frozen=True, slots=True)
class RevisionChain:
    """The revisions of one store.

    Example:
        >>> RevisionChain("gobblin_schema_version", ("0001", "0002"), Path("migrations"), 1).newest
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
        if not inspect(connection).has_table(self.version_table):
            return False
        versions = Table(self.version_table, MetaData(), Column("version_num", Text))
        found = connection.scalar(select(versions.c.version_num))
        if found is not None and found not in self.revisions:
            raise StoreVersionError(store=shown, found=found, known=self.newest)
        return bool(found == self.newest)

    def upgrade(self, connection: Connection, shown: str) -> None:
        """Bring the store to the newest revision, in the caller's transaction; raises like `is_current`.

        If two programs open a new store at once, one migrates; the other waits and then has nothing to do.
        """
        if connection.dialect.name == "postgresql":  # SQLite's write lock is held already
            connection.execute(select(func.pg_advisory_xact_lock(self.advisory_lock)))
        if self.is_current(connection, shown):
            return
        # Imported here because it is slow to import and rarely needed.
        from alembic import command  # noqa: PLC0415
        from alembic.config import Config  # noqa: PLC0415

        config = Config()
        # Alembic reads its options through configparser, where a percent sign begins a reference.
        config.set_main_option("script_location", str(self.scripts).replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, self.newest)
