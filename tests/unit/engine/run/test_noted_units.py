"""Work units that only note what a source found out while planning: they move the watermark and nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.core.task_state import WorkingState
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.run.job_run import plan_job, run_job
from gobblin_dagster.engine.task.context import TaskInput
from gobblin_dagster.engine.task.multi_work_unit import unrun
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.engine.jobs import by_urn, job_spec, project, published


def touched_job(root: Path, **parts: Any) -> JobSpec:
    """Return a job that has read two files; one was touched since."""
    source = {"type": "files", "path": "in/{dataset}/*.csv", "compare": "checksum"}
    csv = {"type": "csv", "columns": {"id": "int64", "value": "int64"}}
    job = job_spec({}, source=source | {"format": csv}, **parts)
    folder = root / "in/a"
    folder.mkdir(parents=True)
    for number in (1, 2):
        (folder / f"{number}.csv").write_text(f"id,value\n{number},0\n")
    assert by_urn(run_job(project(root, job), job, runner=InlineRunner()))["a"].rows_read == 2
    os.utime(folder / "1.csv", (1, 1))
    return job


@pytest.mark.parametrize("publisher", ["append", "replace", "replace_partitions", "timestamped"])
def test_note_leaves_published_data_alone_whatever_the_publisher(tmp_path: Path, publisher: str) -> None:
    job = touched_job(tmp_path, publisher={"type": publisher})
    runner = InlineRunner()
    result = by_urn(run_job(project(tmp_path, job), job, runner=runner))["a"]
    assert (result.outcome, result.rows_read, result.snapshot) == (DatasetOutcome.COMMITTED, 0, 1)
    assert not runner.is_started
    assert published(tmp_path, job, "a") == [1, 2]
    assert not plan_job(project(tmp_path, job), job).has_work


@pytest.mark.parametrize(
    ("policy", "scope"), [("full", "dataset"), ("full", "job"), ("successful", "dataset"), ("partial", "dataset")]
)
def test_note_beside_new_files_is_committed_with_them(tmp_path: Path, policy: str, scope: str) -> None:
    job = touched_job(tmp_path, commit={"policy": policy, "scope": scope})
    (tmp_path / "in/a/3.csv").write_text("id,value\n3,0\n")
    plan = plan_job(project(tmp_path, job), job)
    assert [unit.is_noted for unit in plan.datasets[0].work_units] == [False, True]
    result = by_urn(run_job(project(tmp_path, job), job, runner=InlineRunner()))["a"]
    assert (result.outcome, result.rows_read) == (DatasetOutcome.COMMITTED, 1)
    assert published(tmp_path, job, "a") == [1, 2, 3]
    assert not plan_job(project(tmp_path, job), job).has_work


def test_note_that_a_run_has_no_room_for_is_planned_again(tmp_path: Path) -> None:
    job = touched_job(tmp_path, execution={"max_work_units": 1})
    (tmp_path / "in/a/3.csv").write_text("id,value\n3,0\n")
    assert by_urn(run_job(project(tmp_path, job), job, runner=InlineRunner()))["a"].rows_read == 1
    (unit,) = plan_job(project(tmp_path, job), job).datasets[0].work_units
    assert unit.is_noted


@pytest.mark.parametrize(
    ("state", "high"), [(WorkingState.SUCCESSFUL, 6), (WorkingState.CANCELLED, 5)], ids=["noted", "cancelled"]
)
def test_unit_that_no_task_ran_ends_where_its_state_says(state: WorkingState, high: int) -> None:
    unit = WorkUnit("u", "a", LongWatermark(5), LongWatermark(6), is_noted=True)
    assert unit.is_empty
    assert unrun(TaskInput(unit, "c", {}), state, None).actual_high == LongWatermark(high)
