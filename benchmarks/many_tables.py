"""Many small tables by the source `query`, against Spark's own JDBC reader: what most databases of a company look like.

    python benchmarks/many_tables.py [--rows 300000]

Each table has 1,000 rows and is read whole. Spark reads and writes table after table as one writes it by hand, as many
at a time as there are cores; ours also keeps a watermark, a commit sequence and a snapshot for each. Both sides take
turns, each in a process of its own that does it twice; the second, warm time counts. Needs what tests need, PostgreSQL,
Java and Maven.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from database import filled_postgres, jdbc_driver, jdbc_reader, query_job
from sides import Comparison, write_by_spark, write_ours

ROWS = 1_000
TABLE = """
    CREATE TABLE t{number} (id bigint PRIMARY KEY, carrier text, delay double precision, departed timestamptz);
    INSERT INTO t{number} SELECT id, 'UA', (id % 90) + 0.5, timestamptz '2026-01-01' + id * interval '1 second'
    FROM generate_series({first}, {first} + {rows} - 1) AS id
"""


def ours(url: str, targets: list[Path]) -> None:
    """Run a job for each target."""
    write_ours(query_job(url, include=["public[.].*"]), targets)


def spark(url: str, targets: list[Path]) -> None:
    """Write each table of each target by Spark's own reader."""

    def write(session: Any, lake: Path) -> None:
        listed = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        names = [row[0] for row in jdbc_reader(session, url).option("query", listed).load().collect()]

        def write_table(name: str) -> None:
            jdbc_reader(session, url).option("dbtable", name).load().write.parquet(str(lake / name))

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(write_table, names))

    write_by_spark(write, jdbc_driver(), targets)


def filled(rows: int) -> AbstractContextManager[str]:
    """Start a server with so many rows in as many tables as that makes."""
    firsts = range(0, rows, ROWS)
    tables = [TABLE.format(number=first // ROWS, first=first, rows=min(ROWS, rows - first)) for first in firsts]
    return filled_postgres([*tables, "ANALYZE"])


if __name__ == "__main__":
    Comparison(__file__, "Many tables of PostgreSQL", 300_000, {"ours": ours, "spark": spark}).main(__doc__, filled)
