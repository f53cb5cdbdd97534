"""Store and tables are set back to older copies, among kills, startpoints and abandoned commits: no row comes twice and
none is left out, but for a person who said so; and nothing is refused without a cause.

Many more: `python -m tests.property.test_set_back_storms FIRST COUNT`.
"""

from __future__ import annotations

import copy
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from gobblin_dagster.constructs.publishers.delta_steps import AppendToDeltaStep
from gobblin_dagster.constructs.publishers.sql_table import LoadSqlTableStep
from gobblin_dagster.core.commit import WAITING, SequenceState
from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.maintenance.abandon import abandon_sequence
from gobblin_dagster.spec.job import JobSpec
from tests.unit.constructs.publishers.table_jobs import at_commit, start_at
from tests.unit.engine.jobs import job_spec, project, run

TABLES = {"table": ("first",), "two_tables": ("first", "second"), "delta": ("numbers",)}
EVENTS = 25


@dataclass
class Table:
    """What a table holds."""

    commits: set[int] = field(default_factory=set)
    rows: Counter[int] = field(default_factory=Counter)


@dataclass
class Store:
    """What the state store holds of the one dataset."""

    watermark: int = 0
    commits: set[int] = field(default_factory=set)
    waiting: int | None = None
    startpoint: int | None = None
    decided: set[int] = field(default_factory=set)
    """Commits that there were when a person set the startpoint that waits."""
    unknown_ones_stay: set[int] = field(default_factory=set)
    """Commits that no table must be refused for having: a person has gone on since."""
    missing_ones_stay: set[int] = field(default_factory=set)
    """Commits that no table must be refused for lacking."""


