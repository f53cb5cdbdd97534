"""Compare the source `query` with Spark's JDBC reader: both turn a PostgreSQL table into the same Parquet.

    python benchmarks/query_source.py [--rows 4000000]

Spark's reader gets what it is given by hand at its best: a partition column with bounds, one partition per core and
more, and a large fetch size. Both sides take turns, each in a process of its own that does it twice; the second, warm
time counts. Needs what tests need (`make install`), PostgreSQL, Java and Maven.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from database import filled_postgres, jdbc_driver, jdbc_reader, query_job
from sides import Comparison, write_by_spark, write_ours

TABLE = """
    CREATE TABLE flights AS SELECT id::bigint AS id, 'UA' AS carrier, 'EWR' AS origin, (id % 3000)::bigint AS distance,
    (id % 90) + 0.5::double precision AS delay, timestamptz '2026-01-01' + id * interval '1 second' AS departed
    FROM generate_series(0, {rows} - 1) AS id
"""
PARTITIONS = 2 * (os.cpu_count() or 1)


def ours(url: str, targets: list[Path]) -> None:
    """Run a job for each target."""
    write_ours(query_job(url, tables=["public.flights"]), targets)


def spark(url: str, targets: list[Path]) -> None:
    """Write each target by Spark's own reader."""

    def write(session: Any, lake: Path) -> None:
        low, high = jdbc_reader(session, url).option("query", "SELECT min(id), max(id) FROM flights").load().first()
        bounds = {"partitionColumn": "id", "lowerBound": low, "upperBound": high, "numPartitions": PARTITIONS}
        rows = jdbc_reader(session, url).options(**bounds).option("dbtable", "flights").load()
        rows.write.parquet(str(lake))

    write_by_spark(write, jdbc_driver(), targets)


def filled(rows: int) -> AbstractContextManager[str]:
    """Start a server with a table of so many rows."""
    return filled_postgres([TABLE.format(rows=rows), "ALTER TABLE flights ADD PRIMARY KEY (id)", "ANALYZE"])


if __name__ == "__main__":
    sides = {"ours": ours, "spark": spark}
    Comparison(__file__, "PostgreSQL", 4_000_000, sides, bar=2).main(__doc__, filled)
