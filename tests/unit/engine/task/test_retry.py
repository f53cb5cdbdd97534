"""Retries within a run: only transient failures are retried, and every attempt starts from the beginning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.constructs import Chunk
from gobblin_dagster.core.errors import TransientError
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.core.task_state import TaskFailure, TaskState, WorkingState
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.task.retry import delays, run_with_retries
from gobblin_dagster.spec.job import RetrySpec
from gobblin_dagster.testing.rows_source import RowsExtractor, RowsSource
from tests.unit.engine.jobs import by_urn, job_spec, published, run

FLAKY = "tests.unit.engine.task.test_retry:FlakySource"
NO_WAIT = {"backoff_s": 0}
BATCHES_BEFORE_FAULT = 2
_faults_left: dict[str, int] = {}
_opened: list[RowsExtractor] = []


class FlakyExtractor(RowsExtractor):
    """Loses its connection after some batches; refuses to be read again, as an exhausted cursor would."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._is_used = False
        self.is_closed = False
        _opened.append(self)

    def chunks(self) -> Iterator[Chunk]:
        assert not self._is_used, "an attempt took the extractor of the one before"
        self._is_used = True
        for number, chunk in enumerate(super().chunks()):
            if number == BATCHES_BEFORE_FAULT and _faults_left.get("a", 0) > 0:
                _faults_left["a"] -= 1
                raise TransientError(problem="The connection was lost.")
            yield chunk

    def close(self) -> None:
        self.is_closed = True


class FlakySource(RowsSource):
    """A RowsSource whose first attempts lose their connection."""

    def extractor(self, unit: WorkUnit) -> RowsExtractor:
        """Open a work unit."""
        return FlakyExtractor(unit, self._options.datasets[unit.dataset_urn], self._options.batch_rows)


def flaky_job(faults: int, **retries: Any) -> Any:
    _faults_left["a"] = faults
    _opened.clear()
    source = {"type": FLAKY, "datasets": {"a": {"rows": 500}}}
    return job_spec({}, source=source, execution={"retries": NO_WAIT | retries})


def test_retry_after_rows_were_read_neither_loses_nor_doubles_them(tmp_path: Path) -> None:
    job = flaky_job(faults=2)
    dataset = by_urn(run(tmp_path, job))["a"]
    assert dataset.outcome is DatasetOutcome.COMMITTED
    assert published(tmp_path, job, "a") == list(range(500))
    assert (dataset.rows_read, dataset.rows_by_branch["all"]) == (500, 500)


def test_each_attempt_has_an_extractor_of_its_own_and_closes_it(tmp_path: Path) -> None:
    run(tmp_path, flaky_job(faults=2))
    assert len(set(map(id, _opened))) == 3
    assert all(extractor.is_closed for extractor in _opened if isinstance(extractor, FlakyExtractor))


def test_failed_attempts_leave_no_file_behind(tmp_path: Path) -> None:
    job = flaky_job(faults=2)
    run(tmp_path, job)
    assert len(list(tmp_path.glob("lake/**/*.parquet"))) == len(job.fork.branches)


def test_retries_used_up_fail_the_dataset_with_the_last_reason(tmp_path: Path) -> None:
    job = flaky_job(faults=3)
    dataset = by_urn(run(tmp_path, job))["a"]
    assert dataset.outcome is DatasetOutcome.FAILED
    assert [failure.message for failure in dataset.failures] == ["The connection was lost."]
    assert published(tmp_path, job, "a") == []


def test_retries_can_be_turned_off(tmp_path: Path) -> None:
    assert by_urn(run(tmp_path, flaky_job(faults=1, count=0)))["a"].outcome is DatasetOutcome.FAILED
    assert len(_opened) == 1


# -- when, how often, how long -----------------------------------------------------------------------------------------
PASSING = TaskFailure("transient", "The connection was lost.", transient=True)
LASTING = TaskFailure("extract", "Row 5 is none.")


def ended(*failures: TaskFailure) -> TaskState:
    mark = LongWatermark(0)
    state = WorkingState.FAILED if failures else WorkingState.SUCCESSFUL
    return TaskState("wu-1", "a", state, "x", mark, mark, mark, failures=failures, notes=("a new column",))


class Attempts:
    """Ends one way after the other."""

    def __init__(self, *states: TaskState) -> None:
        self._states = list(states)
        self.count = 0
        self.slept: list[float] = []

    def __call__(self) -> TaskState:
        self.count += 1
        return self._states[self.count - 1]

    def run(self, retries: RetrySpec, is_stopped: bool = False) -> TaskState:
        return run_with_retries(self, retries, lambda: is_stopped, self.slept.append)


def test_success_at_once_is_not_repeated() -> None:
    attempts = Attempts(ended())
    assert attempts.run(RetrySpec()).notes == ("a new column",)
    assert (attempts.count, attempts.slept) == (1, [])


@pytest.mark.parametrize("failures", [(LASTING,), (PASSING, LASTING)], ids=["lasting", "one of two lasting"])
def test_failure_that_will_not_pass_is_not_repeated(failures: tuple[TaskFailure, ...]) -> None:
    attempts = Attempts(ended(*failures))
    assert attempts.run(RetrySpec()).failures == failures
    assert attempts.count == 1


def test_mended_failure_stays_visible_in_the_notes() -> None:
    state = Attempts(ended(PASSING), ended()).run(RetrySpec(backoff_s=0))
    assert state.notes == ("attempt 1 failed and was repeated: The connection was lost.", "a new column")
    assert state.failures == ()


def test_stopped_run_begins_no_further_attempt() -> None:
    attempts = Attempts(ended(PASSING))
    assert attempts.run(RetrySpec(), is_stopped=True).failures == (PASSING,)
    assert attempts.count == 1


def test_waits_double_up_to_the_longest_and_are_slept_whole() -> None:
    retries = RetrySpec(count=4, backoff_s=2, max_backoff_s=10, jitter=0)
    assert list(delays(retries)) == [2, 4, 8, 10]
    attempts = Attempts(*[ended(PASSING)] * 5)
    attempts.run(retries)
    assert (attempts.count, sum(attempts.slept)) == (5, 24)


def test_jitter_makes_no_wait_longer_than_the_longest() -> None:
    retries = RetrySpec(count=100, backoff_s=8, max_backoff_s=10, jitter=1)
    waits = list(delays(retries))
    assert max(waits) <= 10
    assert len({round(wait, 1) for wait in waits}) > 10


def test_jitter_keeps_waits_within_its_share_and_apart() -> None:
    waits = [wait for _ in range(50) for wait in delays(RetrySpec(count=1, backoff_s=10, jitter=0.5))]
    assert all(5 <= wait <= 15 for wait in waits)
    assert len(set(waits)) > 10
