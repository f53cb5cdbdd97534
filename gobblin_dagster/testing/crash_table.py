"""The crash table: every single fault, and N random storms, on each kind of store and storage; what was harmed.

    python -m gobblin_dagster.testing.crash_table --storms 2000

Seeds are counted from `--seed`, so a row can be run again, and a broken schedule is printed with its own seed.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import get_args

from gobblin_dagster.testing.checkers import Harm
from gobblin_dagster.testing.example import Example, StoreKind
from gobblin_dagster.testing.schedules import (
    Report,
    Schedule,
    errors,
    freezes,
    instants,
    kills,
    late_movers,
    power_losses,
    trace_of,
)
from gobblin_dagster.testing.storms import StorageKind, storms

FAMILIES: dict[str, Callable[[Example], Iterator[Schedule]]] = {
    "every instant": instants,
    "every kill": kills,
    "every error": errors,
    "every freeze": freezes,
    "power losses": partial(power_losses, seed=1),
    "late movers": late_movers,
}
STORMS = "random storms"
CHUNK = 50
"""Storms that one process runs before it reports."""
MEMORY = Path("/dev/shm")  # noqa: S108  # each run makes a private folder in it


@dataclass(frozen=True, slots=True)
class Part:
    """What one process runs at a time."""

    family: str
    store: StoreKind
    storage: StorageKind = "rename"
    seeds: range = range(0)


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table."""

    family: str
    store: StoreKind
    storage: StorageKind
    points: int
    """Calls of an undisturbed run, at each of which a fault may strike."""
    seeds: str
    report: Report

    def __str__(self) -> str:
        harms = " | ".join(str(self.report.count(harm)) for harm in Harm)
        facts = [self.family, self.store, self.storage, self.points, f"{self.report.schedules:,}", harms, self.seeds]
        return f"| {' | '.join(map(str, facts))} |"


_COLUMNS = ("schedules", "store", "moves by", "fault points", "run", *Harm, "seeds")
HEADER = f"| {' | '.join(_COLUMNS)} |\n{'| --- ' * len(_COLUMNS)}|"


def storm_parts(count: int, seed: int) -> list[Part]:
    """Return `count` storms, shared out evenly among all kinds of store and storage."""
    kinds = [(store, storage) for store in get_args(StoreKind) for storage in get_args(StorageKind)]
    each = -(-count // len(kinds))
    return [
        Part(STORMS, store, storage, range(first, min(first + CHUNK, seed + each)))
        for store, storage in kinds
        for first in range(seed, seed + each, CHUNK)
    ]


def family_parts() -> list[Part]:
    """Return every single fault on every kind of store."""
    return [Part(family, store) for store in get_args(StoreKind) for family in FAMILIES]


def run_parts(parts: Sequence[Part], processes: int) -> list[Row]:
    """Run all parts and return a row for each family, store and storage."""
    rows: dict[tuple[str, StoreKind, StorageKind], list[tuple[Part, int, Report]]] = {}
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for part, (points, report) in zip(parts, pool.map(run_part, parts), strict=True):
            rows.setdefault((part.family, part.store, part.storage), []).append((part, points, report))
    return [
        Row(*key, found[0][1], _seeds(part for part, _, _ in found), _sum(report for _, _, report in found))
        for key, found in rows.items()
    ]


def run_part(part: Part) -> tuple[int, Report]:
    """Run one part in a folder of its own; returns the number of fault points of its example too."""
    logging.getLogger("gobblin_dagster").setLevel(logging.ERROR)  # each fault would be told as a warning
    folder = Path(tempfile.mkdtemp(prefix="gobblin-crash-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        example = Example(folder / "lake", part.store, loses="wu-2" if part.family == "late movers" else "")
        points = len(trace_of(example))
        if part.family == STORMS:
            return points, Report.of(storms(example, part.seeds, part.storage))
        return points, Report.of(FAMILIES[part.family](example))
    finally:
        shutil.rmtree(folder)


def _seeds(parts: Iterable[Part]) -> str:
    seeds = [seed for part in parts for seed in (part.seeds.start, part.seeds.stop) if part.seeds]
    return f"{min(seeds)} to {max(seeds) - 1}" if seeds else ""


def _sum(reports: Iterable[Report]) -> Report:
    found = list(reports)
    return Report(sum(one.schedules for one in found), tuple(broken for one in found for broken in one.broken))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; the exit code is 1 where anything was harmed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--storms", type=int, default=2000, help="random schedules in all, default 2000")
    parser.add_argument("--seed", type=int, default=0, help="the first seed, default 0")
    parser.add_argument("--processes", type=int, default=2, help="default 2")
    asked = parser.parse_args(arguments)
    started = time.monotonic()
    rows = run_parts([*family_parts(), *storm_parts(asked.storms, asked.seed)], asked.processes)
    total = _sum(row.report for row in rows)
    lines = [HEADER, *map(str, rows), "", f"{total} in {time.monotonic() - started:.0f} s, {asked.processes} processes"]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if total.broken else 0


if __name__ == "__main__":
    sys.exit(main())
