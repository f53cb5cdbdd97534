"""The worker of a service: a job whose datasets another run holds waits for them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.engine.project import Project
from gobblin_dagster.service import worker as module
from gobblin_dagster.service.executors.messages import JobNews, RunOrder, Shutdown, StopOrder, to_line
from gobblin_dagster.service.model import ExecutionStatus, JobKey
from gobblin_dagster.service.worker import Worker
from gobblin_dagster.spec.load import load_project
from gobblin_dagster.testing.inline_runner import InlineRunner

JOB = {
    "job": "numbers",
    "source": {
        "type": "gobblin_dagster.testing.rows_source:RowsSource",
        "datasets": {"a": {"rows": 5}, "b": {"rows": 5}},
    },
    "extract": {"namespace": "test", "table": "rows"},
    "output": {"path": "lake"},
}


def test_job_taken_over_from_another_machine_waits_for_its_leases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUSY_STEP_S", 0.2)
    (tmp_path / "gobblin.yaml").write_text("project: tests\n")
    project = Project(tmp_path, load_project(tmp_path))
    with closing(project.open_store()) as store:
        elsewhere = replace(LeaseOwner.current("other-run"), host="elsewhere")
        assert store.acquire_leases("numbers", ["a"], elsewhere, timedelta(seconds=1)).granted
    told: list[JobNews] = []
    key = JobKey("g", "n", 1, "numbers", 1, 1)
    ended = Worker(project, InlineRunner(), told.append, 1).serve(_orders(key, told))
    assert ended
    assert [one.status for one in told] == [ExecutionStatus.RUNNING, ExecutionStatus.COMPLETE]
    assert told[-1].processed_count == 10, "both datasets count, in whichever try they were read"


def test_worker_whose_spark_has_ended_ends_in_place_of_failing_its_jobs(tmp_path: Path) -> None:
    (tmp_path / "gobblin.yaml").write_text("project: tests\n")
    (tmp_path / "lake").write_text("no folder, so that the job fails")
    project = Project(tmp_path, load_project(tmp_path))
    told: list[JobNews] = []
    reasons = iter(["", "Spark has ended"])

    def give_up() -> None:
        told.append(JobNews(key, ExecutionStatus.CANCELLED, "the process ended"))
        raise SystemExit

    key = JobKey("g", "n", 1, "numbers", 1, 1)
    Worker(project, InlineRunner(), told.append, 1, lambda: next(reasons), give_up).serve(_orders(key, told))
    assert [(one.status, one.message) for one in told] == [
        (ExecutionStatus.RUNNING, ""),
        (ExecutionStatus.CANCELLED, "the process ended"),
    ]


def _orders(key: JobKey, told: list[JobNews]) -> Iterator[str]:
    yield to_line(RunOrder(key, "run-1", json.dumps(JOB)))
    while not told or not told[-1].status.is_final:
        time.sleep(0.02)
    yield to_line(Shutdown())


@pytest.mark.parametrize("generation", [1, 2], ids=["of two executions", "that moved"])
@pytest.mark.parametrize("is_stopped", [False, True])
def test_job_waits_for_another_copy_of_it_until_it_is_stopped(
    is_stopped: bool, generation: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUSY_STEP_S", 0.01)
    (tmp_path / "gobblin.yaml").write_text("project: tests\nlease_ttl_s: 5\n")
    project = Project(tmp_path, load_project(tmp_path))
    monkeypatch.setattr(module, "time", NoTime())  # leases of a killed worker would have ended
    told: list[JobNews] = []
    key = JobKey("g", "n", 1, "numbers", generation, 1)
    with closing(project.open_store()) as store:
        former = replace(LeaseOwner.current("former-copy"), host="elsewhere")
        held = store.acquire_leases("numbers", ["a"], former, timedelta(hours=1)).granted

        def orders() -> Iterator[str]:
            yield to_line(RunOrder(key, "run-1", json.dumps(JOB)))
            while not any(run.run_id.endswith(".3") for run in store.load_runs("numbers")):
                assert not told or not told[-1].status.is_final, told
                time.sleep(0.01)
            if is_stopped:
                yield to_line(StopOrder(key))
            else:
                store.release_leases("numbers", held.values())
            while not told[-1].status.is_final:
                time.sleep(0.01)
            yield to_line(Shutdown())

        assert Worker(project, InlineRunner(), told.append, 1).serve(orders())
    assert told[-1].status is (ExecutionStatus.CANCELLED if is_stopped else ExecutionStatus.COMPLETE)


class NoTime:
    """Each look at the clock is an hour after the one before it."""

    def __init__(self) -> None:
        self._hours = count()

    def monotonic(self) -> float:
        return 3600.0 * next(self._hours)
