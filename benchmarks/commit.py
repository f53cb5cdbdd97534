"""`make bench-commit`: what the commit protocol costs, as ratios to bare renames with the same syncs on the same disk.

Without Spark: files are staged, then published by the real committer on a real SQLite store, and by a loop of renames.
Both sides take turns; medians are shown. `--files 500 --rounds 1` gives a quick look.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from gobblin_dagster.core.commit import CommitSequence, StoredSequence
from gobblin_dagster.core.ids import new_commit_id
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.task_state import StagedFile, TaskState, WorkingState
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.engine.commit import Committer, Decision, build_sequence
from gobblin_dagster.engine.commit.steps import renames_of
from gobblin_dagster.state import open_store
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.storage import LocalStorage

JOB, URN = "bench", "dataset"
SMALL, LARGE = 200, 1 << 20
"""Bytes of a file: so small that only the protocol counts, and 1 MB as in the promise."""
FOLDERS = 5
"""Folders that the files of a dataset are spread over: the days or hours of one run."""
BARS = {"speed": 0.5, "share": 0.10, "total": 1.3}


class Ours:
    """The committer, from staged files to the deleted staging."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True)
        self.store: StateStore = open_store("sqlite:///state.db", root)
        self.storage = LocalStorage()
        self.lake = str(root / "lake")

    def sequence(self, files: int, size_bytes: int, *, durable: bool) -> CommitSequence:
        """Stage files as a writer does, and say what is to be published."""
        commit_id = new_commit_id()
        staging = f"{self.lake}/_gobblin/staging/run/{commit_id}"
        storage = LocalStorage(durable)
        staged = []
        for number, content in enumerate(contents(files, size_bytes)):
            target = f"main/{number % FOLDERS:02}/{commit_id}-{number}.bin"
            sink = storage.open_new(f"{staging}/{target}")
            sink.write(content)
            digest = sink.finish()
            staged.append(StagedFile("main", f"{staging}/{target}", target, digest.size_bytes, digest.sha256, 1))
        before = self.store.load_dataset_states(JOB).get(URN)
        low = before.version if before else 0
        unit = TaskState(
            work_unit_id="wu",
            dataset_urn=URN,
            state=WorkingState.SUCCESSFUL,
            attempt="0",
            low=LongWatermark(low),
            expected_high=LongWatermark(low + 1),
            actual_high=LongWatermark(low + 1),
            files=tuple(staged),
        )
        return build_sequence(
            commit_id=commit_id,
            job=JOB,
            run_id="run",
            dataset_urn=URN,
            before=before,
            decision=Decision((unit,), ()),
            output_root=self.lake,
            staging_dirs=[staging],
            now=datetime.now(UTC),
        )

    def epoch(self) -> int:
        """Take the lease."""
        owner = LeaseOwner.current("run")
        return self.store.acquire_leases(JOB, [URN], owner, timedelta(minutes=10)).granted[URN].epoch

    def publish(self, sequence: CommitSequence) -> None:
        """Lease, write-ahead, renames, syncs, commit, manifest, staging deleted."""
        error = Committer(self.store, self.storage).publish_all([(sequence, self.epoch())])[URN]
        if error is not None:
            raise error

    def recover(self, stored: StoredSequence) -> None:
        """Verify and finish, as after a crash."""
        Committer(self.store, self.storage).recover(stored, self.epoch())


