"""A small lake in memory: staged files, a plain-file store and a committer, for tests of one thing at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from gobblin_dagster.core.commit import CommitSequence, SequenceState, StoredSequence
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.task_state import BranchCounts, StagedFile, TaskState, WorkingState
from gobblin_dagster.core.watermark import LongWatermark, Watermark
from gobblin_dagster.engine.commit.build import build_sequence
from gobblin_dagster.engine.commit.committer import Committer
from gobblin_dagster.engine.commit.policy import choose_publishable
from gobblin_dagster.state.files.store import FileStateStore
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.storage import MemoryStorage

JOB = "job"
ROOT = "/lake"
NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
OWNER = LeaseOwner.current("run-1")


@dataclass
class Clock:
    instant: datetime = NOW

    def now(self) -> datetime:
        return self.instant


@dataclass
class World:
    storage: Storage = field(default_factory=MemoryStorage)
    clock: Clock = field(default_factory=Clock)
    store: StateStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = FileStateStore("/state", MemoryStorage(), self.clock, threads=1)

    def committer(self, **options: Any) -> Committer:
        return Committer(self.store, self.storage, **options)

    def epoch(self, urn: str = "a", runner: str = "run-1") -> int:
        owner = LeaseOwner.current(runner)
        return self.store.acquire_leases(JOB, [urn], owner, timedelta(minutes=1)).granted[urn].epoch

    def state(self, urn: str = "a") -> DatasetState | None:
        return self.store.load_dataset_states(JOB).get(urn)

    def unit(
        self,
        commit_id: str = "c1",
        *,
        urn: str = "a",
        number: int = 1,
        low: int = 0,
        high: int = 10,
        state: WorkingState = WorkingState.SUCCESSFUL,
        branches: Sequence[str] = ("main",),
        **facts: Any,
    ) -> TaskState:
        """Return a work unit's result; one that succeeded has staged a file per branch."""
        is_staged = state is WorkingState.SUCCESSFUL
        files = [self.stage(commit_id, number, branch, low, high) for branch in branches] if is_staged else []
        return TaskState(
            work_unit_id=f"wu-{number}",
            dataset_urn=urn,
            state=state,
            attempt="0",
            low=LongWatermark(low),
            expected_high=LongWatermark(high),
            actual_high=LongWatermark(high if is_staged else low),
            files=tuple(files),
            **{
                "rows_read": high - low,
                "branches": {name: BranchCounts(rows_written=high - low) for name in branches},
                **facts,
            },
        )

    def stage(self, commit_id: str, number: int, branch: str, low: int, high: int) -> StagedFile:
        target = f"{branch}/{commit_id}-{number}.txt"
        content = "\n".join(str(position) for position in range(low, high)).encode()
        sink = self.storage.open_new(f"{staging(commit_id)}/{target}")
        sink.write(content)
        sink.finish()
        digest = hashlib.sha256(content).hexdigest()
        return StagedFile(branch, f"{staging(commit_id)}/{target}", target, len(content), digest, high - low)

    def sequence(
        self,
        commit_id: str = "c1",
        *,
        urn: str = "a",
        units: Sequence[TaskState] | None = None,
        policy: Literal["full", "successful", "partial"] = "successful",
        planned_low: Watermark | None = None,
    ) -> CommitSequence:
        return build_sequence(
            commit_id=commit_id,
            job=JOB,
            run_id="run-1",
            dataset_urn=urn,
            before=self.state(urn),
            decision=choose_publishable(policy, [self.unit(commit_id, urn=urn)] if units is None else units),
            planned_low=planned_low,
            output_root=ROOT,
            staging_dirs=[staging(commit_id)],
            now=NOW,
        )

    def stored(self, sequence: CommitSequence) -> StoredSequence:
        stored = self.store.load_sequence(sequence.id)
        assert stored is not None
        return stored

    def state_of(self, sequence: CommitSequence) -> SequenceState:
        return self.stored(sequence).state

    def visible(self) -> list[str]:
        """Return the published paths below the root, without manifests and staging."""
        files = self.storage.walk_files(ROOT)
        return sorted(path.removeprefix(f"{ROOT}/") for path in files if "/_gobblin/" not in path)


def staging(commit_id: str) -> str:
    return f"{ROOT}/_gobblin/staging/run-1/{commit_id}"
