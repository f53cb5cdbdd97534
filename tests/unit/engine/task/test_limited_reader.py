"""`execution.limit`: a work unit ends early, the next runs read the rest; a rate makes it wait."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.run_record import DatasetOutcome, RunStatus
from gobblin_dagster.core.task_state import TaskState, WorkingState
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.run.job_run import plan_job, run_job
from gobblin_dagster.engine.task.context import RunContext, TaskInput
from gobblin_dagster.engine.task.limited_reader import LimitedReader, StoppedError
from gobblin_dagster.engine.task.work_unit import run_work_unit
from gobblin_dagster.spec.job import LimitSpec
from gobblin_dagster.storage import LocalStorage
from gobblin_dagster.testing.inline_runner import InlineRunner
from gobblin_dagster.testing.rows_source import RowsDataset, RowsExtractor
from tests.unit.engine.jobs import by_urn, job_spec, project, published, run


class Clock:
    """A clock that waiting moves, and nothing else."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        assert 0 < seconds <= 0.5, "a wait must look often whether it should stop, and never be no wait"
        self.now += seconds


def _reading(limit: dict[str, Any], clock: Clock, stop: threading.Event | None = None) -> LimitedReader:
    job = job_spec({}, execution={"limit": limit})
    unit = WorkUnit("u", "a", LongWatermark(0), LongWatermark(1000))
    extractor = RowsExtractor(unit, RowsDataset(rows=1000), 100)
    return LimitedReader(unit, extractor, job, (stop or threading.Event()).is_set, clock, clock.sleep)


@pytest.mark.parametrize(
    ("limit", "rows"),
    [
        ({"rows": 1}, 100),
        ({"rows": 100}, 100),
        ({"rows": 101}, 200),
        ({"rows": 5000}, 1000),
        ({"bytes": 1700}, 300),
        ({"seconds": 2.5}, 300),
        ({"rows": 700, "bytes": 1}, 100),
        ({}, 1000),
    ],
)
def test_limit_ends_a_unit_with_the_batch_that_reaches_it(limit: dict[str, Any], rows: int) -> None:
    clock = Clock()
    reading = _reading(limit, clock)
    for _ in reading.chunks():
        clock.now += 1.0
    assert (reading.rows, str(reading.high), reading.is_cut) == (rows, str(rows), rows < 1000)


def test_run_shares_its_rate_among_the_packs_that_run_at_once(tmp_path: Path) -> None:
    class FourCores(InlineRunner):
        cores: int | None = 4

        def run(self, runner: RunContext, packs: Any, on_result: Any, stop: threading.Event) -> list[TaskState]:
            limits.append((len(packs), runner.spec.execution.limit))
            return super().run(runner, packs, on_result, stop)

    limits: list[tuple[int, LimitSpec]] = []
    for datasets, limit in (("ab", {}), ("abcde", {"rows_per_second": 10, "rows": 7})):
        execution = {"rate": {"rows_per_second": 1e7, "bytes_per_second": 8e7}, "limit": limit, "packs": 8}
        job = job_spec({name: {"rows": 5} for name in datasets}, execution=execution, job=f"job_{datasets}")
        assert run_job(project(tmp_path, job), job, runner=FourCores()).status is RunStatus.SUCCEEDED
    assert limits == [
        (2, LimitSpec(rows_per_second=5e6, bytes_per_second=4e7)),
        (5, LimitSpec(rows=7, rows_per_second=10, bytes_per_second=2e7)),
    ]


def test_rate_of_bytes_waits_between_batches() -> None:
    clock = Clock()
    reading = _reading({"bytes_per_second": 100, "rows_per_second": 1e9}, clock)
    rows = sum(chunk.batch.num_rows for chunk in reading.chunks())
    assert rows == 1000
    assert clock.now == pytest.approx(reading._extractor.bytes_read / 100)


def test_rate_waits_between_batches() -> None:
    clock = Clock()
    rows = sum(chunk.batch.num_rows for chunk in _reading({"rows_per_second": 200}, clock).chunks())
    assert rows == 1000
    assert clock.now == pytest.approx(1000 / 200, rel=0.01)


