"""The revision of a SQL store: read with plain SQL on each opening, moved by Alembic where it is behind.

Alembic costs half a second to import, so an opening that finds the newest revision never does.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Column, Connection, MetaData, Table, Text, func, inspect, select

from gobblin_dagster.core.errors import StoreVersionError
from gobblin_dagster.state.sql.tables import VERSION_TABLE

REVISIONS = ("0001", "0002", "0003")
"""All revisions, in order; the last one is what the code works on."""

_ADVISORY_LOCK = 0x60BB11
_versions = Table(VERSION_TABLE, MetaData(), Column("version_num", Text))


def is_current(connection: Connection, shown: str) -> bool:
    """Tell whether the store has the newest revision.

    Raises:
        StoreVersionError: it has one that this program does not know.
    """
    if not inspect(connection).has_table(VERSION_TABLE):
        return False
    found = connection.scalar(select(_versions.c.version_num))
    if found is not None and found not in REVISIONS:
        raise StoreVersionError(store=shown, found=found, known=REVISIONS[-1])
    return found == REVISIONS[-1]


def upgrade(connection: Connection, shown: str) -> None:
    """Bring the store to the newest revision, in the caller's transaction; raises as `is_current`.

    Of two programs that open a new store at once, one migrates and the other waits, then finds it done.
    """
    if connection.dialect.name == "postgresql":  # SQLite's write lock is held already
        connection.execute(select(func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
    if is_current(connection, shown):
        return
    # Imported here because it is slow and seldom needed.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    # Alembic reads its options through configparser, where a percent sign begins a reference.
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, REVISIONS[-1])
