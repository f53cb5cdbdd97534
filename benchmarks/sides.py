"""Two sides that write the same Parquet: ours and Spark's own reader, in turns, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import duckdb

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Side = Callable[[str, list[Path]], None]
"""Writes the rows of the server at an address into each target, and prints the seconds of each."""


def write_ours(job: dict[str, Any], targets: Sequence[Path]) -> None:
    """Run the job for each target and print the seconds of each; the session is kept, so the second is warm."""
    from gobblin_dagster.engine.job import run_job  # noqa: PLC0415  # each side loads its own
    from gobblin_dagster.engine.launch import LazySparkLane  # noqa: PLC0415  # each side loads its own
    from gobblin_dagster.engine.project import open_project  # noqa: PLC0415  # each side loads its own

    lane = None
    for target in targets:
        (target / "jobs").mkdir(parents=True)
        spec = {"project": "bench", "spark": {"master": f"local[{os.cpu_count()},4]"}}
        (target / "gobblin.yaml").write_text(json.dumps(spec), encoding="utf-8")
        (target / "jobs" / "bench.yaml").write_text(json.dumps(job), encoding="utf-8")
        project = open_project(target)
        lane = lane or LazySparkLane(project.spec.spark)
        begun = time.perf_counter()
        result = run_job(project, project.job(job["job"]), lane=lane)
        if result.exit_code != 0:
            sys.exit(str(result.datasets))
        print(time.perf_counter() - begun, flush=True)


def write_by_spark(read: Callable[[SparkSession], DataFrame], jars: Path, targets: Sequence[Path]) -> None:
    """Write what `read` selects into each target and print the seconds of each."""
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
        read(session).write.parquet(str(target / "lake"))
        print(time.perf_counter() - begun, flush=True)


def compare(script: str, sides: Sequence[str], address: str, work: str, rounds: int, rows: int) -> dict[str, float]:
    """Run each side in turns as `script --side NAME ADDRESS TARGET...`, check its rows, and return its warm median seconds.

    The rows must have an integer column `id` with the values 0 to `rows - 1`.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in sides:
            targets = [f"{work}/{name}-{number}-{turn}" for turn in ("cold", "warm")]
            command = [sys.executable, script, "--side", name, address, *targets]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
            seconds[name].append(float(done.stdout.split()[-1]))
            files = [str(file) for file in Path(targets[-1], "lake").rglob("*.parquet")]
            query = "select count(*), sum(id)::bigint from read_parquet($1)"
            found = duckdb.execute(query, [files]).fetchall()[0]
            if found != (rows, rows * (rows - 1) // 2):
                sys.exit(f"{name} wrote other rows: {found}")
            print(f"{name}, round {number + 1}: {seconds[name][-1]:.1f} s, {found[0]:,} rows", flush=True)
    return {name: median(found) for name, found in seconds.items()}


def tell(what: str, rows: int, seconds: dict[str, float]) -> None:
    """Print rows per second of ours and of the other side, and their ratio."""
    mine, theirs = seconds.values()
    rates = f"{rows / mine:,.0f} rows/s, Spark's own reader {rows / theirs:,.0f} rows/s"
    print(f"{what} -> Parquet, {os.cpu_count()} cores, warm: {rates}: {theirs / mine:.1f}x (bar: >= 2x)")
    print(f"Load average of the machine: {os.getloadavg()[0]:.1f}.")
