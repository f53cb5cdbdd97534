"""A job file is edited between runs as people do, who set watermarks and startpoints too.

No row comes twice unless a person asked for that, and a place lacks rows only if a run has said so.

Many more: `python -m tests.property.test_edit_storms FIRST COUNT`.
"""

from __future__ import annotations

import copy
import csv
import dataclasses
import json
import random
import sqlite3
import sys
import tempfile
from collections import Counter, defaultdict
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyarrow import orc
from pydantic import ValidationError

from gobblin_dagster.core.errors import GobblinDagsterError, UsageError
from gobblin_dagster.core.run_record import DatasetOutcome, RunStatus
from gobblin_dagster.core.startpoint import OnRewind, Specific
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.engine.maintenance.state_change import apply_change, plan_reset, plan_set
from gobblin_dagster.engine.project import JobLines, Project
from gobblin_dagster.engine.results import DatasetResult
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.engine.run.startpoint_preview import preview_jobs, settable, wished_startpoints
from gobblin_dagster.engine.validation import check_parts
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.startpoints import StartpointManager
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.engine.jobs import job_spec, project

NAMES = ("a", "b", "c")
EVENTS = 14
TELLS = (
    "only rows that were not read yet",
    "only rows from the startpoint on",
    "take the place of all",
    "are left for a later run",
)
"""What a run says of places that do not hold all rows that were read."""
FILES: tuple[dict[str, Any], ...] = ({"type": "append"}, {"type": "merge", "key": ["id"]}, {"type": "timestamped"})
TABLES: tuple[dict[str, Any], ...] = (
    {"type": "delta"},
    {"type": "delta", "mode": "merge", "key": ["id"]},
    {"type": "sql_table", "mode": "append"},
    {"type": "sql_table", "mode": "upsert", "key": ["id"]},
)

WRITERS: tuple[dict[str, Any], ...] = (
    {"type": "parquet"},
    {"type": "parquet", "partition_by": ["dataset"]},
    {"type": "csv"},
    {"type": "jsonl"},
    {"type": "orc"},
)
REWINDS: tuple[OnRewind, ...] = ("refuse", "append", "replace", "upsert")
SETTINGS: dict[str, list[Any]] = {
    "name": ["numbers", "renamed"],
    "output": ["lake", "lake2"],
    "table": ["numbers", "others"],
    "scope": ["dataset", "job"],
    "max_work_units": [None, 1],
}


@dataclass
class Branch:
    """A branch of the job file."""

    publisher: dict[str, Any]
    database: str = "first"
    """The database and the table of a `sql_table`."""
    writer: dict[str, Any] = field(default_factory=lambda: {"type": "parquet"})


@dataclass
class JobFile:
    """What a person edits."""

    branches: dict[str, Branch] = field(default_factory=lambda: {"one": Branch({"type": "append"})})
    name: str = "numbers"
    output: str = "lake"
    table: str = "numbers"
    scope: str = "dataset"
    max_work_units: int | None = None
    datasets: tuple[str, str] = ("a", "b")
    """What the source calls the two that there are."""


