"""Rollback and clean-up under a fault at each of their operations: data and watermark stay in step, readers whole."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.maintenance.clean import clean
from gobblin_dagster.engine.maintenance.rollback import rollback
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.snapshots.reader import PublishedSnapshot, load_published, read_published
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state import StateStore
from gobblin_dagster.testing.faults import (
    CRASHED,
    Action,
    Fault,
    FaultPoints,
    counted_storage,
    counted_store,
    crash_after,
    crash_before,
    fail_with,
    lose_answer,
    run_in_child,
)
from tests.unit.engine.jobs import job_spec, project, run

FEW, MANY = 10, 30
KILLS: dict[str, Action] = {"before": crash_before, "after": crash_after}
ERRORS: dict[str, Action] = {"EIO": fail_with(errno.EIO), "answer lost": lose_answer}
FAULTS = KILLS | ERRORS
SEED = 20151209


def job(rows: int = MANY) -> JobSpec:
    return job_spec({"a": {"rows": rows}}, commit={"keep_snapshots": 1})


@contextmanager
def counted(points: FaultPoints) -> Iterator[None]:
    """Make the stores and storages of all projects fault points."""
    open_store, storage = Project.open_store, Project.storage

    def counted_open(self: Project) -> StateStore:
        return counted_store(open_store(self), points)

    def counted_files(self: Project, job: JobSpec) -> Storage:
        return counted_storage(storage(self, job), points)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Project, "open_store", counted_open)
        patch.setattr(Project, "storage", counted_files)
        yield


def strike(root: Path, number: int, action: Action, work: Callable[[Project], object]) -> bool:
    """Do work in a child and let a fault strike one of its operations; False where there are not so many."""
    points = FaultPoints(Fault(number, action))

    def faulty() -> None:
        with counted(points), suppress(GobblinDagsterError, OSError):
            work(project(root, job()))
        if len(points.trace) >= number:
            os._exit(CRASHED)

    status = run_in_child(faulty)
    assert status in {0, CRASHED}
    return status == CRASHED


def strike_each_operation(root: Path, action: Action, work: Callable[[Project], object]) -> Iterator[int]:
    """Strike operation 1, then 2, and so on; yield each number, and the one after the last."""
    for number in range(1, 500):
        is_struck = strike(root, number, action, work)
        yield number
        if not is_struck:
            return
    raise AssertionError("the work never ended")


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
def root(tmp_path: Path) -> Path:
    run(tmp_path, job_spec({"a": {"rows": FEW}}))
    run(tmp_path, job())
    return tmp_path


@pytest.mark.parametrize("fault", FAULTS)
def test_rollback_struck_anywhere_is_made_or_not_and_the_next_run_reads_on(root: Path, fault: str) -> None:
    struck = []
    for number in strike_each_operation(root, FAULTS[fault], lambda opened: rollback(opened, job(), "a", 1)):
        struck.append(number)
        check_whole(root, FEW, MANY)
        run(root, job())
        check_whole(root, MANY)
    assert len(struck) > 10


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
    rows = MANY
    leave_a_snapshot_behind(root, rows)
    for number in strike_each_operation(root, FAULTS[fault], lambda opened: clean(opened, job())):
        struck.append(number)
        check_whole(root, rows)
        rows += 1
        run(root, job(rows))
        check_whole(root, rows)
        check_cleaned(root)
        leave_a_snapshot_behind(root, rows)
    assert len(struck) > 10


def _read_on(root: Path, rows: int, opened: Project) -> None:
    run(root, job(rows))


@pytest.mark.slow
def test_clean_killed_and_the_run_that_recovers_killed_too(root: Path) -> None:
    rng = random.Random(SEED)
    rows = MANY
    leave_a_snapshot_behind(root, rows)
    for number in strike_each_operation(root, crash_after, lambda opened: clean(opened, job())):
        second, rows = rng.randint(1, 45), rows + 1
        strike(root, second, rng.choice(list(KILLS.values())), partial(_read_on, root, rows))
        run(root, job(rows))
        print(f"seed {SEED}: killed at {number}, then at {second}")  # noqa: T201  # shown where what follows fails
        check_whole(root, rows)
        check_cleaned(root)
        leave_a_snapshot_behind(root, rows)
