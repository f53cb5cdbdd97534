"""Commit policy `partial`: of a work unit whose reading broke off, the part before is published, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.constructs import Chunk
from gobblin_dagster.core.errors import TransientError
from gobblin_dagster.core.run_record import DatasetOutcome, RunStatus
from gobblin_dagster.core.task_state import TaskState, WorkingState
from gobblin_dagster.core.watermark import LongWatermark, Watermark
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.run.job_run import plan_job
from gobblin_dagster.engine.task.context import RunContext, TaskInput
from gobblin_dagster.engine.task.work_unit import run_work_unit
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.storage import LocalStorage
from gobblin_dagster.testing.rows_source import RowsExtractor, RowsSource
from tests.unit.engine.jobs import by_urn, job_spec, project, published, run

PARTIAL = {"policy": "partial"}
BROKEN = {"a": {"rows": 1000, "fail_at": 450}}
_MENDS: list[int] = []
"""Attempts to come that lose their connection at row 450."""


def _state(root: Path, job: JobSpec, low: int = 0, high: int = 1000) -> TaskState:
    unit = WorkUnit("wu-00001", "a", LongWatermark(low), LongWatermark(high), rows=high - low)
    runner = RunContext(job.model_dump_json(), "run-1", str(root), str(root / "lake"))
    return run_work_unit(runner, job, TaskInput(unit, "c" * 32), LocalStorage())


def test_part_before_a_fault_is_published_and_the_rest_planned_alone(tmp_path: Path) -> None:
    job = job_spec(BROKEN, commit=PARTIAL)
    result = run(tmp_path, job)
    dataset = by_urn(result)["a"]
    assert (dataset.outcome, result.exit_code) == (DatasetOutcome.COMMITTED, 4)
    assert published(tmp_path, job, "a") == published(tmp_path, job, "a", "masked") == list(range(400))
    assert (str(dataset.actual_high), str(dataset.expected_high), dataset.rows_read) == ("400", "1000", 400)
    assert "is told to fail" in dataset.failures[0].message

    mended = job_spec({"a": {"rows": 1000}}, commit=PARTIAL)
    units = plan_job(project(tmp_path, mended), mended).datasets[0].work_units
    assert [(str(unit.low), str(unit.expected_high)) for unit in units] == [("400", "1000")]
    assert run(tmp_path, mended).exit_code == 0
    assert published(tmp_path, mended, "a") == list(range(1000))


def test_state_names_the_rest_of_a_part_as_failed(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 1000, "unit_rows": 500, "fail_at": 250}}, commit=PARTIAL)
    assert by_urn(run(tmp_path, job))["a"].failed_ranges == ("[200, 500)",)
    store = project(tmp_path, job).open_store()
    try:
        state = store.load_dataset_states(job.job)["a"]
    finally:
        store.close()
    assert state.failed_ranges == ("[200, 500)",)
    assert str(state.committed) == "[0, 200), [500, 1000)"
    assert str(state.watermark) == "200"


def test_task_state_of_a_part_lies_between_its_bounds_and_counts_add_up(tmp_path: Path) -> None:
    state = _state(tmp_path, job_spec(BROKEN, commit=PARTIAL))
    assert (state.state, state.is_part) == (WorkingState.FAILED, True)
    assert (str(state.low), str(state.actual_high), str(state.expected_high)) == ("0", "400", "1000")
    assert state.rows_read == 400
    assert {branch: counts.rows_written for branch, counts in state.branches.items()} == {"all": 400, "masked": 400}
    assert [file.rows for file in state.files] == [400, 400]


@pytest.mark.parametrize("policy", ["full", "successful"])
def test_other_policies_keep_no_part(tmp_path: Path, policy: str) -> None:
    state = _state(tmp_path, job_spec(BROKEN, commit={"policy": policy}))
    assert (state.is_part, state.files, str(state.actual_high)) == (False, (), "0")
    assert not list((tmp_path / "lake").rglob("*.parquet"))


def test_fault_in_the_first_batch_keeps_nothing(tmp_path: Path) -> None:
    state = _state(tmp_path, job_spec({"a": {"rows": 1000, "fail_at": 50}}, commit=PARTIAL))
    assert (state.state, state.is_part, state.files) == (WorkingState.FAILED, False, ())


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({"converters": [{"type": "cast", "columns": {"value": "int64"}}]}, id="converter"),
        pytest.param(
            {"row_policies": [{"type": "sql", "name": "small", "rule": "id < 150", "on_violation": "fail"}]},
            id="row-policy",
        ),
        pytest.param(
            {"task_policies": [{"type": "row_count_range", "min": 900}]},
            id="task-policy-on-the-part",
        ),
        pytest.param(
            {
                "fork": {
                    "branches": [
                        {"name": "all"},
                        {"name": "bad", "converters": [{"type": "cast", "columns": {"value": "int64"}}]},
                    ]
                }
            },
            id="branch",
        ),
    ],
)
def test_nothing_of_a_unit_is_kept_where_more_than_its_reading_failed(tmp_path: Path, parts: dict[str, Any]) -> None:
    state = _state(tmp_path, job_spec(BROKEN, commit=PARTIAL, **parts))
    assert (state.state, state.is_part, state.files) == (WorkingState.FAILED, False, ())
    assert str(state.actual_high) == "0"
    assert not list((tmp_path / "lake").rglob("*.parquet"))


class LossyExtractor(RowsExtractor):
    """Loses its connection, some attempts long."""

    def chunks(self) -> Iterator[Chunk]:
        for chunk in super().chunks():
            if chunk.batch["id"][0].as_py() == 400 and _MENDS:
                _MENDS.pop()
                raise TransientError(problem="The connection was lost.")
            yield chunk


class LossySource(RowsSource):
    """A RowsSource with connections that break."""

    def extractor(self, unit: WorkUnit) -> RowsExtractor:
        """Open a work unit."""
        return LossyExtractor(unit, self._options.datasets[unit.dataset_urn], self._options.batch_rows)


@pytest.mark.parametrize(("faults", "rows", "exit_code"), [(1, 1000, 0), (2, 1000, 0), (3, 400, 4)])
def test_part_is_published_only_after_the_last_attempt(tmp_path: Path, faults: int, rows: int, exit_code: int) -> None:
    _MENDS[:] = [0] * faults
    source = {"type": f"{__name__}:LossySource", "datasets": {"a": {"rows": 1000}}}
    job = job_spec({}, source=source, commit=PARTIAL, execution={"retries": {"count": 2, "backoff_s": 0}})
    assert run(tmp_path, job).exit_code == exit_code
    assert published(tmp_path, job, "a") == list(range(rows))


class LyingExtractor(RowsExtractor):
    """Says that it read more than there is."""

    def position(self) -> Watermark:
        """Lie."""
        return LongWatermark(5000)


class LyingSource(RowsSource):
    """A RowsSource whose positions are wrong."""

    def extractor(self, unit: WorkUnit) -> RowsExtractor:
        """Open a work unit."""
        return LyingExtractor(unit, self._options.datasets[unit.dataset_urn], self._options.batch_rows)


def test_position_outside_of_the_unit_is_an_error_and_publishes_nothing(tmp_path: Path) -> None:
    source = {"type": f"{__name__}:LyingSource", "datasets": BROKEN}
    state = _state(tmp_path, job_spec({}, source=source, commit=PARTIAL))
    assert (state.is_part, state.files) == (False, ())
    assert "reports position 5000, which lies outside of [0, 1000)" in state.failures[0].message


@pytest.mark.parametrize(("strict", "status"), [(False, RunStatus.PARTIAL), (True, RunStatus.FAILED)])
def test_failed_unit_fails_the_run_only_where_the_job_says_so(tmp_path: Path, strict: bool, status: RunStatus) -> None:
    job = job_spec(BROKEN, commit={**PARTIAL, "failed_units_fail_run": strict})
    result = run(tmp_path, job)
    assert result.status is status
    assert by_urn(result)["a"].outcome is DatasetOutcome.COMMITTED
    assert published(tmp_path, job, "a") == list(range(400))


@pytest.mark.parametrize("policy", ["full", "successful"])
@pytest.mark.parametrize(("strict", "status"), [(False, RunStatus.PARTIAL), (True, RunStatus.FAILED)])
def test_dataset_of_which_nothing_is_published_has_a_failed_unit_too(
    tmp_path: Path, policy: str, strict: bool, status: RunStatus
) -> None:
    job = job_spec(
        {"good": {"rows": 5}, "bad": {"rows": 5, "fail_at": 2}},
        commit={"policy": policy, "failed_units_fail_run": strict},
    )
    result = run(tmp_path, job)
    assert result.status is status
    assert {urn: one.outcome.value for urn, one in by_urn(result).items()} == {"good": "committed", "bad": "failed"}


def test_part_never_replaces_a_snapshot(tmp_path: Path) -> None:
    job = job_spec(BROKEN, commit=PARTIAL, publisher={"type": "replace"})
    assert by_urn(run(tmp_path, job))["a"].outcome is DatasetOutcome.FAILED
    assert not list((tmp_path / "lake/test").rglob("*.parquet"))