class Storm:
    """A job over growing datasets, whose file is edited at random."""

    def __init__(self, root: Path, dice: random.Random) -> None:
        self.root = root
        self.dice = dice
        self.counts = [0, 0]
        """Rows of the datasets, which have the ids 0, 1, ..."""
        self.file = JobFile()
        self.told: dict[tuple[str, ...], set[int]] = {}
        """Rows that the places of a branch lack, as a run has said: by job, dataset and branch."""
        self.twice: dict[str, set[int]] = defaultdict(set)
        """Rows that a person lets come again: by dataset."""
        self.skipped: dict[tuple[str, str], set[int]] = defaultdict(set)
        """Rows that a person has left out."""
        self.log: list[str] = []

    @property
    def rows(self) -> dict[str, int]:
        """Rows by dataset."""
        return dict(zip(self.file.datasets, self.counts, strict=True))

    def rage(self) -> None:
        """Let things happen; a broken promise is raised with all that led there."""
        try:
            self.grow()
            self.go_on()
            for _ in range(EVENTS):
                self.grow()
                if not self.edit():
                    return
        except AssertionError as error:
            raise AssertionError("\n  ".join([str(error), *self.log])) from error

    # -- what may happen -----------------------------------------------------------------------------------------------
    def grow(self) -> None:
        self.counts = [rows + self.dice.randrange(4) for rows in self.counts]

    def edit(self) -> bool:
        """Edit the file, run, and undo an edit that is refused; False if something waits for a person."""
        former = copy.deepcopy(self.file)
        edits = [self._publisher, self._publisher, self._database, self._add, self._remove, self._rename]
        self.dice.choice([*edits, self._writer, self._exchange, self._rename_dataset])()
        if self.dice.randrange(3) == 0:
            self._settings()
        if self.dice.randrange(3) == 0:
            self._by_hand()
        if self.go_on():
            return True
        self.file = former
        # What a step of the commit has refused waits for a person, whatever the file says now.
        return self._waits() is False and self.go_on()

    def _publisher(self) -> None:
        self._any_branch().publisher = self.dice.choice([*FILES, *TABLES])

    def _database(self) -> None:
        self._any_branch().database = self.dice.choice(["first", "second"])

    def _add(self) -> None:
        name = self.dice.choice(["one", "two", "three"])
        self.file.branches.setdefault(name, Branch(self.dice.choice([*FILES, *TABLES]), f"of_{name}"))

    def _remove(self) -> None:
        if len(self.file.branches) > 1:
            del self.file.branches[self.dice.choice([*self.file.branches])]

    def _rename(self) -> None:
        old, new = self.dice.choice([*self.file.branches]), self.dice.choice(["one", "two", "three"])
        if new not in self.file.branches:
            self.file.branches[new] = self.file.branches.pop(old)

    def _writer(self) -> None:
        self._any_branch().writer = self.dice.choice(WRITERS)

    def _exchange(self) -> None:
        """Let two branches have each other's places, and keep their names."""
        if len(self.file.branches) > 1:
            one, other = self.dice.sample([*self.file.branches], 2)
            branches = self.file.branches
            branches[one], branches[other] = branches[other], branches[one]

    def _rename_dataset(self) -> None:
        self.file.datasets = tuple(self.dice.sample(NAMES, 2))  # type: ignore[assignment]  # two

    def _settings(self) -> None:
        name = self.dice.choice([*SETTINGS])
        setattr(self.file, name, self.dice.choice(SETTINGS[name]))

    def _any_branch(self) -> Branch:
        return self.dice.choice([*self.file.branches.values()])

    # -- by hand -------------------------------------------------------------------------------------------------------
    def _by_hand(self) -> None:
        """Set the watermark of a dataset, reset it, or let it begin elsewhere."""
        urn = self.dice.choice(self.file.datasets)
        key, rows = (self.file.name, urn), self.rows[urn]
        with closing(self._project.open_store()) as store:
            state = store.load_dataset_states(*key[:1], [urn]).get(urn)
            if state is None or store.load_sequences(self.file.name):
                return
            is_of_two = any(store.load_dataset_states(name, [urn]) for name in {*SETTINGS["name"]} - {key[0]})
            was = int(str(state.watermark or 0))
            to, what = self.dice.randrange(rows + 1), self.dice.randrange(4)
            try:
                if what == 0:
                    apply_change(store, plan_reset(state, who="anna", why="storm", now=store.now()))
                    to = 0
                elif what == 1:
                    apply_change(store, plan_set(state, LongWatermark(to), who="anna", why="storm", now=store.now()))
                else:
                    self._begin(store, urn, to, rewind := self.dice.choice(REWINDS))
            except GobblinDagsterError as error:
                self.log.append(f"by hand, {what} of {urn} to {to}: {str(error)[:150]}")
                return
        self.log.append(f"by hand: {('reset', 'set', 'startpoint', 'startpoint')[what]} {urn}, {was} to {to}")
        # What the job's other name has published is not known to a startpoint of this one.
        if what < 2 or rewind == "append" or is_of_two:
            self.twice[urn] |= {*range(to, max(rows, was))}
        self.skipped[key] |= {*range(was, to)}

    def _begin(self, store: StateStore, urn: str, to: int, rewind: OnRewind) -> None:
        """Set a startpoint; raises UsageError if a plan refuses it."""
        facts: dict[str, Any] = {"who": "anna", "why": f"storm, {rewind}", "now": store.now(), "store": store}
        expires = store.now() + timedelta(days=7)
        job, here = self._project.jobs[0], self._project
        wishes = wished_startpoints(here, job, urn, Specific(str(to)), expires_at=expires, on_rewind=rewind, **facts)
        plans = preview_jobs(here, job, wishes, store=store)
        if not (good := settable(wishes, plans)):
            raise UsageError(problem=next(iter(plans.values())).problem)
        StartpointManager(store).save(good[0])

    # -- runs ----------------------------------------------------------------------------------------------------------
    def go_on(self) -> bool:
        try:
            here = self._project
            check_parts(here.jobs[0], here.root)
            result = run_job(here, here.jobs[0], runner=InlineRunner())
        except (GobblinDagsterError, ValidationError) as error:
            self.log.append(f"{self.file}, rows {self.rows}: {str(error)[:300]}")
            return False
        told = [f"{one.dataset_urn} {one.outcome}: {one.problem[:150]} {one.notes}" for one in result.datasets]
        self.log.append(f"{self.file}, rows {self.rows}: {result.status.value} {told}")
        if result.status is not RunStatus.SUCCEEDED:
            assert any(one.problem for one in result.datasets), "failed without a reason"
            return False
        for dataset in result.datasets:
            if dataset.dataset_urn not in self.rows:  # one that is gone, for which a startpoint waits
                continue
            if dataset.is_committed or dataset.outcome is DatasetOutcome.IDLE:
                self._check(dataset)
        return True

    def _check(self, dataset: DatasetResult) -> None:
        urn = dataset.dataset_urn
        for name, branch in self.file.branches.items():
            held = self._held(urn, name, branch)
            again = self.twice[urn]
            assert not (twice := [row for row, times in held.items() if times > 1 and row not in again]), (
                f"{name} of {urn} has {twice} twice"
            )
            lacking = set(range(self.rows[urn])) - {*held} - self.skipped[self.file.name, urn]
            told = self.told.setdefault((self.file.name, urn, name), set())
            if any(sentence in note for note in dataset.notes for sentence in TELLS):
                told |= lacking
                # Appends to a Delta table are files of snapshots too, which may lack rows that the table has.
                told |= set(range(self.rows[urn])) - {*self._held_in_files(urn, name)}
            assert lacking <= told, f"{name} of {urn} lacks {lacking - told}, and no run has said so"

    def _waits(self) -> bool:
        with closing(self._project.open_store()) as store:
            return any(store.load_sequences(name) for name in ("numbers", "renamed"))

    # -- what there is -------------------------------------------------------------------------------------------------
    @property
    def _project(self) -> Project:
        """The project as if it were read from files: jobs that were renamed are looked for in those alone."""
        return dataclasses.replace(
            project(self.root, self._job), lines={self.file.name: JobLines(self.root / "job.yaml", {})}
        )

    @property
    def _job(self) -> JobSpec:
        branches = [
            {"name": name, "publisher": self._options(one), "writer": one.writer}
            for name, one in self.file.branches.items()
        ]
        return job_spec(
            {urn: {"rows": rows} for urn, rows in self.rows.items()},
            job=self.file.name,
            extract={"namespace": "test", "table": self.file.table},
            fork={"branches": branches},
            output={"path": self.file.output},
            commit={"scope": self.file.scope},
            execution={"max_work_units": self.file.max_work_units},
        )

    def _options(self, branch: Branch) -> dict[str, Any]:
        if branch.publisher["type"] == "delta":
            return branch.publisher | {"table": "dataset"}
        if branch.publisher["type"] == "sql_table":
            return branch.publisher | {"url": f"sqlite:///{branch.database}.db", "table": "numbers_{dataset}"}
        return branch.publisher

    def _held(self, urn: str, name: str, branch: Branch) -> Counter[int]:
        """Return how often the place of a branch has each row of a dataset."""
        kind = branch.publisher["type"]
        if kind == "delta":
            with suppress(TableNotFoundError):
                table = DeltaTable(self.root / self.file.output / "test" / self.file.table / name / urn)
                return Counter(table.to_pyarrow_table()["id"].to_pylist())
            return Counter()
        if kind == "sql_table":
            with closing(sqlite3.connect(self.root / f"{branch.database}.db")) as database:
                is_there = database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [f"numbers_{urn}"]).fetchone()
                rows = database.execute(f"SELECT id FROM numbers_{urn}") if is_there else ()
                return Counter(row for (row,) in rows)
        return self._held_in_files(urn, name)

    def _held_in_files(self, urn: str, name: str) -> Counter[int]:
        with closing(self._project.open_store()) as store:
            files = [file for file in store.load_snapshot(self.file.name, urn) if file.branch == name]
        return Counter(row for file in files for row in _ids(file.path))


def _ids(path: str) -> list[int]:
    """Return the ids in a published file."""
    if ".csv" in path:
        return [int(row["id"]) for row in csv.DictReader(Path(path).read_text().splitlines())]
    if ".jsonl" in path:
        return [json.loads(line)["id"] for line in Path(path).read_text().splitlines()]
    file = orc.ORCFile(path) if ".orc" in path else pq.ParquetFile(path)
    return list(file.read(columns=["id"])["id"].to_pylist())


@pytest.mark.parametrize("seed", [1])
def test_job_file_is_edited_between_runs(tmp_path: Path, seed: int) -> None:
    Storm(tmp_path, random.Random(seed)).rage()


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2])
    for number in range(first, first + count):
        with tempfile.TemporaryDirectory() as folder:
            Storm(Path(folder), random.Random(number)).rage()
        sys.stdout.write(f"\r{number + 1 - first} job files")
        sys.stdout.flush()
    sys.stdout.write("\n")
