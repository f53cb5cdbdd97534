"""Revisions of the tables of one store: read with plain SQL on each opening, moved by Alembic if they are behind.

Several stores may share a database: each has a version table and a chain of revisions of its own. Alembic costs half a
second to import, so an opening that finds the newest revision never imports it.
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
    """Alembic's own table; it holds the revision of the store."""
    revisions: tuple[str, ...]
    """All revisions, in order; the code works on the last one."""
    scripts: Path
    """The folder with Alembic's `env.py` and `versions/`."""
    advisory_lock: int
    """The number of PostgreSQL's lock that a migration holds; one for each chain."""

    @property
    def newest(self) -> str:
        """The revision on which the code works."""
        return self.revisions[-1]

    def is_current(self, connection: Connection, shown: str) -> bool:
        """Tell whether the store has the newest revision.

        Args:
            connection: open, to the store's database.
            shown: the store's URL as people may see it, for errors.

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
        """Bring the store to the newest revision, in the caller's transaction; raises as `is_current`.

        Of two programs that open a new store at once, one migrates and the other waits, then finds it done.
        """
        if connection.dialect.name == "postgresql":  # SQLite's write lock is held already
            connection.execute(select(func.pg_advisory_xact_lock(self.advisory_lock)))
        if self.is_current(connection, shown):
            return
        # Imported here because it is slow and seldom needed.
        from alembic import command  # noqa: PLC0415
        from alembic.config import Config  # noqa: PLC0415

        config = Config()
        # Alembic reads its options through configparser, where a percent sign begins a reference.
        config.set_main_option("script_location", str(self.scripts).replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, self.newest)
