"""Databases that jobs read from and publish to, by the URLs of SQLAlchemy. No message holds one: it may hold a password."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import NullPool

from gobblin_dagster.core.errors import EnvironmentFaultError

MYSQL = ("mysql", "mariadb")
"""Backends that speak MySQL's protocol."""


def parse_url(text: str, base_dir: str) -> sa.URL:
    """Return a URL with its driver and, for SQLite, the path of its file.

    Args:
        text: As SQLAlchemy writes it; without a driver PostgreSQL means psycopg2, MySQL and MariaDB PyMySQL.
        base_dir: Folder that a relative SQLite file starts from.

    Raises:
        ValueError: it cannot be read.
    """
    try:
        url = sa.make_url(text)
    except (ArgumentError, ValueError):
        form = "postgresql://user:password@host:port/database or sqlite:///file.db"
        raise ValueError(f"the database's URL cannot be read; write it as {form}") from None
    if url.drivername in ("postgres", "postgresql"):
        return url.set(drivername="postgresql+psycopg2")
    if url.drivername in MYSQL:
        return url.set(drivername=f"{url.drivername}+pymysql")
    if url.get_backend_name() == "sqlite":
        return url.set(database=str(Path(base_dir, url.database or "")))
    return url


def make_engine(url: sa.URL, shown: str, connect_args: Mapping[str, Any] | None = None) -> sa.Engine:
    """Return an engine that keeps no connections.

    Args:
        url: Of `parse_url`.
        shown: What messages call the database.
        connect_args: What its driver is given.

    Raises:
        EnvironmentFaultError: the driver is not installed.
    """
    try:
        return sa.create_engine(url, poolclass=NullPool, connect_args=dict(connect_args or {}))
    except (ModuleNotFoundError, ArgumentError) as error:
        raise EnvironmentFaultError(
            problem=f"The database {shown} has no driver here: {error}.",
            hint="Install one; for PostgreSQL: pip install 'gobblin-dagster[postgres]', for MySQL and MariaDB: "
            "pip install 'gobblin-dagster[mysql]'.",
        ) from None
