"""Everything at once: runs, crashes, rollbacks, compaction, replay, startpoints and cleaning in random order.

A plain model says which ids each branch holds in each snapshot; readers by store and by manifests must find just these.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import ClassVar

import pyarrow.parquet as pq
import pytest

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.startpoint import Specific, Startpoint
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.clean import clean
from gobblin_dagster.engine.compact import compact
from gobblin_dagster.engine.job import plan_job, run_job
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.replay import replay_quarantine
from gobblin_dagster.engine.snapshots import PublishedSnapshot, list_snapshots, load_published, read_published, rollback
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.state import StateStore
from gobblin_dagster.testing.faults import (
    CRASHED,
    Fault,
    FaultPoints,
    counted_storage,
    counted_store,
    crash_after,
    crash_before,
    run_in_child,
)
from gobblin_dagster.testing.lane import InlineLane
from tests.unit.engine.jobs import job_spec

URNS = ("a", "b")
HAS_VALUE = {"name": "has_value", "type": "not_null", "columns": ["value"]}
Content = dict[str, Counter[int]]


class FaultyProject(Project):
    """A project whose storage and store pass fault points."""

    points: ClassVar[FaultPoints]

    def open_store(self) -> StateStore:
        return counted_store(Project.open_store(self), self.points)

    def storage(self, job: JobSpec) -> Storage:
        return counted_storage(Project.storage(self, job), self.points)


@dataclass
class Storm:
    """A project, its model, and the dice."""

    root: Path
    state: str
    second: str
    """Publisher of the second branch; the first appends."""
    dice: random.Random
    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(URNS, 0))
    model: dict[str, list[Content]] = field(default_factory=lambda: {urn: [{}] for urn in URNS})
    """Content by number of snapshot."""
    ids: dict[str, list[set[int]]] = field(default_factory=lambda: {urn: [set()] for urn in URNS})
    """Committed ids by number of snapshot."""
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rules = {
            "policy": self.dice.choice(["full", "successful", "partial"]),
            "scope": self.dice.choice(["dataset", "job"]),
            "durability": "fast",
            "keep_snapshots": self.dice.choice([1, 3, 100]),
        }
        self.execution = {
            "retries": {"count": 0},
            "merge_bytes": self.dice.choice([0, 1_000_000]),
            "packing": self.dice.choice(["single_level", "bi_level"]),
        }

    # -- the job ------------------------------------------------------------------------------------------------------
    def job(self, fail_at: int | None = None, *, strict: bool = True) -> JobSpec:
        datasets = {urn: {"rows": self.rows[urn], "unit_rows": 4, "fail_at": fail_at} for urn in URNS}
        branches = [{"name": "all"}, {"name": "second", "publisher": {"type": self.second}}]
        return job_spec(
            datasets,
            fork={"branches": branches},
            row_policies=[HAS_VALUE] if strict else [],
            commit=self.rules,
            execution=self.execution,
        )

    def project(self, job: JobSpec, kind: type[Project] = Project) -> Project:
        return kind(self.root, ProjectSpec(project="p", state=self.state), (job,))

    def run(self, kind: type[Project] = Project, *, fail_at: int | None = None) -> None:
        job = self.job(fail_at)
        run_job(self.project(job, kind), job, lane=InlineLane())

    # -- what may happen ----------------------------------------------------------------------------------------------
    def grow(self) -> None:
        """Rows come, and are read or not."""
        for urn in URNS:
            self.rows[urn] += self.dice.randrange(12)
        fail_at = self.dice.choice([None, self.dice.randrange(max(self.rows.values()) + 1)])
        self.maybe_crash(partial(self.run, fail_at=fail_at))

    def restart(self) -> None:
        """A person sends a dataset back."""
        self.run()
        self.learn()
        urn = self.dice.choice(URNS)
        if not self.rows[urn]:
            return
        begin = self.dice.randrange(self.rows[urn])
        job = self.job()
        project = self.project(job)
        store = project.open_store()
        now = project.clock.now()
        store.save_startpoint(
            Startpoint(job.job, urn, Specific(str(begin)), now, now + timedelta(days=1), "anna@host", "snow")
        )
        store.close()
        self.run()
        self.learn(again={urn: set(range(begin, self.rows[urn]))})

    def go_back(self) -> None:
        """A person rolls a dataset back."""
        urn = self.dice.choice(URNS)
        job = self.job()
        oldest = self.states().get(urn)
        if oldest is None or oldest.oldest_snapshot >= oldest.snapshot:
            return
        to = self.dice.randrange(max(1, oldest.oldest_snapshot), oldest.snapshot)
        self.maybe_crash(lambda kind: rollback(self.project(job, kind), job, urn, to))

    def merge(self) -> None:
        """Small files become larger ones."""
        job = self.job()
        self.maybe_crash(lambda kind: compact(self.project(job, kind), job, min_files=2))

    def replay(self) -> None:
        """Rejected rows get in, by a job that rejects none."""
        urn, job = self.dice.choice(URNS), self.job(strict=False)
        if self.second == "append" and urn in self.states():
            self.maybe_crash(lambda kind: replay_quarantine(self.project(job, kind), job, urn), replayed=urn)

    def tidy(self) -> None:
        """What only expired snapshots hold goes."""
        job = self.job()
        self.maybe_crash(lambda kind: clean(self.project(job, kind), job))

    def maybe_crash(self, work: Callable[[type[Project]], object], replayed: str = "") -> None:
        """Do it, or let it die at some call and be found by the next run."""
        if self.dice.random() < 0.5:
            work(Project)
        else:
            at, action = self.dice.randrange(1, 60), self.dice.choice([crash_before, crash_after])
            FaultyProject.points = FaultPoints(Fault(at, action))
            died = run_in_child(partial(work, FaultyProject))
            assert died in (0, CRASHED)
            self.log[-1] += f" crash {at} {died}"
            if died:
                self.run()
        self.learn(replayed=replayed)

    # -- the model ----------------------------------------------------------------------------------------------------
    def learn(self, again: dict[str, set[int]] | None = None, replayed: str = "") -> None:
        """Say what the snapshots that came must hold, from the ranges that each commits."""
        store = self.project(self.job()).open_store()
        for urn in URNS:
            for info in reversed(list_snapshots(store, "numbers", urn)):
                if info.snapshot < len(self.model[urn]):
                    continue
                assert info.snapshot == len(self.model[urn]), "a number was left out"
                now = committed(info.state)
                content = dict(self.model[urn][-1])
                delta = (again or {}).get(urn) or now - self.ids[urn][-1]
                if info.went_back_to is not None:
                    content = dict(self.model[urn][info.went_back_to])
                    assert now == self.ids[urn][info.went_back_to]
                elif delta:
                    content = self.after_run(content, delta)
                elif replayed == urn:
                    back = content.pop("quarantine")
                    content |= {name: content.get(name, Counter()) + back for name in ("all", "second")}
                self.model[urn].append(content)
                self.ids[urn].append(now)
        store.close()

    def after_run(self, content: Content, delta: set[int]) -> Content:
        """Return what is there after a run read some ids: every tenth is rejected."""
        good, bad = Counter(n for n in delta if n % 10), Counter(n for n in delta if n % 10 == 0)
        second = good if self.second == "replace" else content.get("second", Counter()) + good
        content = content | {"all": content.get("all", Counter()) + good}
        content["quarantine"] = content.get("quarantine", Counter()) + bad
        return content if self.second == "noop" else content | {"second": second}

    def states(self) -> dict[str, DatasetState]:
        store = self.project(self.job()).open_store()
        try:
            return store.load_dataset_states("numbers")
        finally:
            store.close()

    def check(self) -> None:
        """Read every snapshot that is kept, as both kinds of readers do."""
        job = self.job()
        for urn, state in self.states().items():
            assert committed(state) == self.ids[urn][state.snapshot]
            assert not self.ids[urn][-1] - set(range(self.rows[urn])), "the watermark is ahead"
            for number in range(max(1, state.oldest_snapshot), state.snapshot + 1):
                by_store = load_published(self.project(job), job, urn, number)
                assert read_published(self.root / "lake", "numbers", urn, number) == by_store
                expected = {name: ids for name, ids in self.model[urn][number].items() if ids}
                assert held(by_store) == expected, (urn, number)

    def finish(self) -> None:
        """After quiet runs nothing is left to do and nothing lies around."""
        for _ in range(2):
            self.run()
            self.learn()
        job = self.job()
        assert not plan_job(self.project(job), job).has_work
        self.check()
        for urn in URNS:
            assert self.ids[urn][-1] == set(range(self.rows[urn]))
        clean(self.project(job), job)
        self.check()
        named = {
            file.path
            for urn, state in self.states().items()
            for number in range(max(1, state.oldest_snapshot), state.snapshot + 1)
            for file in load_published(self.project(job), job, urn, number).files
        }
        there = {str(path) for path in (self.root / "lake").rglob("*.parquet") if "staging" not in path.parts}
        assert there == named


def committed(state: DatasetState) -> set[int]:
    """Return the ids in committed ranges."""
    return {n for low, high in state.committed.ranges.get("", ()) for n in range(int(str(low)), int(str(high)))}


def held(snapshot: PublishedSnapshot) -> Content:
    """Count the ids in the files of a snapshot, by branch."""
    found: Content = {}
    for file in snapshot.files:
        table = pq.read_table(file.path)
        if file.branch == "quarantine":
            ids = [json.loads(record)["id"] for record in table["record"].to_pylist()]
        else:
            ids = table["id"].to_pylist()
        found.setdefault(file.branch, Counter()).update(ids)
    return {name: ids for name, ids in found.items() if ids}


@pytest.mark.parametrize("state", ["sqlite:///state.db", "files:state"], ids=["sqlite", "files"])
@pytest.mark.parametrize("second", ["append", "replace", "noop"])
@pytest.mark.parametrize("seed", range(2))
def test_whatever_comes_together_every_snapshot_holds_what_the_model_says(
    tmp_path: Path, state: str, second: str, seed: int
) -> None:
    storm = Storm(tmp_path, state, second, random.Random(f"{second}-{seed}"))
    rules = [storm.grow, storm.grow, storm.restart, storm.go_back, storm.merge, storm.replay, storm.tidy]
    for _ in range(12):
        rule = storm.dice.choice(rules)
        storm.log.append(rule.__name__)
        rule()
        storm.check()
    storm.finish()
