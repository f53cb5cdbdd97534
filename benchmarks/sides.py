"""Two sides that write the same Parquet: ours and Spark's own reader, in turns, each in a process of its own."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import duckdb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Side = Callable[[str, list[Path]], None]
"""Writes the rows of the server at an address into each target, and prints the seconds of each."""


def write_ours(job: dict[str, Any], targets: Sequence[Path]) -> None:
    """Run the job for each target and print the seconds of each; the session is kept, so the second is warm."""
    from gobblin_dagster.engine.project import open_project  # noqa: PLC0415  # each side loads its own
    from gobblin_dagster.engine.run.job_run import run_job  # noqa: PLC0415  # each side loads its own
    from gobblin_dagster.engine.spark.lazy import LazySparkRunner  # noqa: PLC0415  # each side loads its own

    runner = None
    for target in targets:
        (target / "jobs").mkdir(parents=True)
        spec = {"project": "bench", "spark": {"master": f"local[{os.cpu_count()},4]"}}
        (target / "gobblin.yaml").write_text(json.dumps(spec), encoding="utf-8")
        (target / "jobs" / "bench.yaml").write_text(json.dumps(job), encoding="utf-8")
        project = open_project(target)
        runner = runner or LazySparkRunner(project.spec.spark)
        begun = time.perf_counter()
        result = run_job(project, project.job(job["job"]), runner=runner)
        if result.exit_code != 0:
            sys.exit(str(result.datasets))
        print(time.perf_counter() - begun, flush=True)


def write_by_spark(write: Callable[[SparkSession, Path], None], jars: Path, targets: Sequence[Path]) -> None:
    """Let `write` fill the folder `lake` of each target, and print the seconds of each."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  # each side loads its own

    session = (
        SparkSession.builder.master(f"local[{os.cpu_count()}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.jars", ",".join(str(jar) for jar in sorted(jars.glob("*.jar"))))
        .getOrCreate()
    )
    for target in targets:
        begun = time.perf_counter()
        write(session, target / "lake")
        print(time.perf_counter() - begun, flush=True)


@dataclass(frozen=True)
class Comparison:
    """Both sides of one script, ours first; each writes the rows of a server, with an `id` from 0 to `rows - 1`."""

    script: str
    what: str
    """What is read, for people."""
    rows: int
    """How many by default."""
    sides: Mapping[str, Side]
    bar: float | None = None
    """How many times as fast ours is to be."""

    def main(self, doc: str | None, server: Callable[[int], AbstractContextManager[str]]) -> None:
        """Measure both sides in turns and print rows per second; `server` fills a server and yields its address."""
        parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--rows", type=int, default=self.rows, help=f"rows (default: {self.rows:,})")
        parser.add_argument("--rounds", type=int, default=3, help="turns of each side (default: 3)")
        parser.add_argument("--side", choices=self.sides, help=argparse.SUPPRESS)
        parser.add_argument("more", nargs="*", help=argparse.SUPPRESS)
        args = parser.parse_args()
        if args.side:
            self.sides[args.side](args.more[0], [Path(target) for target in args.more[1:]])
            return
        with server(args.rows) as address, tempfile.TemporaryDirectory() as work:
            mine, theirs = self._seconds(address, work, args.rounds, args.rows)
        rates = f"{args.rows / mine:,.0f} rows/s, Spark's own reader {args.rows / theirs:,.0f} rows/s"
        bar = "" if self.bar is None else f" (bar: >= {self.bar}x)"
        print(f"{self.what} -> Parquet, {os.cpu_count()} cores, warm: {rates}: {theirs / mine:.1f}x{bar}")
        print(f"Load average of the machine: {os.getloadavg()[0]:.1f}.")

    def _seconds(self, address: str, work: str, rounds: int, rows: int) -> list[float]:
        """Run each side in turns, check its rows, and return the median warm seconds of each."""
        seconds: dict[str, list[float]] = {name: [] for name in self.sides}
        for number in range(rounds):
            for name, found in seconds.items():
                targets = [f"{work}/{name}-{number}-{turn}" for turn in ("cold", "warm")]
                command = [sys.executable, self.script, "--side", name, address, *targets]
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
                found.append(float(done.stdout.split()[-1]))
                files = [str(file) for file in Path(targets[-1], "lake").rglob("*.parquet")]
                query = "select count(*), sum(id)::bigint from read_parquet($1)"
                wrote = duckdb.execute(query, [files]).fetchall()[0]
                if wrote != (rows, rows * (rows - 1) // 2):
                    sys.exit(f"{name} wrote other rows: {wrote}")
                print(f"{name}, round {number + 1}: {found[-1]:.1f} s, {rows:,} rows", flush=True)
        return [median(found) for found in seconds.values()]
