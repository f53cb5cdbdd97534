"""One project, the model of what it must hold, and the dice."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

from gobblin_dagster.core.commit import SequenceState
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.state import StateStore
from gobblin_dagster.testing.faults import FaultPoints, counted_storage, counted_store
from gobblin_dagster.testing.inline_runner import InlineRunner
from gobblin_dagster.testing.protocol.scenario import SetClock
from tests.property.everything.model import Dataset, Kind
from tests.property.everything.wishes import Wishes
from tests.unit.engine.jobs import job_spec

JOB = "numbers"
URNS = ("a", "b")
UNIT_ROWS = 3
HAS_VALUE = {"name": "has_value", "type": "not_null", "columns": ["value"]}
Work: TypeAlias = Callable[[Project], object]


class TickingClock(SetClock):
    """A clock that nobody reads twice at the same instant."""

    def now(self) -> datetime:
        self.instant += timedelta(milliseconds=1)
        return self.instant


@dataclass(frozen=True)
class StormyProject(Project):
    """A project whose store and storage pass fault points."""

    store_points: FaultPoints = field(default_factory=FaultPoints)
    file_points: FaultPoints = field(default_factory=FaultPoints)

    def open_store(self) -> StateStore:
        return counted_store(super().open_store(), self.store_points)

    def storage(self, job: JobSpec) -> Storage:
        return counted_storage(super().storage(job), self.file_points)


@dataclass
class Storm:
    """What happens is drawn from the dice alone."""

    root: Path
    state: str
    kind: Kind
    dice: random.Random
    tables: Mapping[str, str] = field(default_factory=lambda: {"url": "sqlite:///sink.db"})
    """Which database tables are in, as publishers are told."""
    clock: TickingClock = field(default_factory=TickingClock)
    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(URNS, 0))
    wishes: Wishes = field(default_factory=Wishes)
    at_rest: bool = True
    """Whether nothing was struck since the last quiet run: then all is whole, and what is asked for must go well."""
    has_erred: bool = False
    """Whether an error, that killed nobody, struck since."""
    late: dict[str, int] = field(default_factory=dict)
    """By dataset.urn: the snapshot whose manifest an error left to the next publication, or to cleaning."""
    is_racing: bool = False
    """Whether a runner is frozen meanwhile."""
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.datasets = {urn: Dataset(self.kind) for urn in URNS}
        self.rules = {
            # What replaces a whole takes whole ones only, so the policy must make no difference.
            "policy": self.dice.choice(["successful", "partial", *([] if self.kind.is_whole else ["full"])]),
            "scope": self.dice.choice(["dataset", "job"]),
            "durability": "fast",
            "keep_snapshots": self.dice.choice([1, 3, 100]),
            "redo_limit": 100,
            "parallelism": 1,  # so that the same dice strike the same call
        }
        self.execution = {
            "retries": {"count": 0},
            "merge_bytes": self.dice.choice([0, 1_000_000]),
            "packing": self.dice.choice(["single_level", "bi_level"]),
        }

    def job(self, fail_at: int | None = None, *, strict: bool = True) -> JobSpec:
        """Return the job over the rows that there are now."""
        datasets = {urn: {"rows": self.rows[urn], "unit_rows": UNIT_ROWS, "fail_at": fail_at} for urn in URNS}
        publisher = {**self.kind.publisher, **(self.tables if self.kind.is_table else {})}
        second: dict[str, Any] = {"name": "second", "publisher": publisher}
        if self.kind.partition_by:
            second["writer"] = {"type": "parquet", "partition_by": self.kind.partition_by}
        return job_spec(
            datasets,
            fork={"branches": [{"name": "all"}, second]},
            row_policies=[HAS_VALUE] if strict else [],
            commit=self.rules,
            execution=self.execution,
        )

    def run(self, fail_at: int | None = None) -> Work:
        """Return a run over the rows that there are now."""
        job = self.job(fail_at)
        return lambda project: run_job(project, job, runner=InlineRunner())

    def project(self, store: FaultPoints | None = None, files: FaultPoints | None = None) -> Project:
        """Open the project; calls to its store and its storage pass these points."""
        # A run waits as long as a lease lives for a store that is away, by the real clock.
        spec = ProjectSpec(project="p", state=self.state, lease_ttl_s=5)
        store, files = store or FaultPoints(), files or FaultPoints()
        return StormyProject(self.root, spec, (self.job(),), self.clock, store_points=store, file_points=files)

    @contextmanager
    def store(self) -> Iterator[StateStore]:
        """Open the state store for a look."""
        store = self.project().open_store()
        try:
            yield store
        finally:
            store.close()

    def wait(self, **time: float) -> None:
        """Let time pass."""
        self.clock.instant += timedelta(**time)

    def learn(self) -> None:
        """Tell the model of the commits that came."""
        with self.store() as store:
            stored = store.load_sequences(JOB, {SequenceState.COMMITTED})
        for one in sorted(stored, key=lambda sequence: (sequence.dataset_urn, sequence.version_read)):
            dataset, version = self.datasets[one.dataset_urn], one.version_read + 1
            if version < len(dataset.moments):
                assert dataset.moments[version].commit == one.id, "two commits made one version"
            else:
                commit = decode_sequence(one, store.places)
                dataset.learn(commit, self.wishes.begin_of(commit, self.rows[one.dataset_urn]))