class Storm:
    """A job over rows numbered from 0 that are appended to tables, and the model of what these must hold."""

    def __init__(self, root: Path, backend: str, dice: random.Random) -> None:
        self.root = root
        self.backend = backend
        self.dice = dice
        self.rows = 0
        self.store = Store()
        self.tables = {name: Table() for name in TABLES[backend]}
        self.read: list[tuple[int, int]] = []
        """Rows of each commit, `[low, high)`."""
        self.staging_is_gone: set[int] = set()
        self.copies: list[tuple[str, Path, Store | Table]] = []
        """Name of a table, or empty for the store; where its copy is, and what it held."""
        self.log: list[str] = []

    def rage(self) -> None:
        """Let things happen; a broken promise is raised with all that led there."""
        events = [self.grow] * 5 + [self.go_on] * 7 + [self.be_struck] * 3
        events += [self.copy, self.copy, self.set_back, self.set_back, self.set_startpoint, self.set_startpoint]
        events += [self.abandon]
        try:
            self.grow()
            self.go_on()
            for _ in range(EVENTS):
                self.dice.choice(events)()
        except AssertionError as error:
            raise AssertionError("\n  ".join([str(error), *self.log])) from error

    # -- what may happen -----------------------------------------------------------------------------------------------
    def grow(self) -> None:
        self.rows += self.dice.randrange(1, 5)

    def go_on(self) -> None:
        self._run("")

    def be_struck(self) -> None:
        has_work = self.rows > self._low and self.store.waiting is None
        self._run(self.dice.choice(["first step", "last step", "commit"]) if has_work else "")

    def set_startpoint(self) -> None:
        if self.store.waiting is not None:
            return  # the commit that waits consumes the startpoint that it knows
        position = self.dice.randrange(self.rows + 1)
        start_at(self.root, self._job, str(position))
        self.store.startpoint, self.store.decided = position, set(range(len(self.read)))
        self.log.append(f"startpoint {position}")

    def copy(self) -> None:
        name = self.dice.choice(["", *self.tables])
        if self._place(name).exists() and len(self.copies) < 6:
            to = self.root / f"copy_{len(self.copies)}"
            (shutil.copytree if self._place(name).is_dir() else shutil.copy)(self._place(name), to)
            self.copies.append((name, to, copy.deepcopy(self.tables[name] if name else self.store)))
            self.log.append(f"copy of {name or 'the store'}")

    def set_back(self) -> None:
        if not self.copies:
            return
        name, to, held = self.dice.choice(self.copies)
        place = self._place(name)
        for old in [place] if not name else place.rglob("_delta_log"):
            shutil.rmtree(old)
        if to.is_dir():
            shutil.copytree(to, place, dirs_exist_ok=True)
        else:
            shutil.copy(to, place)
        if isinstance(held, Table):
            self.tables[name] = copy.deepcopy(held)
        else:
            self.store = copy.deepcopy(held)
        self.log.append(f"{name or 'the store'} is set back to {held}")

    def abandon(self) -> None:
        opened = project(self.root, self._job)
        with closing(opened.open_store()) as store:
            for waiting in store.load_sequences("numbers", WAITING):
                state = waiting.state
                with suppress(GobblinDagsterError):
                    while state is not SequenceState.ABORTED:
                        state = abandon_sequence(opened, store, waiting.id).state
                if state is SequenceState.ABORTED and self.store.waiting is not None:
                    self.staging_is_gone.add(self.store.waiting)
                    self.store.waiting = None
                    self.log.append("what waits is abandoned")

    # -- runs ----------------------------------------------------------------------------------------------------------
    def _run(self, struck: str) -> None:
        self._finish_what_waits()
        low, strange = self._low, self._unknown | self._missing
        has_work = self.rows > low
        with pytest.MonkeyPatch.context() as patched:
            self._strike(patched, struck)
            # What else tells that the store was set back; here, the tables alone must.
            shutil.rmtree(self.root / "lake" / "_gobblin" / "manifests", ignore_errors=True)
            result = run(self.root, self._job)
        told = [failure.message[:150] for dataset in result.datasets for failure in dataset.failures]
        self.log.append(f"run, struck at {struck!r}, from {low} to {self.rows}: {result.status.value} {told}")
        if not has_work:
            self._begin_elsewhere(low)
        elif self.store.waiting is not None or strange:
            assert result.status is not RunStatus.SUCCEEDED, f"{strange or 'what waits'} was not noticed"
        else:
            commit = len(self.read)
            self.read.append((low, self.rows))
            assert (result.status is RunStatus.SUCCEEDED) is not bool(struck), "failed without a cause, or did not"
            first, *others = self.tables
            done = {"": [first, *others], "commit": [first, *others], "first step": [], "last step": [first]}
            for name in done[struck] if others or struck != "last step" else []:
                self._publish(name, commit)
            if struck:
                self.store.waiting = commit
            else:
                self._commit(commit)
        for name, table in self.tables.items():
            found = self._rows_of(name)
            assert found == table.rows, f"{name}: {found - table.rows} too many, {table.rows - found} missing"

    def _strike(self, patched: pytest.MonkeyPatch, struck: str) -> None:
        if struck == "commit":
            at_commit(patched)
        elif struck:
            fails_at = [*self.tables][0 if struck == "first step" else -1]
            for step in (LoadSqlTableStep, AppendToDeltaStep):
                patched.setattr(step, "execute", _failing(step.execute, fails_at))

    def _finish_what_waits(self) -> None:
        """Do in the model what a run does first."""
        waiting = self.store.waiting
        if waiting is None:
            return
        left = [name for name, table in self.tables.items() if waiting not in table.commits]
        # Only a table that the commit is still to be published to is asked what it lacks.
        if left and (waiting in self.staging_is_gone or self._missing_in(left)):
            return
        for name in left:
            self._publish(name, waiting)
        self._commit(waiting)

    def _publish(self, name: str, commit: int) -> None:
        self.tables[name].commits.add(commit)
        self.tables[name].rows.update(range(*self.read[commit]))

    def _commit(self, commit: int) -> None:
        store = self.store
        store.commits.add(commit)
        store.watermark, store.waiting = self.read[commit][1], None
        if self.backend != "delta":  # whose files stay where they were published
            self.staging_is_gone.add(commit)
        if store.startpoint is not None:
            store.unknown_ones_stay |= store.decided
            store.missing_ones_stay |= store.decided
            store.startpoint, store.decided = None, set()

    def _begin_elsewhere(self, low: int) -> None:
        """Consume in the model the startpoint of a run that had nothing to read."""
        with closing(project(self.root, self._job).open_store()) as store:
            is_left = bool(store.list_startpoints("numbers"))
        if self.store.startpoint is not None and not is_left:
            self.store.watermark = low
            self.store.unknown_ones_stay |= self.store.decided
            self.store.startpoint, self.store.decided = None, set()

    # -- what there is -------------------------------------------------------------------------------------------------
    @property
    def _low(self) -> int:
        return self.store.watermark if self.store.startpoint is None else self.store.startpoint

    @property
    def _unknown(self) -> set[int]:
        there = {commit for table in self.tables.values() for commit in table.commits}
        return there - self.store.commits - self.store.unknown_ones_stay - self.store.decided

    @property
    def _missing(self) -> set[int]:
        return self._missing_in(self.tables)

    def _missing_in(self, names: Iterable[str]) -> set[int]:
        gone = {commit for name in names for commit in self.store.commits - self.tables[name].commits}
        decided = set() if self.store.waiting is not None else self.store.decided
        return gone - self.store.missing_ones_stay - decided

    @property
    def _job(self) -> JobSpec:
        branches = [{"name": name, "publisher": self._publisher(name)} for name in self.tables]
        return job_spec({"c": {"rows": self.rows}}, fork={"branches": branches})

    def _publisher(self, name: str) -> dict[str, Any]:
        if self.backend == "delta":
            return {"type": "delta"}
        return {"type": "sql_table", "url": f"sqlite:///{name}.db", "table": "numbers"}

    def _place(self, name: str) -> Path:
        """Return where a table is, or the store."""
        if not name:
            return self.root / ".gobblin"
        return self.root / "lake/test/numbers" if self.backend == "delta" else self.root / f"{name}.db"

    def _rows_of(self, name: str) -> Counter[int]:
        place = self._place(name)
        if self.backend == "delta":
            with suppress(TableNotFoundError):
                return Counter(DeltaTable(place / name).to_pyarrow_table()["id"].to_pylist())
        engine = sa.create_engine(f"sqlite:///{place}")
        try:
            if place.is_file() and sa.inspect(engine).has_table("numbers"):
                with engine.connect() as connection:
                    return Counter(connection.scalars(sa.text("SELECT id FROM numbers")))
            return Counter()
        finally:
            engine.dispose()


def _failing(execute: Any, fails_at: str) -> Any:
    def fail(self: Any, storage: Storage) -> None:
        if isinstance(self, AppendToDeltaStep) or fails_at in self.url:
            raise OSError("the table is away")
        execute(self, storage)

    return fail


@pytest.mark.parametrize("backend", TABLES)
@pytest.mark.parametrize("seed", [1])
def test_store_and_tables_are_set_back(tmp_path: Path, backend: str, seed: int) -> None:
    Storm(tmp_path, backend, random.Random(seed)).rage()


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2])
    for number in range(first, first + count):
        for kind in TABLES:
            with tempfile.TemporaryDirectory() as folder:
                Storm(Path(folder), kind, random.Random(number)).rage()
        sys.stdout.write(f"\r{number + 1 - first} schedules for each of {len(TABLES)} kinds of tables")
        sys.stdout.flush()
    sys.stdout.write("\n")
