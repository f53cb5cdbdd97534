"""Work units that Spark reads: partitions run through the task one by one, and are judged and published as one unit."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.engine.results import DatasetResult
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.spec.job import JobSpec
from tests.unit.engine.jobs import job_spec, project, published
from tests.unit.engine.task.frames import SOURCE, FrameRunner, PartitionedSource


def _job(sizes: tuple[int, ...], source: dict[str, Any] | None = None, **parts: Any) -> JobSpec:
    body = {"type": SOURCE, "sizes": list(sizes), **(source or {})}
    return job_spec({}, source=body, execution={"retries": {"backoff_s": 0}}, **parts)


def _run(root: Path, job: JobSpec, stop: threading.Event | None = None) -> DatasetResult:
    PartitionedSource.attempts.clear()
    (dataset,) = run_job(project(root, job), job, runner=FrameRunner(), stop=stop).datasets
    return dataset


def test_partitions_of_a_unit_are_published_together(tmp_path: Path) -> None:
    job = _job((40, 0, 25))
    result = _run(tmp_path, job)
    assert (result.outcome, result.rows_read, result.files) == (DatasetOutcome.COMMITTED, 65, 4)
    assert result.rows_by_branch == {"all": 65, "masked": 65}
    assert published(tmp_path, job, "d") == published(tmp_path, job, "d", "masked") == list(range(65))
    assert _run(tmp_path, job).outcome is DatasetOutcome.IDLE


@pytest.mark.parametrize("policy", ["full", "successful", "partial"])
def test_partition_that_fails_fails_its_unit_and_nothing_is_published(tmp_path: Path, policy: str) -> None:
    rule = {"name": "small", "type": "sql", "rule": "id < 50", "on_violation": "fail"}
    job = _job((40, 25), row_policies=[rule], commit={"policy": policy})
    result = _run(tmp_path, job)
    assert (result.outcome, result.files) == (DatasetOutcome.FAILED, 0)
    assert [failure.code for failure in result.failures] == ["data-quality"]
    assert "a Spark partition of d row 11" in result.failures[0].message
    assert published(tmp_path, job, "d") == []
    assert not list((tmp_path / "lake").rglob("*.parquet"))


@pytest.mark.parametrize(("announced", "outcome"), [(65, DatasetOutcome.COMMITTED), (66, DatasetOutcome.FAILED)])
def test_row_count_is_judged_over_all_partitions(tmp_path: Path, announced: int, outcome: DatasetOutcome) -> None:
    job = _job((40, 25), {"announced": announced}, task_policies=[{"type": "row_count"}])
    result = _run(tmp_path, job)
    assert result.outcome is outcome
    assert len(result.policies) == 2  # one per branch, not per partition
    if outcome is DatasetOutcome.FAILED:
        assert "expected 66 rows from the source; got 65" in result.failures[0].message


def test_range_of_rows_is_judged_over_all_partitions(tmp_path: Path) -> None:
    policies = [{"type": "row_count_range", "min": 60, "max": 70}]
    assert _run(tmp_path, _job((40, 25), task_policies=policies)).outcome is DatasetOutcome.COMMITTED


def test_policy_that_sees_rows_is_judged_in_each_partition(tmp_path: Path) -> None:
    policy = {"type": "sql_aggregate", "aggregates": {"highest": "max(id)"}, "rule": "highest < 40"}
    result = _run(tmp_path, _job((40, 25), task_policies=[policy]))
    assert result.outcome is DatasetOutcome.FAILED
    assert sorted(outcome.result for outcome in result.policies) == ["failed", "failed", "passed", "passed"]


def test_policies_of_a_branch_replace_those_of_the_job(tmp_path: Path) -> None:
    branches = [
        {"name": "all"},
        {"name": "free", "task_policies": []},
        {"name": "strict", "task_policies": [{"type": "row_count_range", "min": 1000, "enforce": False}]},
    ]
    result = _run(tmp_path, _job((5,), fork={"branches": branches}, task_policies=[{"type": "row_count"}]))
    assert result.outcome is DatasetOutcome.COMMITTED
    assert [(one.branch, one.policy, str(one.result)) for one in result.policies] == [
        ("all", "row_count", "passed"),
        ("strict", "row_count_range", "failed"),
    ]


def test_partitions_that_spark_runs_twice_are_published_once(tmp_path: Path) -> None:
    job = _job((40, 25), {"runs": 2})
    assert _run(tmp_path, job).files == 4
    assert published(tmp_path, job, "d") == list(range(65))


def test_unit_without_rows_moves_the_watermark_and_keeps_the_schema(tmp_path: Path) -> None:
    job = _job((), {"announced": 0}, task_policies=[{"type": "row_count"}])
    result = _run(tmp_path, job)
    assert (result.outcome, result.files, str(result.actual_high)) == (DatasetOutcome.COMMITTED, 0, "1")
    store = project(tmp_path, job).open_store()
    try:
        schemas = store.load_dataset_states(job.job)["d"].schemas
    finally:
        store.close()
    assert schemas["all"] == "id: int64\nvalue: string"  # nullable, whatever Spark says of this run


def test_quarantined_rows_of_all_partitions_are_kept(tmp_path: Path) -> None:
    rule = {"name": "even", "type": "sql", "rule": "id % 2 = 0"}
    job = _job((10, 10), row_policies=[rule])
    result = _run(tmp_path, job)
    assert (result.rows_quarantined, dict(result.rejected)) == (10, {"even": 10})
    assert published(tmp_path, job, "d") == list(range(0, 20, 2))


def test_unit_that_spark_lost_is_tried_again(tmp_path: Path) -> None:
    job = _job((10,), {"lose": 2})
    result = _run(tmp_path, job)
    assert result.outcome is DatasetOutcome.COMMITTED
    assert [note.partition(":")[0] for note in result.notes] == [f"attempt {n} failed and was repeated" for n in (1, 2)]
    assert _run(tmp_path / "again", _job((10,), {"lose": 3})).failures[0].transient


def test_stop_cancels_units_that_have_not_begun(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    job = _job((10,))
    assert _run(tmp_path, job, stop).outcome is DatasetOutcome.CANCELLED
    assert _run(tmp_path, job).outcome is DatasetOutcome.COMMITTED


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(sizes=st.lists(st.integers(0, 30), max_size=6))
def test_however_rows_are_spread_over_partitions_the_counts_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    rule = {"name": "even", "type": "sql", "rule": "id % 2 = 0"}
    spread, whole = _job(tuple(sizes), row_policies=[rule]), _job((sum(sizes),), row_policies=[rule])
    one, two = tmp_path_factory.mktemp("spread"), tmp_path_factory.mktemp("whole")
    first, second = _run(one, spread), _run(two, whole)
    assert published(one, spread, "d") == published(two, whole, "d")
    for name in ("rows_read", "rows_filtered", "rows_by_branch", "rejected", "rows_quarantined", "rows_untaken"):
        assert getattr(first, name) == getattr(second, name), name
