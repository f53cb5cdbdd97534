"""Rollback and clean-up killed before and after each of their operations: data and watermark stay in step, readers whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.clean import clean
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.snapshots import PublishedSnapshot, load_published, read_published, rollback
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
    run_in_child,
)
from tests.unit.engine.jobs import job_spec, project, run

FEW, MANY = 10, 30
KILLS = {"before": crash_before, "after": crash_after}


def job(rows: int = MANY) -> JobSpec:
    return job_spec({"a": {"rows": rows}}, commit={"keep_snapshots": 1})


def kill_at_each_operation(root: Path, action: Action, work: Callable[[Project], object]) -> Iterator[int]:
    """Do work in a child that ends at operation 1, then 2, and so on; yield each number, until the work comes to its end."""
    for number in range(1, 500):
        points = FaultPoints(Fault(number, action))

        def faulty(points: FaultPoints = points) -> None:
            open_store, storage = Project.open_store, Project.storage

            def counted_open(self: Project) -> StateStore:
                return counted_store(open_store(self), points)

            def counted_files(self: Project, job: JobSpec) -> Storage:
                return counted_storage(storage(self, job), points)

            # Only in the child, which ends with this function.
            Project.open_store = counted_open  # type: ignore[method-assign]
            Project.storage = counted_files  # type: ignore[method-assign]
            work(project(root, job()))

        status = run_in_child(faulty)
        yield number
        if status != CRASHED:
            assert status == 0
            return
    raise AssertionError("the work never ended")


def ids(snapshot: PublishedSnapshot, branch: str) -> list[int]:
    return sorted(value for path in snapshot.paths(branch) for value in pq.read_table(path)["id"].to_pylist())


def check_whole(root: Path, *expected: int) -> None:
    """Require that both kinds of readers see the rows below one of the numbers, in every branch, and the watermark too."""
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


@pytest.mark.parametrize("kill", KILLS)
def test_rollback_killed_anywhere_is_made_or_not_and_the_next_run_reads_on(root: Path, kill: str) -> None:
    kills = []
    for number in kill_at_each_operation(root, KILLS[kill], lambda opened: rollback(opened, job(), "a", 1)):
        kills.append(number)
        check_whole(root, FEW, MANY)
        run(root, job())
        check_whole(root, MANY)
    assert len(kills) > 10


@pytest.mark.parametrize("kill", KILLS)
def test_clean_killed_anywhere_deletes_nothing_that_is_held(root: Path, kill: str) -> None:
    kills = []
    rows = MANY

    def leave_a_snapshot_behind() -> None:
        run(root, job(rows + 1))
        newest = load_published(project(root, job()), job(), "a").snapshot
        rollback(project(root, job()), job(), "a", newest - 1)

    leave_a_snapshot_behind()
    for number in kill_at_each_operation(root, KILLS[kill], lambda opened: clean(opened, job())):
        kills.append(number)
        check_whole(root, rows)
        rows += 1
        run(root, job(rows))
        check_whole(root, rows)
        clean(project(root, job()), job())
        left = {str(path) for path in root.glob("lake/test/**/*.parquet")}
        assert left == {file.path for file in load_published(project(root, job()), job(), "a").files}
        leave_a_snapshot_behind()
    assert len(kills) > 10