class Bare:
    """What one writes without a protocol: rename, sync folders, replace a state file."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True)
        self.count = 0

    def stage(self, files: int, size_bytes: int, *, durable: bool) -> list[tuple[Path, Path]]:
        """Write files into staging, synced where durable; return (source, target)."""
        self.count += 1
        moves = []
        for number, content in enumerate(contents(files, size_bytes)):
            name = f"{number % FOLDERS:02}/{self.count}-{number}.bin"
            source = self.root / "staging" / name
            source.parent.mkdir(parents=True, exist_ok=True)
            with source.open("xb") as file:
                file.write(content)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            moves.append((source, self.root / "lake" / name))
        return moves

    def publish(self, moves: Sequence[tuple[Path, Path]]) -> None:
        """Rename all, with the syncs that a power loss asks for, then note the progress."""
        for source in {source.parent for source, _ in moves}:
            sync(source)
        for folder in {target.parent for _, target in moves}:
            folder.mkdir(parents=True, exist_ok=True)
            sync(folder.parent)
        for source, target in moves:
            os.rename(source, target)  # noqa: PTH104  # the barest there is
        for folder in {target.parent for _, target in moves}:
            sync(folder)
        new = self.root / "state.json.new"
        with new.open("w") as file:
            json.dump({"watermark": self.count, "files": [str(target) for _, target in moves]}, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.root / "state.json")
        sync(self.root)
        shutil.rmtree(self.root / "staging")


def contents(files: int, size_bytes: int) -> list[bytes]:
    """Return contents that differ."""
    return [hashlib.sha256(str(number).encode()).digest() * (size_bytes // 32) for number in range(files)]


def sync(folder: Path) -> None:
    """Sync a folder."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds that something takes, on a disk that has nothing else to write."""
    os.sync()
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def many_small_files(ours: Ours, bare: Bare, files: int, rounds: int) -> tuple[float, float]:
    """Return the seconds (ours, bare) of publishing staged files."""
    ours_s, bare_s = [], []
    for _ in range(rounds):
        sequence = ours.sequence(files, SMALL, durable=False)
        ours_s.append(seconds(partial(ours.publish, sequence)))
        moves = bare.stage(files, SMALL, durable=False)
        bare_s.append(seconds(partial(bare.publish, moves)))
    return median(ours_s), median(bare_s)


def large_files(ours: Ours, bare: Bare, files: int, rounds: int) -> tuple[float, float, float]:
    """Return seconds of (our commit alone, our writing and commit, bare writing and renames)."""
    commit_s, ours_s, bare_s = [], [], []
    for _ in range(rounds):
        os.sync()
        begun = time.perf_counter()
        sequence = ours.sequence(files, LARGE, durable=True)
        written = time.perf_counter()
        ours.publish(sequence)
        ended = time.perf_counter()
        commit_s.append(ended - written)
        ours_s.append(ended - begun)
        bare_s.append(seconds(lambda: bare.publish(bare.stage(files, LARGE, durable=True))))
    return median(commit_s), median(ours_s), median(bare_s)


def recovery(ours: Ours, files: int) -> float:
    """Return the seconds of finishing a sequence half of whose files were moved when its run died."""
    sequence = ours.sequence(files, SMALL, durable=False)
    committer = Committer(ours.store, ours.storage)
    committer.prepare(sequence, ours.epoch())
    renames = list(renames_of(sequence.steps))
    for folder in {rename.target.rpartition("/")[0] for rename in renames}:
        ours.storage.make_dirs(folder)
    for rename in renames[: files // 2]:
        rename.execute(ours.storage)
    stored = ours.store.load_sequence(sequence.id)
    if stored is None:
        raise RuntimeError("the sequence was not stored")
    return seconds(lambda: ours.recover(stored))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000, help="files of the large dataset")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cache", type=Path, default=Path(".work/bench-commit"), help="folder to work in")
    args = parser.parse_args()
    shutil.rmtree(args.cache, ignore_errors=True)
    ours, bare = Ours(args.cache.resolve() / "ours"), Bare(args.cache.resolve() / "bare")
    try:
        small = many_small_files(ours, bare, args.files, args.rounds)
        commit_s, ours_s, bare_s = large_files(ours, bare, max(args.files // 100, 1), args.rounds)
        recovery_s = recovery(ours, args.files)
    finally:
        ours.store.close()
        shutil.rmtree(args.cache, ignore_errors=True)
    table = Table("what", "ours", "bare", "ratio", "bar", title="Commit protocol against bare renames, same syncs")
    table.add_row(
        f"publish {args.files:,} staged files",
        f"{small[0]:.2f} s",
        f"{small[1]:.2f} s",
        f"{small[1] / small[0]:.0%} of its speed",
        f">= {BARS['speed']:.0%}",
    )
    table.add_row(
        f"write and publish {max(args.files // 100, 1)} files of 1 MB",
        f"{ours_s:.2f} s",
        f"{bare_s:.2f} s",
        f"{ours_s / bare_s:.2f}x",
        f"<= {BARS['total']}x",
    )
    table.add_row("- of it the commit", f"{commit_s:.3f} s", "", f"{commit_s / ours_s:.1%}", f"<= {BARS['share']:.0%}")
    table.add_row(f"finish {args.files:,} files after a crash", f"{recovery_s:.2f} s", "", "", "<= 120 s")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
