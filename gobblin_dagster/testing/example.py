"""The example of the exactly-once design as a scenario: one topic, two partitions, two days, three files a batch.

`Example.run` is a whole run on the real committer: lease, recover, plan, stage, prepare, publish. It reads a source whose
records are known one by one (`urn:partition:offset:sha`), so that checkers can compare multisets, never counts alone.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from gobblin_dagster.core.commit import CommitSequence
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.task_state import BranchCounts, StagedFile, TaskState, WorkingState
from gobblin_dagster.core.watermark import CompositeWatermark
from gobblin_dagster.engine.commit.build import build_sequence
from gobblin_dagster.engine.commit.committer import Committer
from gobblin_dagster.engine.commit.listener import SilentListener
from gobblin_dagster.engine.commit.manifest import fill_manifests
from gobblin_dagster.engine.commit.policy import choose_publishable
from gobblin_dagster.engine.commit.steps import RenameFileStep
from gobblin_dagster.state import open_store
from gobblin_dagster.state.file_store import FileStateStore
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.storage import LocalStorage
from gobblin_dagster.testing.faults import FaultPoints, counted_storage, counted_store

JOB = "kafka_to_lake"
URN = "MyTopic"
TTL = timedelta(minutes=1)
START = datetime(2015, 12, 10, 1, tzinfo=UTC)
FIRST_BATCH = {"0": 100, "1": 200}
"""Ends of the partitions when the first run plans: the watermarks of the design's example."""
SECOND_BATCH = {"0": 110, "1": 220}
StoreKind = Literal["sqlite", "files"]


def record(partition: str, offset: int) -> str:
    """Return the record at a place of the source."""
    name = f"{URN}:{partition}:{offset}"
    return f"{name}:{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def records(ends: Mapping[str, int], starts: Mapping[str, int] | None = None) -> Iterator[str]:
    """Yield the source's records from `starts` (default: the first) to `ends`, exclusive."""
    for partition, end in sorted(ends.items()):
        for offset in range((starts or {}).get(partition, 0), end):
            yield record(partition, offset)


@dataclass
class SetClock:
    """A clock that stands still until it is set."""

    instant: datetime = START

    def now(self) -> datetime:
        return self.instant


