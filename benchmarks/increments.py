"""Four tables of PostgreSQL by whole commands: all rows, then 1,000 more, then nothing new.

    python benchmarks/increments.py [--rows 503000] [--rounds 5] [--dlt PYTHON]

The sides take turns: ours in a process of its own without Spark, ours in a warm worker, ours with Spark, and dlt, if a
Python is named in which dlt is installed with `[filesystem,parquet,sql-database]` and psycopg2. dlt reads the tables
incrementally by the same column, as Arrow tables. Medians are shown, with the CPU seconds of the commands beside them,
without those of the database and of a worker that stays. The rows of all sides must agree.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from database import postgres
from figures import Figure, save_figures
from many_datasets import HERE, PR_SET_CHILD_SUBREAPER, Took, require_rows, timed

if TYPE_CHECKING:
    from tests.services.postgres import PostgresServer

MORE = 1_000
SHARES = {"orders": 0.6, "customers": 0.2, "items": 0.15, "shops": 0.05}
"""The tables, and their shares of the rows."""
TABLE = "CREATE TABLE {name} (id bigint PRIMARY KEY, carrier text, delay double precision, departed timestamptz)"
FILL = """
    INSERT INTO {name} SELECT id, 'UA', (id % 90) + 0.5, timestamptz '2026-01-01' + id * interval '1 second'
    FROM generate_series({first}, {last}) AS id
"""
URL = "BENCH_POSTGRES_URL"
PROJECT = "project: bench\nspark: {{keep_warm: {keep}, start: {start}}}\n"
JOB = f"""
job: four
source: {{type: query, url: "${{{URL}}}", include: ["public[.].*"], watermark: {{column: id, type: long}}}}
extract: {{namespace: bench, table: four}}
output: {{path: lake}}
"""
STEPS = ("all rows", "1,000 more", "nothing new")


@dataclass(frozen=True)
class Side:
    """A program that loads the tables into `lake`, below its folder."""

    name: str
    folder: Path
    command: Sequence[str]

    @property
    def is_ours(self) -> bool:
        """Whether its folder is a project."""
        return self.name.startswith("ours")

    @property
    def is_warm(self) -> bool:
        """Whether a worker stays."""
        return "warm" in self.name

    def prepare(self) -> None:
        """Make its folder."""
        self.folder.mkdir()
        if self.is_ours:
            (self.folder / "jobs").mkdir()
            keep = "10m" if self.is_warm else "null"
            start = "always" if "Spark" in self.name else "when_needed"
            (self.folder / "gobblin.yaml").write_text(PROJECT.format(keep=keep, start=start), encoding="utf-8")
            (self.folder / "jobs" / "four.yaml").write_text(JOB, encoding="utf-8")

    def end(self) -> None:
        """End its worker, if it has one."""
        if self.is_ours:
            subprocess.run([sys.executable, "-m", "gobblin_dagster", "worker", "stop"], check=False, cwd=self.folder)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=503_000, help="rows of all tables together (default: 503,000)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side (default: 5)")
    parser.add_argument("--dlt", type=Path, help="a Python that has dlt")
    args = parser.parse_args()
    # Processes that a command leaves become our children, so that their CPU seconds are counted.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    took: dict[tuple[str, str], list[Took]] = {}
    with postgres() as server:
        for _ in range(args.rounds):
            one_round(server, args.rows, args.dlt, took)
    for (name, step), turns in took.items():
        seconds, cpu_s = median(one.seconds for one in turns), median(one.cpu_s for one in turns)
        print(f"{step:<12} {name:<12} {seconds:8.2f} s, {cpu_s:8.2f} CPU s")
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}, medians of {args.rounds}.")
    for step in STEPS:
        figures = [
            Figure(name, args.rows, median(one.seconds for one in turns), median(one.cpu_s for one in turns))
            for (name, of), turns in took.items()
            if of == step
        ]
        save_figures(f"Four tables of PostgreSQL, seconds: {step}", figures)


def one_round(server: PostgresServer, rows: int, dlt: Path | None, took: dict[tuple[str, str], list[Took]]) -> None:
    """Let each side do all steps on a new database, in turns, and add what each step took."""
    database = server.new_database()
    for name in SHARES:
        server.execute(TABLE.format(name=name), database)
    os.environ[URL] = server.url(database)
    with TemporaryDirectory() as folder:
        sides, present = sides_in(Path(folder), dlt), 0
        try:
            for step, more in zip(STEPS, (rows, MORE, 0), strict=True):
                for name, share in SHARES.items():
                    first, last = int(present * share) + 1, int((present + more) * share)
                    server.execute(FILL.format(name=name, first=first, last=last), database)
                present += more
                for side in sides:
                    once = timed(side.command, side.folder, waits=not side.is_warm)
                    took.setdefault((side.name, step), []).append(once)
                    require_rows(side.folder / "lake", sum(int(present * share) for share in SHARES.values()))
        finally:
            for side in sides:
                side.end()


def sides_in(folder: Path, dlt: Path | None) -> list[Side]:
    """Return the sides, with their folders made."""
    run = [sys.executable, "-m", "gobblin_dagster", "run"]
    names = {"ours, own": "own", "ours, warm": "warm", "ours, Spark": "spark"}
    sides = [Side(name, folder / below, run) for name, below in names.items()]
    if dlt is not None:
        sides.append(Side("dlt", folder / "dlt", [str(dlt), str(HERE / "increments_dlt.py"), URL]))
    for side in sides:
        side.prepare()
    return sides


if __name__ == "__main__":
    main()
