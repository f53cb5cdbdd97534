"""The source `query` against Spark's own JDBC reader: a table of a real PostgreSQL becomes the same Parquet on both sides.

    python benchmarks/query_source.py [--rows 4000000]

Spark's reader gets what it is given by hand at its best: a partition column with bounds, one partition per core and more,
and a large fetch size. Both sides take turns, each in a process of its own that does it twice; the second, warm time counts.
Needs what tests need (`make install`), PostgreSQL, Java and Maven.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sides import Comparison, write_by_spark, write_ours

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the database is that of the tests

from tests.services import maven  # noqa: E402 - after the path to it
from tests.services.postgres import binaries, running_postgres  # noqa: E402 - after the path to it

DRIVER = ("org.postgresql:postgresql:42.7.7",)
TABLE = """
    CREATE TABLE flights AS SELECT id::bigint AS id, 'UA' AS carrier, 'EWR' AS origin, (id % 3000)::bigint AS distance,
    (id % 90) + 0.5::double precision AS delay, timestamptz '2026-01-01' + id * interval '1 second' AS departed
    FROM generate_series(0, {rows} - 1) AS id
"""
PARTITIONS = 2 * (os.cpu_count() or 1)
FETCH_ROWS = 50_000


def ours(url: str, targets: list[Path]) -> None:
    """Run a job for each target."""
    job = {
        "job": "bench",
        "source": {
            "type": "query",
            "url": url,
            "tables": ["public.flights"],
            "watermark": {"column": "id", "type": "long"},
        },
        "extract": {"namespace": "bench", "table": "flights"},
        "output": {"path": "lake"},
    }
    write_ours(job, targets)


def spark(url: str, targets: list[Path]) -> None:
    """Write each target by Spark's own reader."""
    folder = maven.jars("postgresql-jdbc", DRIVER, alone=True)
    if folder is None:
        sys.exit("The JDBC driver cannot be fetched by Maven.")
    where = urlsplit(url)

    def read(session: Any) -> Any:
        jdbc = f"jdbc:postgresql://{where.hostname}:{where.port}{where.path}"
        options = {
            "user": where.username,
            "password": where.password,
            "driver": "org.postgresql.Driver",
            "fetchsize": FETCH_ROWS,
        }
        rows = session.read.format("jdbc").option("url", jdbc).options(**options)
        low, high = rows.option("query", "SELECT min(id), max(id) FROM flights").load().first()
        bounds = {"partitionColumn": "id", "lowerBound": low, "upperBound": high, "numPartitions": PARTITIONS}
        parts = session.read.format("jdbc").option("url", jdbc).options(**options, **bounds)
        return parts.option("dbtable", "flights").load()

    write_by_spark(read, folder, targets)


@contextmanager
def filled_postgres(rows: int) -> Iterator[str]:
    """Start a server with a table of so many rows and yield its URL."""
    folder = binaries()
    if folder is None:
        sys.exit("No PostgreSQL server is installed here.")
    with running_postgres(folder) as server:
        database = server.new_database()
        for statement in (TABLE.format(rows=rows), "ALTER TABLE flights ADD PRIMARY KEY (id)", "ANALYZE"):
            server.execute(statement, database)
        yield server.url(database)


if __name__ == "__main__":
    Comparison(__file__, "PostgreSQL", 4_000_000, {"ours": ours, "spark": spark}).main(__doc__, filled_postgres)