@dataclass
class Example:
    """The scenario in a folder of its own; one clock for all its runs."""

    root: Path
    kind: StoreKind = "sqlite"
    branches: tuple[str, ...] = ("main",)
    loses: str = ""
    """Work unit whose staged files vanish in run A once its sequence is prepared; empty for none."""
    clock: SetClock = field(default_factory=SetClock)
    _sqlite: StateStore | None = None

    @property
    def output_root(self) -> str:
        """Where published data lies."""
        return str(self.root / "job-output")

    def reset(self) -> None:
        """Start from an empty, opened store; a saved copy makes it cheap."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.clock.instant = START
        template = self.root.with_name(f"{self.root.name}-{self.kind}-new")
        if not template.exists():
            self.root.mkdir(parents=True)
            self.open_store().close()
            shutil.copytree(self.root, template)
        else:
            shutil.copytree(template, self.root)

    def open_store(self, storage: Storage | None = None, points: FaultPoints | None = None) -> StateStore:
        """Open the state store; `storage` and `points` reach inside the transactions of the plain-file store."""
        inner = self._open_sqlite() if self.kind == "sqlite" else self._open_files(storage or LocalStorage(), points)
        return counted_store(inner, points) if points else inner

    def forget_connections(self) -> None:
        """Open new connections from now on; for a forked child, which must not touch those of its parent."""
        self._sqlite = None

    def _open_sqlite(self) -> StateStore:
        # The closed store is used again: it holds no connection, and its compiled statements save most of the time.
        if self._sqlite is None:
            self._sqlite = open_store("sqlite:///state.db", self.root, self.clock)
        return self._sqlite

    def _open_files(self, storage: Storage, points: FaultPoints | None) -> StateStore:
        counted = counted_storage(storage, points, "log") if points else storage
        return FileStateStore(str(self.root / "state"), counted, self.clock)

    def run(
        self,
        runner: str,
        ends: Mapping[str, int],
        *,
        hour: int = 0,
        points: FaultPoints | None = None,
        storage: Storage | None = None,
        rebooted: bool = False,
    ) -> bool:
        """Do one run to its end; False where the dataset was busy.

        Args:
            runner: name, part of staging folders and commit ids.
            ends: how far the source reaches by now.
            hour: when, in hours after the start; leases of earlier hours have expired.
            points: fault points that all calls pass.
            storage: the storage below them.
            rebooted: give the run an owner of an earlier boot, provably dead to everybody later.
        """
        self.clock.instant = max(self.clock.instant, START + timedelta(hours=hour))
        store = self.open_store(storage, points)
        files: Storage = storage or LocalStorage()
        try:
            owner = LeaseOwner.current(runner)
            if rebooted:
                owner = replace(owner, boot="an earlier boot")
            grant = store.acquire_leases(JOB, [URN], owner, TTL)
            if URN not in grant.granted:
                return False
            counted = counted_storage(files, points) if points else files
            self._work(runner, ends, store, counted, grant.granted[URN].epoch)
            store.release_leases(JOB, [grant.granted[URN]])
            return True
        finally:
            store.close()

    def _work(self, runner: str, ends: Mapping[str, int], store: StateStore, storage: Storage, epoch: int) -> None:
        losing = _Loser(self.loses) if self.loses and runner == "A" else None
        committer = Committer(store, storage, parallelism=1, listener=losing)
        for stored in store.load_sequences(JOB, urns=[URN]):
            committer.recover(stored, epoch)
        states = store.load_dataset_states(JOB, [URN])
        fill_manifests(storage, store, self.output_root, JOB, states)
        commit_id = hashlib.sha256(f"commit of {runner}".encode()).hexdigest()[:32]
        staging = f"{self.output_root}/_gobblin/staging/{runner}/{commit_id}"
        units = self._stage(storage, states.get(URN), ends, commit_id, staging)
        if not units:
            return
        sequence = build_sequence(
            commit_id=commit_id,
            job=JOB,
            run_id=runner,
            dataset_urn=URN,
            before=states.get(URN),
            decision=choose_publishable("full", units),
            output_root=self.output_root,
            staging_dirs=[staging],
            now=self.clock.now(),
            report={},
        )
        committer.prepare(sequence, epoch)
        committer.publish(sequence, epoch, verify_sources=False)

    def _stage(
        self, storage: Storage, before: DatasetState | None, ends: Mapping[str, int], commit_id: str, staging: str
    ) -> list[TaskState]:
        """Write what is new as three files: the first day of each partition, the second day of both."""
        watermark = before.watermark if before else None
        low = dict.fromkeys(ends, 0) | (dict(watermark.values) if isinstance(watermark, CompositeWatermark) else {})
        ends = {p: max(end, low[p]) for p, end in ends.items()}
        middle = {p: low[p] + (end - low[p]) * 6 // 10 for p, end in ends.items()}
        parts = [
            ("2015-12-09", {"0": low["0"]}, {"0": middle["0"]}),
            ("2015-12-09", {"1": low["1"]}, {"1": middle["1"]}),
            ("2015-12-10", middle, dict(ends)),
        ]
        return [
            self._stage_unit(storage, f"wu-{number}", day, start, end, commit_id, staging)
            for number, (day, start, end) in enumerate(parts, 1)
            if start != end
        ]

    def _stage_unit(
        self,
        storage: Storage,
        unit: str,
        day: str,
        start: Mapping[str, int],
        end: Mapping[str, int],
        commit_id: str,
        staging: str,
    ) -> TaskState:
        rows = list(records(end, start))
        staged = []
        for branch in self.branches:
            target = f"{branch}/{URN}/{day}/{commit_id}-{unit}.txt"
            sink = storage.open_new(f"{staging}/{target}")
            sink.write("\n".join(rows).encode())
            digest = sink.finish()
            staged.append(
                StagedFile(branch, f"{staging}/{target}", target, digest.size_bytes, digest.sha256, len(rows))
            )
        return TaskState(
            work_unit_id=unit,
            dataset_urn=URN,
            state=WorkingState.SUCCESSFUL,
            attempt="0",
            low=CompositeWatermark(start),
            expected_high=CompositeWatermark(end),
            actual_high=CompositeWatermark(end),
            rows_read=len(rows),
            branches={name: BranchCounts(rows_in=len(rows), rows_written=len(rows)) for name in self.branches},
            files=tuple(staged),
        )


class _Loser(SilentListener):
    """Deletes staged files behind the committer's back, as a wiped scratch disk does."""

    def __init__(self, unit: str) -> None:
        self._unit = unit

    def prepared(self, sequence: CommitSequence) -> None:
        for step in sequence.steps:
            if isinstance(step, RenameFileStep) and self._unit in step.source:
                Path(step.source).unlink()
