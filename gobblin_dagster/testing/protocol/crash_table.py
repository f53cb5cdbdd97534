"""The crash table: every single fault, all pairs and N random schedules, by state store and storage; counts the harm.

    python -m gobblin_dagster.testing.protocol.crash_table --storms 2000

Services are used if their addresses are given (`--postgres`, `--s3`, `--hdfs`); they are slow, so few random schedules
run there. Seeds are counted from `--seed`, so a row can be run again, and a broken schedule is printed with its own
seed.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sqlalchemy import create_engine, text

from gobblin_dagster.database.engine import parse_url
from gobblin_dagster.storage import open_storage
from gobblin_dagster.testing.protocol.harm import Harm
from gobblin_dagster.testing.protocol.power_loss import failed_syncs, power_losses, torn_writes
from gobblin_dagster.testing.protocol.random_faults import storms
from gobblin_dagster.testing.protocol.scenario import Example, Shape, StoreKind
from gobblin_dagster.testing.protocol.schedules import (
    Report,
    Schedule,
    errors,
    freezes,
    freezes_of_one,
    frozen_pairs,
    instants,
    killed_pairs,
    kills,
    late_errors,
    late_movers,
    trace_of,
)
from gobblin_dagster.testing.protocol.storages import StorageKind, make_storage

Family = Callable[[Example], Iterator[Schedule]]
FAMILIES: dict[str, Family] = {
    "every instant": instants,
    "every kill": kills,
    "every error": errors,
    "every error after COMMIT, then an idle run": late_errors,
    "every torn write": torn_writes,
    "every freeze": freezes,
    "every freeze, for one dataset": freezes_of_one,
    "late movers": late_movers,
    "power losses": partial(power_losses, seed=1),
    "failed syncs": partial(failed_syncs, seed=1),
    "two kills, all pairs": killed_pairs,
    "freeze and kill, all pairs": frozen_pairs,
}
OF_DISKS = ("power losses", "failed syncs")
"""Schedules for local disks only, because only these can be rolled back to what was synced."""
OF_TWO = ("every freeze, for one dataset",)
"""Schedules for two datasets."""
PAIRS = ("two kills, all pairs", "freeze and kill, all pairs")
QUICK = ("every kill", "every error")
OF_SERVICES = ("every kill",)
"""Schedules that run completely even on slow services."""
SHAPES: tuple[Shape, ...] = ("batches", "permissions", "at least once", "together")
TOGETHER: tuple[Shape, ...] = ("plain", "together")
"""Shapes of random schedules, if a storage moves files atomically: otherwise no datasets share transactions."""
STORMS = "random storms"
WEIGHTS: dict[tuple[StoreKind, StorageKind], int] = {
    ("sqlite", "local"): 1,
    ("files", "local"): 3,
    ("sqlite", "memory"): 1,
    ("files", "memory"): 6,
    ("sqlite", "copies"): 1,
    ("files", "copies"): 5,
}
"""Shares of the random schedules: more on fast storages."""
STORMS_OF_SERVICES = 25
"""Number of random schedules on each kind of store and storage with a service."""
PROGRESS_S = 15
CHUNK = 50
"""Number of random schedules that one process runs before it reports."""
MEMORY = Path("/dev/shm")  # noqa: S108  # each run makes a private folder in it


@dataclass(frozen=True, slots=True)
class Services:
    """Addresses of services that may be used; empty if there is none."""

    postgres: str = ""
    """URL of a database whose user may create databases."""
    s3: str = ""
    """`s3://bucket/folder`."""
    hdfs: str = ""
    """`hdfs://host:port/folder`."""

    def kinds(self) -> list[tuple[StoreKind, StorageKind]]:
        """Return the kinds of store and storage that need one of them."""
        services: list[tuple[StorageKind, str]] = [("s3", self.s3), ("hdfs", self.hdfs)]
        far = [kind for kind, url in services if url]
        near: list[StorageKind] = ["local", "memory"]
        stores: list[StoreKind] = ["sqlite", "files"]
        found: list[tuple[StoreKind, StorageKind]] = [(store, storage) for storage in far for store in stores]
        return found + ([("postgres", storage) for storage in [*near, *far]] if self.postgres else [])


@dataclass(frozen=True, slots=True)
class Part:
    """The schedules that one process runs at a time."""

    family: str
    store: StoreKind
    storage: StorageKind = "local"
    shape: Shape = "plain"
    seeds: range = range(0)
    services: Services = Services()

    @property
    def row(self) -> tuple[str, str, str]:
        """The row that it is counted in: schedules, store, storage."""
        return self.family + ("" if self.shape == "plain" else f", {self.shape}"), self.store, self.storage


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table."""

    schedules: str
    store: str
    storage: str
    points: int
    """Number of calls of a run without faults; a fault can happen at each of them."""
    seeds: str
    report: Report

    def __str__(self) -> str:
        harms = " | ".join(str(self.report.count(harm)) for harm in Harm)
        facts = [self.schedules, self.store, self.storage, self.points, f"{self.report.schedules:,}", harms, self.seeds]
        return f"| {' | '.join(map(str, facts))} |"


