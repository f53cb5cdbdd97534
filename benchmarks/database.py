"""The PostgreSQL server of the benchmarks, our job that reads it, and Spark's JDBC reader with its best settings."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the database is that of the tests

from tests.services import maven  # noqa: E402 - after the path to it
from tests.services.postgres import PostgresServer, binaries, running_postgres  # noqa: E402 - after the path to it

_DRIVER = ("org.postgresql:postgresql:42.7.7",)
_FETCH_ROWS = 50_000


@contextmanager
def postgres() -> Iterator[PostgresServer]:
    """Start a server, or end the program if none is installed."""
    folder = binaries()
    if folder is None:
        sys.exit("No PostgreSQL server is installed here.")
    with running_postgres(folder) as server:
        yield server


@contextmanager
def filled_postgres(statements: Sequence[str]) -> Iterator[str]:
    """Start a server with a database that the statements filled, and yield its URL."""
    with postgres() as server:
        database = server.new_database()
        for statement in statements:
            server.execute(statement, database)
        yield server.url(database)


def query_job(url: str, **which: list[str]) -> dict[str, Any]:
    """Return a job of the source `query` that reads tables by their ids."""
    source = {"type": "query", "url": url, "watermark": {"column": "id", "type": "long"}, **which}
    extract = {"namespace": "bench", "table": "tables"}
    return {"job": "bench", "source": source, "extract": extract, "output": {"path": "lake"}}


def jdbc_driver() -> Path:
    """Return the folder of the JDBC driver's jars."""
    folder = maven.jars("postgresql-jdbc", _DRIVER, alone=True)
    if folder is None:
        sys.exit("The JDBC driver cannot be fetched by Maven.")
    return folder


def jdbc_reader(session: Any, url: str) -> Any:
    """Return Spark's reader of the database."""
    where = urlsplit(url)
    options = {
        "url": f"jdbc:postgresql://{where.hostname}:{where.port}{where.path}",
        "user": where.username,
        "password": where.password,
        "driver": "org.postgresql.Driver",
        "fetchsize": _FETCH_ROWS,
    }
    return session.read.format("jdbc").options(**options)
