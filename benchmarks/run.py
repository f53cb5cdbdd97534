"""`make bench`: ratios to hand-written PySpark, both measured in one run on the same data, and an idle run.

Both sides take turns (ours, theirs, ours, theirs, ...), each in a process of its own. *Cold* is from the start of the
process to published data: Python, JVM, first job. *Warm* is the next job in the same process. Medians are shown; the
rows of both outputs are compared. `--rows 400000 --datasets 200 --rounds 1` gives a quick look.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import duckdb
import handwritten
import ours
from data import write_flights, write_many_datasets
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
SIDES = {"ours": ours, "theirs": handwritten}
BARS = {"fork": 3.0, "single": 2.0}
"""Least ratio theirs / ours, warm."""
TITLES = {"fork": "CSV -> 2 forked Parquet outputs", "single": "CSV -> 1 Parquet output"}

console = Console(width=110)


class Side:
    """A process that does one scenario again and again."""

    def __init__(self, name: str, scenario: str, flights: Path, log: Path) -> None:
        self.name = name
        self._log = log
        script = HERE / Path(str(SIDES[name].__file__)).name
        self._begun = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, str(script), scenario, str(flights)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("ab"),
            text=True,
        )

    def run(self, target: Path, *, is_cold: bool) -> float:
        """Do it once and return the seconds; cold ones count from the start of the process."""
        begun = self._begun if is_cold else time.perf_counter()
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{target}\n")
        self._process.stdin.flush()
        if self._process.stdout.readline() != "done\n":
            sys.exit(f"The benchmark's side '{self.name}' failed; its log is {self._log}.")
        return time.perf_counter() - begun

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


@dataclass
class Times:
    """Seconds by side, one per round."""

    cold: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in SIDES})
    warm: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in SIDES})


def compare(scenario: str, flights: Path, out: Path, rounds: int) -> Times:
    """Let both sides take turns and compare what they wrote."""
    times = Times()
    for number in range(rounds):
        sides, written = [], {}
        for name in SIDES:
            side = Side(name, scenario, flights, out / f"{name}.log")
            times.cold[name].append(side.run(out / f"{name}-cold-{number}", is_cold=True))
            sides.append(side)
        for side in sides:
            target = out / f"{side.name}-warm-{number}"
            times.warm[side.name].append(side.run(target, is_cold=False))
            written[side.name] = {branch: digest(paths) for branch, paths in SIDES[side.name].published(target).items()}
            side.close()
        if written["ours"] != written["theirs"]:
            sys.exit(f"The outputs differ: {written}")
        console.print(f"[dim]{TITLES[scenario]}, round {number + 1} of {rounds}: same rows {written['ours']}[/]")
        for folder in out.glob(f"*-{number}"):
            shutil.rmtree(folder)
    return times


def digest(paths: list[str]) -> tuple[int, int]:
    """Return the number of rows in Parquet files, and a sum over their content that no order changes."""
    values = "year, month, day, dep_time, carrier, flight, origin, dest, distance, epoch_us(time_hour)"
    query = f"select count(*), (sum(hash({values})::hugeint) % 1000000007)::bigint from read_parquet($1)"
    rows, content = duckdb.execute(query, [paths]).fetchall()[0]
    return rows, content


def idle_run(cache: Path, datasets: int, rounds: int) -> dict[str, float]:
    """Publish many datasets once, then measure runs that find nothing new."""
    folder = cache / f"idle-{datasets}"
    if not folder.exists():
        console.print(f"[dim]Publishing {datasets:,} datasets once ...[/]")
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        side = Side("ours", "idle", write_many_datasets(cache, datasets), cache / "idle.log")
        seconds = side.run(part, is_cold=True)
        side.close()
        part.rename(folder)
        console.print(f"[dim]... in {seconds:.0f} s.[/]")
    answers = []
    for _ in range(rounds):
        begun = time.perf_counter()
        run = [sys.executable, str(HERE / "idle.py"), str(folder)]
        done = subprocess.run(run, capture_output=True, text=True, check=True)
        answers.append(json.loads(done.stdout) | {"process_seconds": time.perf_counter() - begun})
    return {key: median(answer[key] for answer in answers) for key in answers[0]}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000, help="flights to read (default: 4,000,000)")
    parser.add_argument("--datasets", type=int, default=10_000, help="datasets of the idle run (default: 10,000)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side (default: 3)")
    parser.add_argument("--cache", type=Path, default=HERE.parent / ".work" / "bench", help="folder for the input")
    args = parser.parse_args()
    cache = args.cache.resolve()
    load_before = os.getloadavg()[0]

    flights = write_flights(cache, args.rows)
    out = cache / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    table = Table(title=f"{args.rows:,} rows, {os.cpu_count()} cores, medians of {args.rounds}")
    for column in ("what", "", "ours", "hand-written PySpark", "ratio", "bar"):
        table.add_column(column, justify="left" if column in ("what", "") else "right")
    for scenario, bar in BARS.items():
        times = compare(scenario, flights, out, args.rounds)
        for label, by_side in (("cold", times.cold), ("warm", times.warm)):
            mine, theirs = median(by_side["ours"]), median(by_side["theirs"])
            limit = f">= {bar:g}x" if label == "warm" else ""
            table.add_row(TITLES[scenario], label, f"{mine:.1f} s", f"{theirs:.1f} s", f"{theirs / mine:.1f}x", limit)
    console.print(table)

    idle = idle_run(cache, args.datasets, args.rounds)
    console.print(
        f"Idle run over {idle['datasets']:,.0f} datasets: {idle['seconds']:.1f} s ({idle['process_seconds']:.1f} s "
        f"with Python's start; bar <= 5 s), Spark {'started' if idle['spark_started'] else 'not started'}, dataset "
        f"states read in {idle['state_queries']:.0f} query (bar: 1)."
    )
    console.print(f"Load average of the machine: {load_before:.1f} before, {os.getloadavg()[0]:.1f} after.")
    shutil.rmtree(out)


if __name__ == "__main__":
    main()