_COLUMNS = ("schedules", "store", "storage", "fault points", "run", *Harm, "seeds")
HEADER = f"| {' | '.join(_COLUMNS)} |\n{'| --- ' * len(_COLUMNS)}|"


def storm_parts(count: int, seed: int) -> list[Part]:
    """Return `count` random schedules, divided among the kinds of store and storage that need no service."""
    kinds = {
        (*kind, shape): weight
        for kind, weight in WEIGHTS.items()
        for shape in (("plain",) if kind[1] == "copies" else TOGETHER)
    }
    share = -(-count // sum(kinds.values()))
    parts = [
        Part(STORMS, *kind, seeds=range(first, min(first + CHUNK, seed + share * weight)))
        for kind, weight in kinds.items()
        for first in range(seed, seed + share * weight, CHUNK)
    ]
    # A table that is interrupted has then tried the same share of each kind.
    return sorted(parts, key=lambda part: (part.seeds.start - seed) / kinds[part.store, part.storage, part.shape])


def service_parts(services: Services, seed: int) -> list[Part]:
    """Return the parts for each kind of store and storage with a service: every kill, and a few random schedules."""
    seeds = range(seed, seed + STORMS_OF_SERVICES)
    return [
        Part(name, *kind, shape, seeds=seeds if name == STORMS else range(0), services=services)
        for kind in services.kinds()
        for shape in (TOGETHER if kind == ("postgres", "memory") else TOGETHER[:1])
        for name in (*OF_SERVICES, STORMS)
    ]


def quick_parts() -> list[Part]:
    """Return every kill and every error on every kind of store and storage that needs no service."""
    return [Part(name, *kind) for kind in WEIGHTS for name in QUICK]


def family_parts(*, pairs: bool = False) -> list[Part]:
    """Return every single fault on every kind of store and storage without a service; all pairs too, if asked for."""
    parts = []
    for store, storage in WEIGHTS:
        left_out = {*PAIRS, *OF_TWO, *(() if storage == "local" else OF_DISKS)}
        names = [name for name in FAMILIES if name not in left_out]
        parts += [Part(name, store, storage) for name in names]
    for store in ("sqlite", "files"):
        singles = ("every instant", "every kill", "every error", "every freeze")
        parts += [Part(name, store, "local", shape) for shape in SHAPES for name in singles]
        parts += [Part(name, store, "local", "together") for name in (*OF_TWO, *OF_DISKS)]
    storages: tuple[StorageKind, ...] = ("memory", "copies")
    return parts + [Part(name, "files", storage) for name in PAIRS for storage in storages if pairs]


def run_parts(parts: Sequence[Part], processes: int, done: Callable[[Part, Report], None] | None = None) -> list[Row]:
    """Run all parts and return a row for each family, store and storage; if interrupted, for the finished parts.

    Args:
        parts: the parts to run.
        processes: number of parts that run at a time.
        done: called after each part.
    """
    rows: dict[tuple[str, str, str], list[tuple[Part, int, Report]]] = {}
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            for part, (points, report) in zip(parts, pool.map(run_part, parts), strict=True):
                rows.setdefault(part.row, []).append((part, points, report))
                if done is not None:
                    done(part, report)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
    return [
        Row(*key, found[0][1], _seeds(part for part, _, _ in found), _sum(report for _, _, report in found))
        for key, found in rows.items()
    ]


def run_part(part: Part) -> tuple[int, Report]:
    """Run one part in a folder of its own; returns the number of fault points of its example too."""
    logging.getLogger("gobblin_dagster").setLevel(logging.ERROR)  # each fault would be told as a warning
    with _example(part) as example:
        points = len(trace_of(example))
        schedules = storms(example, part.seeds) if part.family == STORMS else FAMILIES[part.family](example)
        return points, Report.of(schedules)


@contextmanager
def _example(part: Part) -> Iterator[Example]:
    folder = Path(tempfile.mkdtemp(prefix="gobblin-crash-", dir=MEMORY if MEMORY.is_dir() else None))
    name = f"gobblin_crash_{secrets.token_hex(8)}"
    far = {"s3": part.services.s3, "hdfs": part.services.hdfs}.get(part.storage, "")
    setup = make_storage(part.storage, f"{far}/{name}" if far else str(folder / "lake"))
    store_url = ""
    try:
        if part.store == "postgres":
            _execute(part.services.postgres, f"CREATE DATABASE {name}")
            store_url = parse_url(part.services.postgres).set(database=name).render_as_string(hide_password=False)
        # If moves are copies, a sequence with lost files is not undone but quarantined, so there is nothing to recover.
        loses = "wu-2" if part.family == "late movers" and setup.storage.is_move_atomic else ""
        loses = "" if part.storage == "copies" else loses
        yield Example(folder / "lake", part.store, loses=loses, shape=part.shape, setup=setup, store_url=store_url)
    finally:
        shutil.rmtree(folder)
        if far:
            open_storage(setup.root).delete_tree(setup.root)
        if store_url:
            _execute(part.services.postgres, f"DROP DATABASE {name} WITH (FORCE)")


def _execute(url: str, statement: str) -> None:
    engine = create_engine(parse_url(url), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()


def _seeds(parts: Iterable[Part]) -> str:
    seeds = [seed for part in parts for seed in (part.seeds.start, part.seeds.stop) if part.seeds]
    return f"{min(seeds)} to {max(seeds) - 1}" if seeds else ""


def _sum(reports: Iterable[Report]) -> Report:
    found = list(reports)
    return Report(sum(one.schedules for one in found), tuple(broken for one in found for broken in one.broken))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; the exit code is 1 if there was any harm."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--storms", type=int, default=2000, help="random schedules in all, default 2000")
    parser.add_argument("--quick", action="store_true", help="of the single faults only kills and errors")
    parser.add_argument("--pairs", action="store_true", help="all pairs of faults too, about 29,000")
    parser.add_argument("--seed", type=int, default=0, help="the first seed, default 0")
    parser.add_argument("--processes", type=int, default=2, help="default 2")
    parser.add_argument("--postgres", default="", help="URL of a database whose user may make others")
    parser.add_argument("--s3", default="", help="s3://bucket/folder")
    parser.add_argument("--hdfs", default="", help="hdfs://host:port/folder")
    asked = parser.parse_args(arguments)
    services = Services(asked.postgres, asked.s3, asked.hdfs)
    started = time.monotonic()
    families = quick_parts() if asked.quick else family_parts(pairs=asked.pairs)
    parts = [*families, *storm_parts(asked.storms, asked.seed), *service_parts(services, asked.seed)]
    progress = _Progress(len(parts), started)
    rows = run_parts(parts, asked.processes, progress.done)
    total = _sum(row.report for row in rows)
    cut = f"; interrupted, {progress.left} parts left" if progress.left else ""
    told = f"{total} in {time.monotonic() - started:.0f} s, {asked.processes} processes{cut}"
    lines = [HEADER, *map(str, rows), "", told]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if total.broken else 0


class _Progress:
    """Prints progress on standard error, so that an interrupted long table has shown something."""

    def __init__(self, parts: int, started: float) -> None:
        self.left = parts
        self._started = self._told = started
        self._schedules = 0

    def done(self, part: Part, report: Report) -> None:
        """Print a line now and then, and after every part with harm."""
        self.left -= 1
        self._schedules += report.schedules
        now = time.monotonic()
        if now - self._told < PROGRESS_S and not report.broken:
            return
        self._told = now
        harmed = f"; {', '.join(part.row)} HARMED: {report}" if report.broken else ""
        facts = f"{self._schedules:,} schedules in {now - self._started:.0f} s, {self.left} parts left{harmed}"
        sys.stderr.write(f"{facts}\n")


if __name__ == "__main__":
    sys.exit(main())
