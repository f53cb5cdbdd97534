"""What a commit costs a dataset that remembers 100,000 files: bytes written and milliseconds, by state store.

Each commit adds a few files, as an hourly run does. Bytes are those of all write calls of this process (`wchar` of
`/proc/self/io`); of a commit that adds one file they are compared with the bytes of the whole state. Run it with
`python -m benchmarks.remembered_files`.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gobblin_dagster.core.commit import CommitSequence
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.ids import new_commit_id
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.serialization import to_json
from gobblin_dagster.core.watermark.file_set import UNREAD, FileSetWatermark, FileVersion
from gobblin_dagster.core.watermark.ranges import CommittedRanges, WatermarkInterval
from gobblin_dagster.engine.commit.committer import Committer
from gobblin_dagster.state import StateStore, open_store
from gobblin_dagster.storage import LocalStorage

STORES = {"sqlite": "sqlite:///state.db", "files": "files:state"}
JOB, URN = "feed", "feed"
NOW = datetime(2026, 11, 22, tzinfo=UTC)


def written_bytes() -> int:
    """Return how many bytes this process has written so far."""
    return int(dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())["wchar"])


def interval(first: int, count: int) -> WatermarkInterval:
    """Return files that are new: hourly folders, names without an order."""
    numbers = range(first, first + count)
    names = {f"day={n // 2400:04d}/{n * 2654435761 % 2**32:08x}.csv": n for n in numbers}
    high = {name: FileVersion(1, 1000 + n % 977, 1_790_000_000_000_000 + n * 1_001) for name, n in names.items()}
    return WatermarkInterval(FileSetWatermark(dict.fromkeys(high, UNREAD)), FileSetWatermark(high))


def commit(store: StateStore, first: int, count: int) -> DatasetState:
    """Load the state, add files to it and commit, as a run does; return the new state."""
    before = store.load_dataset_states(JOB).get(URN)
    if before is None:
        none = CommittedRanges(FileSetWatermark, {})
        before = DatasetState(JOB, URN, 0, none, snapshot=0, run_id="", updated_at=NOW)
    committed = before.committed.add(interval(first, count))
    after = replace(before, version=before.version + 1, committed=committed, run_id="r", updated_at=NOW)
    sequence = CommitSequence.to(after, commit_id=new_commit_id(), output_root="/tmp/none")
    committer = Committer(store, LocalStorage(durable=False))
    leases = store.acquire_leases(JOB, [URN], LeaseOwner.current("r"), timedelta(minutes=5)).granted
    committer.prepare(sequence, leases[URN].epoch)
    committer.publish(sequence, leases[URN].epoch, verify_sources=False)
    store.release_leases(JOB, leases.values())
    return after


def main() -> None:
    """Print one line for each store and number of files that a commit adds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--commits", type=int, default=12)
    args = parser.parse_args()
    for name, url in STORES.items():
        for added in (1, 100):
            with tempfile.TemporaryDirectory() as folder, closing(open_store(url, Path(folder))) as store:
                whole = len(to_json(commit(store, 0, args.files)))
                sizes, times = [], []
                for number in range(args.commits):
                    began, at = written_bytes(), time.perf_counter()
                    commit(store, args.files + number * added, added)
                    times.append(time.perf_counter() - at)
                    sizes.append(written_bytes() - began)
            mean = statistics.mean(sizes)
            print(
                f"{name}, {added} of {args.files:,} files a commit: {mean / 1024:,.0f} KiB written "
                f"({mean / whole:.2f} of the whole state), {1000 * statistics.median(times):,.0f} ms"
            )


if __name__ == "__main__":
    main()
