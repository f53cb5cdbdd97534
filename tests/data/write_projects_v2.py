"""Write `tests/data/project_v2_sql` and `project_v2_files`: two small projects as the program of November 2026 left
them.

Run with that program (the commit that brought this file), never with a later one: `python -m
tests.data.write_projects_v2`. Both lay in `ROOT`, whose name stands in their absolute paths. Each holds the lake with
its manifests and its state store: one as the dump of a SQLite store with its export, the other as plain files. Of the
jobs, see `numbers` and `feed`.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.engine.maintenance.compact import compact
from gobblin_dagster.engine.maintenance.rollback import rollback
from gobblin_dagster.engine.maintenance.state_export import export_state
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.testing.faults import Fault, FaultPoints, Halted, counted_store, halt_before
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.engine.jobs import job_spec

ROOT = Path("/tmp/gobblin-v2/project")  # only a name in the paths; nothing is read there
DATA = Path(__file__).parent
ONE_BRANCH = {"branches": [{"name": "all"}]}
STATES = {"sql": "sqlite:///state.db", "files": "files:state"}


@dataclass
class SetClock:
    """A clock that each run moves by an hour."""

    instant: datetime = datetime(2026, 11, 22, 8, tzinfo=UTC)

    def now(self) -> datetime:
        return self.instant


def numbers(rows: int) -> JobSpec:
    """Return a job of two datasets: of `a` three snapshots, a rollback to the first and one more; of `b` an unfinished
    one."""
    return job_spec({"a": {"rows": rows}, "b": {"rows": rows}}, fork=ONE_BRANCH, commit={"parallelism": 1})


def feed() -> JobSpec:
    """Return a job that remembers its files: a set of files as watermark, CSV as output."""
    parts: dict[str, Any] = {
        "job": "feed",
        "source": {"type": "files", "path": "landing/*.csv", "format": "csv", "new_files": "modified"},
        "extract": {"namespace": "test", "table": "feed"},
        "fork": ONE_BRANCH,
        "writer": {"type": "csv"},
        "converters": [{"type": "columns", "columns": {"code": "string", "amount": "decimal(9, 2)"}}],
    }
    return job_spec({}, **parts)


@dataclass(frozen=True)
class World(Project):
    """A project whose store may be taken away."""

    points: FaultPoints = field(default_factory=FaultPoints)

    def open_store(self) -> StateStore:
        return counted_store(super().open_store(), self.points)


def write(kind: str) -> None:
    """Write one of the projects."""
    shutil.rmtree(ROOT, ignore_errors=True)
    (ROOT / "landing").mkdir(parents=True)
    clock = SetClock()
    spec = ProjectSpec(project="older", state=STATES[kind])

    def run(job: JobSpec, *faults: Fault) -> None:
        clock.instant += timedelta(hours=1)
        run_job(World(ROOT, spec, (job,), clock, FaultPoints(*faults)), job, runner=InlineRunner())

    for rows in (4, 8, 12):
        run(numbers(rows))
    job = numbers(12)
    project = Project(ROOT, spec, (job, feed()), clock)
    for urn in ("a", "b"):
        rollback(project, job, urn, 1, who="anna@host", why="snow fell into the file")
    for rows in (6, 10):
        run(numbers(rows))
    (ROOT / "landing" / "one.csv").write_text("code,amount\n007,1.50\n")
    run(feed())
    (ROOT / "landing" / "two.csv").write_text("code,amount\n008,2.25\n")
    run(feed())
    compact(project, feed())
    # The last run was killed before the commit of `b`, the second one.
    with suppress(Halted):
        run(numbers(15), Fault(2, halt_before, "store.commit"))
    target = DATA / f"project_v2_{kind}"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(ROOT / "lake", target / "lake")
    shutil.copytree(ROOT / "landing", target / "landing")
    if kind == "sql":
        with closing(sqlite3.connect(ROOT / "state.db")) as connection:
            (target / "state.sql").write_text("\n".join(connection.iterdump()) + "\n")
        with closing(project.open_store()) as store:
            lines = export_state(store, ["feed"], lambda _: True)
            (target / "export.jsonl").write_text("".join(f"{line}\n" for line in lines))
    else:
        shutil.copytree(ROOT / "state", target / "state")


def nobody(run_id: str) -> LeaseOwner:
    """Return an owner that tells nothing of the machine, for `LeaseOwner.current`."""
    return LeaseOwner(run_id, "node-1", "boot-1", 1, "1")


if __name__ == "__main__":
    LeaseOwner.current = nobody  # type: ignore[method-assign]  # the files are kept
    for each in STATES:
        write(each)
