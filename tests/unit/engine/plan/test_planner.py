"""`execution.max_work_units`: a run takes a share of each dataset, the next ones the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.engine.plan.commit_preview import commit_outline
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.run.job_run import plan_job, run_job
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.engine.jobs import by_urn, job_spec, project, published, run

MANY = {"a": {"rows": 50, "unit_rows": 10}, "b": {"rows": 20, "unit_rows": 10}, "c": {"rows": 0}}


@pytest.mark.parametrize(
    ("most", "expected"), [(1, [1, 0]), (2, [1, 1]), (3, [2, 1]), (5, [3, 2]), (7, [5, 2]), (99, [5, 2])]
)
def test_work_units_are_shared_out_evenly_among_datasets(tmp_path: Path, most: int, expected: list[int]) -> None:
    job = job_spec(MANY, execution={"max_work_units": most})
    plan = plan_job(project(tmp_path, job), job)
    assert [len(dataset.work_units) for dataset in plan.datasets] == [*expected, 0]
    assert sum(len(pack) for pack in plan.packs) == sum(expected)


def test_plan_says_what_is_left_and_how_far_it_gets(tmp_path: Path) -> None:
    job = job_spec(MANY, execution={"max_work_units": 2})
    first, second, _ = plan_job(project(tmp_path, job), job).datasets
    assert first.notes == ("4 of 5 work units are left for a later run (`execution.max_work_units`).",)
    assert (str(first.low), str(first.expected_high), str(second.expected_high)) == ("0", "10", "10")


def test_runs_go_on_until_everything_is_published_once(tmp_path: Path) -> None:
    job = job_spec(MANY, execution={"max_work_units": 3})
    rows = [sum(dataset.rows_read for dataset in run(tmp_path, job).datasets) for _ in range(4)]
    assert rows == [30, 30, 10, 0]
    assert published(tmp_path, job, "a") == list(range(50))
    assert published(tmp_path, job, "b") == list(range(20))


def test_dataset_without_a_share_stays_as_it_was(tmp_path: Path) -> None:
    job = job_spec(MANY, execution={"max_work_units": 1})
    result = run(tmp_path, job)
    assert by_urn(result)["a"].outcome is DatasetOutcome.COMMITTED
    assert by_urn(result)["b"].outcome is DatasetOutcome.IDLE
    assert result.exit_code == 0


@pytest.mark.parametrize("first", [{"rows": 1000}, {"rows": 1000, "fail_at": 0}], ids=["growing", "failing"])
def test_no_dataset_waits_for_ever_behind_others(tmp_path: Path, first: dict[str, int]) -> None:
    datasets = {"a": first | {"unit_rows": 10}, "b": {"rows": 20, "unit_rows": 10}, "c": {"rows": 10}}
    job = job_spec(datasets, execution={"max_work_units": 1})
    idle = DatasetOutcome.IDLE
    turns = [next(d.dataset_urn for d in run(tmp_path, job).datasets if d.outcome is not idle) for _ in range(6)]
    assert turns == ["a", "b", "c", "a", "b", "a"]
    assert published(tmp_path, job, "b") == list(range(20))
    assert published(tmp_path, job, "c") == list(range(10))


def test_datasets_take_turns_where_fewer_runs_are_remembered_than_a_turn_takes(tmp_path: Path) -> None:
    turns = []
    for rows in range(10, 80, 10):  # each has news in each run
        job = job_spec({urn: {"rows": rows} for urn in "abcde"}, execution={"max_work_units": 1})
        opened = Project(tmp_path, ProjectSpec(project="tests", history_runs=2), (job,))
        result = run_job(opened, job, runner=InlineRunner())
        turns += [one.dataset_urn for one in result.datasets if one.outcome is not DatasetOutcome.IDLE]
    assert "".join(turns) == "abcdeab"


def test_less_than_one_work_unit_is_refused() -> None:
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        job_spec(MANY, execution={"max_work_units": 0})


def test_plan_says_that_s3_copies_what_other_storages_rename() -> None:
    outlines = {path: commit_outline(job_spec({}, output={"path": path}))[0] for path in ("lake", "s3://bucket/lake")}
    assert "then rename staged files into place: " in outlines["lake"]
    assert "then copy staged files into place (this storage has no rename): " in outlines["s3://bucket/lake"]
