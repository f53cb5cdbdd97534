"""Rollback and clean-up under a fault at each of their operations: data and watermark stay in step, readers whole."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gobblin_dagster.engine.maintenance.clean import clean
from gobblin_dagster.engine.maintenance.rollback import rollback
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.snapshots.reader import PublishedSnapshot, load_published, read_published
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.testing.faults import crash_after, crash_before
from tests.faults.strikes import FAULTS, copies_of, strike, strike_each_operation
from tests.unit.engine.jobs import job_spec, project, run

FEW, MANY = 10, 30
SEED = 20151209


def job(rows: int = MANY) -> JobSpec:
    return job_spec({"a": {"rows": rows}}, commit={"keep_snapshots": 1})


def ids(snapshot: PublishedSnapshot, branch: str) -> list[int]:
    return sorted(value for path in snapshot.paths(branch) for value in pq.read_table(path)["id"].to_pylist())


def check_whole(root: Path, *expected: int) -> None:
    """Require that both kinds of readers see the rows below one of the numbers, in every branch, and the watermark
    too."""
    spec = job()
    by_store = load_published(project(root, spec), spec, "a")
    for snapshot in (by_store, read_published(root / "lake", spec.job, "a")):
        rows = snapshot.rows["all"]
        assert rows in expected
        assert ids(snapshot, "all") == ids(snapshot, "masked") == list(range(rows))
    store = project(root, spec).open_store()
    state = store.load_dataset_states(spec.job)["a"]
    store.close()
    assert str(state.watermark) == str(by_store.rows["all"])
    assert state.totals.branch_rows == by_store.rows


@pytest.fixture
def root(scratch: Path) -> Path:
    run(scratch / "root", job_spec({"a": {"rows": FEW}}))
    run(scratch / "root", job())
    return scratch / "root"


def _roll_back(opened: Project) -> None:
    rollback(opened, job(), "a", 1)


def _clean(opened: Project) -> None:
    clean(opened, job())


@pytest.mark.parametrize("fault", FAULTS)
def test_rollback_struck_anywhere_is_made_or_not_and_the_next_run_reads_on(root: Path, fault: str) -> None:
    struck = []
    for number in strike_each_operation(partial(project, root, job()), _roll_back, fault):
        struck.append(number)
        check_whole(root, FEW, MANY)
        run(root, job())
        check_whole(root, MANY)
    assert len(struck) > 5


def leave_a_snapshot_behind(root: Path, rows: int) -> None:
    """Publish a row more, and go back."""
    run(root, job(rows + 1))
    newest = load_published(project(root, job()), job(), "a").snapshot
    rollback(project(root, job()), job(), "a", newest - 1)


def check_cleaned(root: Path) -> None:
    clean(project(root, job()), job())
    left = {str(path) for path in root.glob("lake/test/**/*.parquet")}
    assert left == {file.path for file in load_published(project(root, job()), job(), "a").files}


@pytest.mark.parametrize("fault", FAULTS)
def test_clean_struck_anywhere_deletes_nothing_that_is_held(root: Path, fault: str) -> None:
    struck = []
    leave_a_snapshot_behind(root, MANY)
    work, restore = copies_of(root)
    restore()
    for number in strike_each_operation(partial(project, work, job()), _clean, fault):
        struck.append(number)
        check_whole(work, MANY)
        run(work, job(MANY + 1))
        check_whole(work, MANY + 1)
        check_cleaned(work)
        restore()
    assert len(struck) > 10


def _read_on(root: Path, rows: int, opened: Project) -> None:
    run(root, job(rows))


@pytest.mark.slow
def test_clean_killed_and_the_run_that_recovers_killed_too(root: Path) -> None:
    rng = random.Random(SEED)
    rows = MANY + 1
    leave_a_snapshot_behind(root, MANY)
    work, restore = copies_of(root)
    restore()
    for number in strike_each_operation(partial(project, work, job()), _clean):
        second = rng.randint(1, 45)
        kill = rng.choice([crash_before, crash_after])
        strike(partial(project, work, job()), second, kill, partial(_read_on, work, rows))
        run(work, job(rows))
        print(f"seed {SEED}: killed at {number}, then at {second}")  # noqa: T201  # shown where what follows fails
        check_whole(work, rows)
        check_cleaned(work)
        restore()
