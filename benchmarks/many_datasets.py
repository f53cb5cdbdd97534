"""Many small datasets: the whole command, from nothing to published data, then again with nothing new.

    python benchmarks/many_datasets.py [--datasets 200,1000,10000] [--rounds 5] [--dlt PYTHON]

Each dataset is a CSV file of its own, on a local disk, with the state in SQLite. `--dlt` names a Python in which dlt is
installed with `[filesystem,parquet]`: it then reads the same files by pyarrow into the same number of tables, in
sources of 200 (one source of 1,000 ends with a RecursionError). Sides take turns; medians are shown, with the CPU
seconds of all processes beside them, which say more than the clock on a busy machine. The last line is
the exponent of growth: 1 is linear.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import duckdb
from figures import Figure, save_figures

HERE = Path(__file__).parent
PR_SET_CHILD_SUBREAPER = 36
"""Of Linux: `man 2 prctl`."""
JOB = """
job: many
source: {{type: files, path: "{files}/{{dataset}}/{{date:%Y-%m-%d}}.csv", format: csv}}
extract: {{namespace: bench, table: many}}
output: {{path: lake}}
"""
SIDES = {"ours": "spark: {start: when_needed}\n", "ours on Spark": ""}
"""Settings of our sides: without Spark, as projects of `gobblin init` run little work, and with it."""


@dataclass(frozen=True)
class Took:
    """What one command took."""

    seconds: float
    cpu_s: float


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", default="200,1000,10000", help="numbers of datasets (default: 200,1000,10000)")
    parser.add_argument("--rows", type=int, default=336, help="rows of a dataset (default: 336)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side (default: 5)")
    parser.add_argument("--dlt", type=Path, help="a Python that has dlt")
    parser.add_argument("--cache", type=Path, default=HERE.parent / ".work" / "bench", help="folder to work in")
    args = parser.parse_args()
    adopt_orphans()
    sizes = [int(size) for size in args.datasets.split(",")]
    figures: list[Figure] = []
    for size in sizes:
        figures += measure(args.cache.resolve(), size, args.rows, args.rounds, args.dlt)
    for figure in figures:
        print(f"{figure.of:>9,} datasets, {figure.side:<19} {figure.value:8.2f} s, {figure.cpu_s:8.2f} CPU s")
    cold = {figure.of: figure for figure in figures if figure.side == "ours, cold"}
    if len(cold) > 1:
        small, large = cold[min(cold)], cold[max(cold)]
        grown = math.log(large.of / small.of)
        by_clock, by_cpu = (
            math.log(b / a) / grown for a, b in ((small.value, large.value), (small.cpu_s, large.cpu_s))
        )
        print(f"Growth from {small.of:,} to {large.of:,}: exponent {by_clock:.2f} by the clock, {by_cpu:.2f} by CPU.")
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}, medians of {args.rounds}.")
    save_figures("Many small datasets, seconds by number of datasets", figures)


def measure(cache: Path, size: int, rows: int, rounds: int, dlt: Path | None) -> list[Figure]:
    """Let the sides take turns, compare their rows, and return the medians."""
    files = write_files(cache, size, rows)
    took: dict[str, list[Took]] = {}
    for _ in range(rounds):
        for side, settings in SIDES.items():
            project = cache / "many"
            shutil.rmtree(project, ignore_errors=True)
            (project / "jobs").mkdir(parents=True)
            (project / "gobblin.yaml").write_text(f"project: bench\n{settings}", encoding="utf-8")
            (project / "jobs" / "many.yaml").write_text(JOB.format(files=files), encoding="utf-8")
            run = [sys.executable, "-m", "gobblin_dagster", "run"]
            took.setdefault(f"{side}, cold", []).append(timed(run, project))
            require_rows(project / "lake", size * rows)
            took.setdefault(f"{side}, idle", []).append(timed(run, project))
            require_rows(project / "lake", size * rows)
            shutil.rmtree(project)
        if dlt is not None:
            shutil.rmtree(cache / "dlt", ignore_errors=True)
            (cache / "dlt").mkdir()
            took.setdefault("dlt, cold", []).append(
                timed([str(dlt), str(HERE / "many_datasets_dlt.py"), str(files)], cache / "dlt")
            )
            require_rows(cache / "dlt" / "lake", size * rows)
            shutil.rmtree(cache / "dlt")
    return [
        Figure(side, size, median(one.seconds for one in turns), median(one.cpu_s for one in turns))
        for side, turns in took.items()
    ]


def write_files(cache: Path, size: int, rows: int) -> Path:
    """Write a file of flights for each dataset, once, and return the folder."""
    folder = cache / f"many-{size}-{rows}"
    if not folder.exists():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        text = "id,carrier,delay,day\n" + "".join(
            f"{number},UA,{number * 1.5},2026-01-{1 + number % 28:02}\n" for number in range(rows)
        )
        for number in range(size):
            file = part / f"d{number:06}" / "2026-01-01.csv"
            file.parent.mkdir(parents=True)
            file.write_text(text, encoding="utf-8")
        part.rename(folder)
    return folder


def adopt_orphans() -> None:
    """Make processes that a command leaves our children, so that their CPU seconds are counted."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def timed(command: Sequence[str], folder: Path, *, waits: bool = True) -> Took:
    """Run a command in a folder and return what it took; end with its output if it fails.

    With `waits`, the CPU seconds of processes that it left are counted: they must end by themselves.
    """
    others = children()
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True)
    seconds = time.perf_counter() - begun
    while waits and (left := children() - others):
        with suppress(ChildProcessError):
            os.waitpid(left.pop(), 0)  # the JVM and its workers, which outlive the command by a moment
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return Took(seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def children() -> set[int]:
    """Return the ids of this process's children; those of a command become ours when it ends."""
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="utf-8")
    return {int(number) for number in found.split()}


def require_rows(lake: Path, rows: int) -> None:
    """End the program if the Parquet files below a folder do not hold so many rows of data."""
    files = [str(file) for file in lake.rglob("*.parquet") if "_gobblin" not in file.parts and "_dlt" not in str(file)]
    (found,) = duckdb.execute("select count(*) from read_parquet($1)", [files]).fetchall()[0]
    if found != rows:
        sys.exit(f"{lake} holds {found:,} rows, expected {rows:,}.")


if __name__ == "__main__":
    main()
