"""What pruning of old commits saves: size of a state store and time of its readers before and after, by store.

Each commit publishes a file. `orders` has a number as watermark. `feed` remembers 1,000 input files, one more with each
commit, and gets a quarter of the commits. Then all but the newest commits of both are pruned. SQLite's file is measured
after VACUUM. Run it with `python -m benchmarks.old_commits`.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gobblin_dagster.core.commit import CommitReport, CommitSequence, PublishedFile, SequenceState
from gobblin_dagster.core.dataset_state import DatasetState, Totals
from gobblin_dagster.core.ids import new_commit_id
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.core.watermark.file_set import UNREAD, FileSetWatermark, FileVersion
from gobblin_dagster.core.watermark.ranges import CommittedRanges, WatermarkInterval
from gobblin_dagster.engine.commit.codec import encode_sequence
from gobblin_dagster.engine.maintenance.state_export import export_state
from gobblin_dagster.state import StateStore
from gobblin_dagster.state.files.store import FileStateStore
from gobblin_dagster.state.sql.store import SqlStateStore
from gobblin_dagster.storage import LocalStorage

JOB, LAKE = "shop", "/lake"
NOW = datetime(2026, 11, 22, tzinfo=UTC)
REMEMBERED = 1_000


class Clock:
    """A clock that stands still."""

    def now(self) -> datetime:
        """Return the instant."""
        return NOW


def files_read(first: int, count: int) -> WatermarkInterval:
    """Return new input files."""
    high = {f"{n * 2654435761 % 2**32:08x}.csv": FileVersion(1, 1000, n) for n in range(first, first + count)}
    return WatermarkInterval(FileSetWatermark(dict.fromkeys(high, UNREAD)), FileSetWatermark(high))


def state_after(urn: str, before: DatasetState | None, number: int) -> DatasetState:
    """Return the state after one more commit; the first of `feed` remembers many files."""
    if urn == "orders":
        new = WatermarkInterval(LongWatermark(10 * number), LongWatermark(10 * number + 10))
    else:
        new = files_read(REMEMBERED + number, 1) if number else files_read(0, REMEMBERED)
    known = CommittedRanges(type(new.high), {}) if before is None else before.committed
    totals = Totals(rows_read=10 * number, branch_rows={"all": 10 * number}, files=number + 1)
    schemas = {"all": "\n".join(f"column_{n}: string" for n in range(12))}
    return DatasetState(JOB, urn, number + 1, known.add(new), number + 1, f"run-{number}", NOW, totals, schemas)


def commit(store: StateStore, urn: str, before: DatasetState | None, number: int, epoch: int) -> DatasetState:
    """Commit one file, and return the state."""
    after, commit_id = state_after(urn, before, number), new_commit_id()
    file = PublishedFile("all", f"{LAKE}/{urn}/all/{commit_id}.parquet", 4096, "ab" * 32, 10, number + 1)
    report = CommitReport(rows_read=10, rows_by_branch={"all": 10}, seconds=0.1)
    sequence = replace(
        CommitSequence.to(after, commit_id=commit_id, output_root=LAKE), files=(file,), report=report, created_at=NOW
    )
    store.record(encode_sequence(sequence, store.places), epoch, sequence.effect)
    return after


def size_of(folder: Path) -> tuple[int, int]:
    """Return the bytes of a store and the number of its files; those of a disk with blocks of 4 KiB."""
    database = folder / "state.db"
    if database.exists():
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    files = [path for path in folder.rglob("*") if path.is_file()]
    return sum(-(-path.stat().st_size // 4096) * 4096 for path in files), len(files)


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that it takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measured(store: StateStore, folder: Path) -> str:
    """Return size, and times of an export and of reading the last commit."""
    export = timed(lambda: sum(len(line) for line in export_state(store, [JOB], lambda _: True)))
    newest = timed(lambda: store.load_sequences(JOB, {SequenceState.COMMITTED}, ["orders"], limit=1))
    size, files = size_of(folder)
    return f"{size / 2**20:,.1f} MiB in {files:,} files; export {export:.2f} s, newest commit {1000 * newest:,.1f} ms"


def main() -> None:
    """Print lines of before and after for each store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=3_000)
    parser.add_argument("--keep", type=int, default=100)
    args = parser.parse_args()
    makers: dict[str, Callable[[Path], StateStore]] = {
        "sqlite": lambda folder: SqlStateStore(f"sqlite:///{folder}/state.db", Clock()),
        "files": lambda folder: FileStateStore(str(folder), LocalStorage(durable=False), Clock()),
    }
    for name, make in makers.items():
        with tempfile.TemporaryDirectory() as folder, closing(make(Path(folder))) as store:
            taken = store.acquire_leases(JOB, ["feed", "orders"], LeaseOwner.current("r"), timedelta(days=9)).granted
            for urn, lease in taken.items():
                state = None
                for number in range(args.commits if urn == "orders" else args.commits // 4):
                    state = commit(store, urn, state, number, lease.epoch)
            print(
                f"{name}, {args.commits:,} and {args.commits // 4:,} commits: {measured(store, Path(folder))}",
                flush=True,
            )
            versions = {urn: state.version for urn, state in store.load_dataset_states(JOB).items()}
            began = time.perf_counter()
            for urn in taken:
                store.prune_sequences(JOB, urn, versions[urn] - args.keep)
            pruning = time.perf_counter() - began
            print(f"{name}, {args.keep:,} of each kept: {measured(store, Path(folder))} ({pruning:.1f} s)", flush=True)


if __name__ == "__main__":
    main()
