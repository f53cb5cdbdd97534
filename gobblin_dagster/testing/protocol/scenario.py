"""The example of the exactly-once design as a scenario: one topic, two partitions, two days, three files per batch.

`Example.run` is a whole run on the real committer: lease, recover, plan, stage, prepare, publish. Each record of its
source is known (`urn:partition:offset:sha`), so that checks compare multisets of records and not only counts.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

from sqlalchemy import Engine, Executable, Interval, delete, literal, update

from gobblin_dagster.core.commit import CommitSequence
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.task_state import BranchCounts, StagedFile, TaskState, WorkingState
from gobblin_dagster.core.watermark import CompositeWatermark
from gobblin_dagster.database.engine import make_engine, parse_url
from gobblin_dagster.engine.commit.build import NO_PERMISSIONS, build_sequence
from gobblin_dagster.engine.commit.committer import Committer
from gobblin_dagster.engine.commit.listener import SilentListener
from gobblin_dagster.engine.commit.manifest import fill_manifests
from gobblin_dagster.engine.commit.policy import choose_publishable
from gobblin_dagster.engine.commit.steps import Permissions, RenameFileStep, rename_steps, renames_of
from gobblin_dagster.engine.layout import staging_dir
from gobblin_dagster.state import open_store
from gobblin_dagster.state.files.store import FileStateStore
from gobblin_dagster.state.sql.tables import leases, metadata
from gobblin_dagster.state.store import LeaseGrant, StateStore
from gobblin_dagster.storage import MemoryStorage
from gobblin_dagster.testing.faults import FaultPoints, Halted, counted_storage, counted_store
from gobblin_dagster.testing.protocol.harm import Violation
from gobblin_dagster.testing.protocol.storages import StorageSetup

JOB = "kafka_to_lake"
URN = "MyTopic"
SECOND_URN = "MyOtherTopic"
TTL = timedelta(minutes=1)
START = datetime(2015, 12, 10, 1, tzinfo=UTC)
FIRST_BATCH = {"0": 100, "1": 200}
"""Ends of the partitions when the first run plans: the watermarks of the design's example."""
SECOND_BATCH = {"0": 110, "1": 220}
StoreKind: TypeAlias = Literal["sqlite", "files", "postgres"]
Shape: TypeAlias = Literal["plain", "batches", "permissions", "at least once", "together"]
"""Steps of a sequence: a rename each, many renames in one step, with modes after them, or without a write-ahead.
`together`: a rename each, in two datasets that share the transactions of the store."""
PERMISSIONS = Permissions(file_mode=0o640, dir_mode=0o750)


def record(partition: str, offset: int, urn: str = URN) -> str:
    """Return the record at a position of a dataset."""
    name = f"{urn}:{partition}:{offset}"
    return f"{name}:{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def records(ends: Mapping[str, int], starts: Mapping[str, int] | None = None, urn: str = URN) -> Iterator[str]:
    """Yield a dataset's records from `starts` (default: the first) to `ends`, exclusive."""
    for partition, end in sorted(ends.items()):
        yield from _known(partition, end, urn)[(starts or {}).get(partition, 0) :]