def test_wait_for_a_rate_ends_when_the_run_is_stopped() -> None:
    clock, stop = Clock(), threading.Event()
    chunks = _reading({"rows_per_second": 0.001}, clock, stop).chunks()
    next(chunks)
    stop.set()
    with pytest.raises(StoppedError):
        next(chunks)
    assert clock.now == 0.0


def test_stopped_unit_is_cancelled_and_leaves_nothing(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 1000}}, execution={"limit": {"rows_per_second": 0.001}})
    unit = WorkUnit("wu-00001", "a", LongWatermark(0), LongWatermark(1000))
    runner = RunContext(job.model_dump_json(), "run-1", str(tmp_path), str(tmp_path / "lake"))
    state = run_work_unit(runner, job, TaskInput(unit, "c" * 32), LocalStorage(), is_stopped=lambda: True)
    assert (state.state, state.files, state.failures) == (WorkingState.CANCELLED, (), ())
    assert state.actual_high == unit.low
    assert not list((tmp_path / "lake").rglob("*.parquet"))


@pytest.mark.parametrize("policy", ["full", "successful", "partial"])
def test_runs_go_on_until_everything_is_published_once(tmp_path: Path, policy: str) -> None:
    job = job_spec(
        {"a": {"rows": 1000, "unit_rows": 500}, "b": {"rows": 90}},
        commit={"policy": policy},
        execution={"limit": {"rows": 150}},
    )
    seen = []
    for _ in range(4):
        result = run(tmp_path, job)
        assert result.exit_code == 0
        seen.append(sum(dataset.rows_read for dataset in result.datasets))
    assert seen == [490, 400, 200, 0]
    assert published(tmp_path, job, "a") == list(range(1000))
    assert published(tmp_path, job, "b") == list(range(90))


def test_watermark_is_the_end_of_what_was_read(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 1000, "unit_rows": 500}}, execution={"limit": {"rows": 150}})
    dataset = by_urn(run(tmp_path, job))["a"]
    assert (dataset.outcome, str(dataset.actual_high)) == (DatasetOutcome.COMMITTED, "200")
    assert dataset.notes == ("2 work unit(s) ended at their limit; the next run goes on from there.",)
    units = plan_job(project(tmp_path, job), job).datasets[0].work_units
    assert [str(unit.interval) for unit in units] == ["[200, 500)", "[700, 1000)"]
    store = project(tmp_path, job).open_store()
    try:
        assert store.load_dataset_states(job.job)["a"].failed_ranges == ()
    finally:
        store.close()


def test_row_counts_that_a_source_announced_do_not_judge_a_part(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 1000}}, execution={"limit": {"rows": 150}}, task_policies=[{"type": "row_count"}])
    assert by_urn(run(tmp_path, job))["a"].outcome is DatasetOutcome.COMMITTED
    assert published(tmp_path, job, "a") == list(range(200))


def test_source_that_tells_no_positions_is_refused_before_it_reads(tmp_path: Path) -> None:
    source = {"type": "spark", "format": "csv", "path": "in"}
    job = job_spec({}, source=source, execution={"limit": {"rows": 150}})
    with pytest.raises(UsageError, match="source 'spark' cannot report its position"):
        plan_job(project(tmp_path, job), job)


def test_snapshots_are_never_cut() -> None:
    extract = {"namespace": "n", "table": "t", "type": "snapshot_only"}
    with pytest.raises(ValidationError, match="a part of a snapshot would replace the"):
        job_spec({}, extract=extract, execution={"limit": {"rows": 1}})
    job_spec({}, extract=extract, execution={"limit": {"rows_per_second": 1}})


def test_replacing_publisher_never_takes_a_part_for_the_whole(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 1000}}, execution={"limit": {"rows": 150}}, publisher={"type": "replace"})
    assert by_urn(run(tmp_path, job))["a"].outcome is DatasetOutcome.FAILED