@cache
def _known(partition: str, end: int, urn: str) -> list[str]:
    return [record(partition, offset, urn) for offset in range(end)]


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
    """A local folder: the SQLite file, the files of the storage `local`."""
    kind: StoreKind = "sqlite"
    branches: tuple[str, ...] = ("main",)
    loses: str = ""
    """Work unit whose staged files vanish in run A after its sequence is prepared; empty for none."""
    shape: Shape = "plain"
    setup: StorageSetup = field(default_factory=lambda: StorageSetup(""))
    """Root of the files; `root` if the storage names no folder."""
    store_url: str = ""
    """URL of the database, for `postgres`; this example may empty it."""
    halts: bool = False
    """True if a killed run is halted in this process, see `testing.faults`; on some storages all are."""
    clock: SetClock = field(default_factory=SetClock)
    found: dict[str, tuple[Violation, ...]] = field(default_factory=dict)
    """What schedules found on a disk, by its digest and what they did there."""
    _opened: StateStore | None = None
    _engine: Engine | None = None

    def __post_init__(self) -> None:
        if not self.setup.root:
            self.setup = replace(self.setup, root=str(self.root))
        self.halts = self.halts or self.kind == "postgres" or not self.setup.outlives_processes

    @property
    def urns(self) -> tuple[str, ...]:
        """Its datasets; all have the same watermarks."""
        return (URN, SECOND_URN) if self.shape == "together" else (URN,)

    @property
    def _is_in_one_folder(self) -> bool:
        return self.setup.root == str(self.root) and self.kind != "postgres" and self.setup.outlives_processes

    @property
    def output_root(self) -> str:
        """Root of published data."""
        return f"{self.setup.root}/job-output"

    @property
    def storage(self) -> Storage:
        """The storage without fault points, for checks of the files."""
        return self.setup.storage

    def reset(self) -> None:
        """Start from an empty, opened store; a saved copy makes it cheap."""
        if self.setup.root != str(self.root):
            self.storage.delete_tree(self.setup.root)
        self.clock.instant = START
        if not self._is_copied("new"):
            shutil.rmtree(self.root, ignore_errors=True)
            self.root.mkdir(parents=True)
            self.close_store(self.open_store())
            shutil.copytree(self.root, self._copy("new"))
        elif self.setup.root != str(self.root):
            self.close_store(self.open_store())
        if self.kind == "postgres":
            self._execute(*map(delete, reversed(metadata.sorted_tables)))

    def begin_after(self, name: str, runs: Callable[[], object]) -> None:
        """Start from what `runs` leave of an empty store; where that is all in one local folder, they run once."""
        self.clock.instant = START
        if self._is_in_one_folder and self._is_copied(name):
            return
        self.reset()
        runs()
        if self._is_in_one_folder:
            shutil.copytree(self.root, self._copy(name), symlinks=True)

    def disk_digest(self) -> str | None:
        """Return a digest of all names, modes and bytes of state and files; None if some are on a server."""
        files = self.storage if isinstance(self.storage, MemoryStorage) and self.kind != "postgres" else None
        if files is None and not self._is_in_one_folder:
            return None
        total = hashlib.sha256()
        for path in sorted(self.root.rglob("*")):
            content = path.read_bytes() if path.is_file() else b""
            total.update(f"{path}\0{path.lstat().st_mode}\0{len(content)}\0".encode() + content)
        if files is not None:
            total.update(files.digest())
        return total.hexdigest()

    def _is_copied(self, name: str) -> bool:
        """Replace all files by the copy of that name, if there is one."""
        if not self._copy(name).exists():
            return False
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self._copy(name), self.root, symlinks=True)
        return True

    def _copy(self, name: str) -> Path:
        return self.root.with_name(f"{self.root.name}-{self.kind}-{name}")

    def open_store(self, storage: Storage | None = None, points: FaultPoints | None = None) -> StateStore:
        """Open the state store; `storage` and `points` reach inside the transactions of the plain-file store."""
        inner = self._open_files(storage or self.storage, points) if self.kind == "files" else self._open_sql()
        return counted_store(inner, points) if points else inner

    def close_store(self, store: StateStore) -> None:
        """Close a store that this example opened; connections to a server are kept, because they are expensive."""
        if self.kind != "postgres":
            store.close()

    def forget_connections(self) -> None:
        """Open new connections from now on; for a forked child, which must not touch those of its parent."""
        self._opened = None

    def _open_sql(self) -> StateStore:
        # The closed store is used again: it holds no connection, and its compiled statements save most of the time.
        if self._opened is None:
            self._opened = open_store(self.store_url or "sqlite:///state.db", self.root, self.clock)
        return self._opened

    def _open_files(self, storage: Storage, points: FaultPoints | None) -> StateStore:
        counted = counted_storage(storage, points, "log") if points else storage
        # In one thread, so that each run of a schedule makes the same calls in the same order.
        return FileStateStore(f"{self.setup.root}/state", counted, self.clock, threads=1)

    def _execute(self, *statements: Executable) -> None:
        if self._engine is None:
            self._engine = make_engine(parse_url(self.store_url))
        with self._engine.begin() as connection:
            for statement in statements:
                connection.execute(statement)

    def _come_to(self, instant: datetime) -> None:
        """Move the clock forward; in a database with its own clock, make leases that much older instead."""
        passed = instant - self.clock.instant
        if passed <= timedelta():
            return
        self.clock.instant = instant
        if self.kind == "postgres":
            self._execute(update(leases).values(until=leases.c.until - literal(passed, Interval())))

    def run(
        self,
        runner: str,
        ends: Mapping[str, int],
        *,
        hour: int = 0,
        points: FaultPoints | None = None,
        storage: Storage | None = None,
        rebooted: bool = False,
        urns: Sequence[str] | None = None,
    ) -> bool:
        """Do one run to its end, of the datasets that are free; False if all were busy.

        Args:
            runner: name, part of staging folders and commit ids.
            ends: how far the source reaches by now.
            hour: when, in hours after the start; leases of earlier hours have expired.
            points: fault points that all calls pass.
            storage: the storage below them.
            rebooted: give the run an owner of an earlier boot, provably dead to everybody later.
            urns: its datasets; default: all.
        """
        self._come_to(START + timedelta(hours=hour))
        files = storage or self.storage
        store = self.open_store(files, points)
        try:
            owner = LeaseOwner.current(runner)
            if rebooted:
                owner = replace(owner, boot="an earlier boot")
            grant = store.acquire_leases(JOB, urns or self.urns, owner, TTL)
            if not grant.granted:
                return False
            counted = self.setup.over(counted_storage(files, points) if points else files)
            unfinished = self._recover(store, counted, grant) | self._work(runner, ends, store, counted, grant)
            if unfinished:
                store.leave_leases(JOB, {urn: grant.granted[urn].epoch for urn in unfinished})
            store.release_leases(JOB, [lease for urn, lease in grant.granted.items() if urn not in unfinished])
            return True
        finally:
            with suppress(Halted):
                self.close_store(store)

    def _recover(self, store: StateStore, storage: Storage, grant: LeaseGrant) -> set[str]:
        """Recover as a run does: check manifests only if the last holder did not release the lease.

        Returns:
            Datasets whose work after the commit is not finished.
        """
        committer = Committer(store, storage, parallelism=1)
        for stored in store.load_sequences(JOB, urns=list(grant.granted)):
            committer.recover(stored, grant.granted[stored.dataset_urn].epoch)
        if grant.inherited:
            states = store.load_dataset_states(JOB, list(grant.inherited))
            fill_manifests(storage, store, self.output_root, JOB, states)
        return committer.unfinished

    def _work(
        self, runner: str, ends: Mapping[str, int], store: StateStore, storage: Storage, grant: LeaseGrant
    ) -> set[str]:
        """Publish what is new; return the datasets whose work after the commit is not finished."""
        losing = _Loser(self.loses, self.storage) if self.loses and runner == "A" else None
        committer = Committer(store, storage, parallelism=1, listener=losing)
        states = store.load_dataset_states(JOB, list(grant.granted))
        planned = [
            (sequence, grant.granted[urn].epoch)
            for urn in self.urns
            if urn in grant.granted and (sequence := self._plan(runner, urn, ends, storage, states.get(urn)))
        ]
        if self.shape == "together":
            for error in committer.publish_all(planned).values():
                if error is not None:
                    raise error
            return committer.unfinished
        for sequence, epoch in planned:
            if self.shape == "at least once":
                committer.publish_unlogged(sequence, epoch)
            else:
                committer.prepare(sequence, epoch)
                committer.publish(sequence, epoch, verify_sources=False)
        return committer.unfinished

    def _plan(
        self, runner: str, urn: str, ends: Mapping[str, int], storage: Storage, before: DatasetState | None
    ) -> CommitSequence | None:
        of_dataset = runner if urn == URN else f"{runner} for {urn}"
        commit_id = hashlib.sha256(f"commit of {of_dataset}".encode()).hexdigest()[:32]
        staging = staging_dir(self.output_root, runner, commit_id)
        units = self._stage(storage, urn, before, ends, commit_id, staging)
        if not units:
            return None
        sequence = build_sequence(
            permissions=PERMISSIONS if self.shape == "permissions" else NO_PERMISSIONS,
            commit_id=commit_id,
            job=JOB,
            run_id=runner,
            dataset_urn=urn,
            before=before,
            decision=choose_publishable("full", units),
            output_root=self.output_root,
            staging_dirs=[staging],
            now=self.clock.now(),
        )
        if self.shape == "batches":
            sequence = replace(sequence, steps=rename_steps(renames_of(sequence.steps), batch=2))
        return sequence

    def _stage(
        self,
        storage: Storage,
        urn: str,
        before: DatasetState | None,
        ends: Mapping[str, int],
        commit_id: str,
        staging: str,
    ) -> list[TaskState]:
        """Write the new records as three files: the first day of each partition, the second day of both."""
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
            self._stage_unit(storage, urn, f"wu-{number}", day, start, end, commit_id, staging)
            for number, (day, start, end) in enumerate(parts, 1)
            if start != end
        ]

    def _stage_unit(
        self,
        storage: Storage,
        urn: str,
        unit: str,
        day: str,
        start: Mapping[str, int],
        end: Mapping[str, int],
        commit_id: str,
        staging: str,
    ) -> TaskState:
        rows = list(records(end, start, urn))
        staged = []
        for branch in self.branches:
            target = f"{branch}/{urn}/{day}/{commit_id}-{unit}.txt"
            sink = storage.open_new(f"{staging}/{target}")
            sink.write("\n".join(rows).encode())
            digest = sink.finish()
            staged.append(
                StagedFile(branch, f"{staging}/{target}", target, digest.size_bytes, digest.sha256, len(rows))
            )
        return TaskState(
            work_unit_id=unit,
            dataset_urn=urn,
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
    """Deletes staged files without the committer, as a wiped scratch disk would."""

    def __init__(self, unit: str, storage: Storage) -> None:
        self._unit = unit
        self._storage = storage

    def prepared(self, sequence: CommitSequence) -> None:
        for step in sequence.steps:
            if isinstance(step, RenameFileStep) and self._unit in step.source:
                self._storage.delete(step.source)
