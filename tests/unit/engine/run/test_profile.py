from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.core.task_state import TaskState, WorkingState
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.engine.plan.model import JobPlan
from gobblin_dagster.engine.results import RunResult
from gobblin_dagster.engine.run.profile import RunProfiler


class Clock:
    """Gives the times that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def unit(name: str, seconds: float, extract_s: float, convert_s: float) -> TaskState:
    low, high = LongWatermark(0), LongWatermark(10)
    return TaskState(
        name,
        "a",
        WorkingState.SUCCESSFUL,
        "x",
        low,
        high,
        high,
        rows_read=10,
        bytes_read=1000,
        seconds=seconds,
        extract_s=extract_s,
        convert_s=convert_s,
    )


def ended() -> RunResult:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return RunResult("job", "run", RunStatus.SUCCEEDED, now, now)


def test_phases_add_up_to_the_time_of_the_run() -> None:
    clock = Clock()
    profiler = RunProfiler(clock)
    clock.now = 101.0
    profiler.planned(JobPlan("job", "run", (), packs=(("u1",), ("u2",))))
    clock.now = 107.0
    profiler.task_done(unit("u1", 3.0, 1.5, 0.5), 1, 2)  # began at 104
    clock.now = 108.0
    profiler.task_done(unit("u2", 1.0, 0.5, 0.5), 2, 2)
    profiler.extracted()
    clock.now = 110.0
    profiler.finished(ended())
    clock.now = 110.5
    profile = profiler.profile()
    assert profile.phases(profiler.since_end_s()) == {
        "plan": 1.0,
        "start": 3.0,
        "extract": 2.0,  # half of the 4 s in which work units ran
        "convert": 1.0,
        "write": 1.0,
        "commit": 2.0,
        "report": 0.5,
    }
    assert (profile.rows_per_s, profile.bytes_per_s, profile.skew, profile.work_units) == (5.0, 500.0, 1.5, 2)
    assert json.loads(json.dumps(profile.to_document(0.5)))["skew"] == 1.5


def test_idle_run_has_a_plan_alone() -> None:
    clock = Clock()
    profiler = RunProfiler(clock)
    clock.now = 100.25
    profiler.planned(JobPlan("job", "run", ()))
    profiler.extracted()
    profiler.finished(ended())
    profile = profiler.profile()
    assert sum(profile.phases(profiler.since_end_s()).values()) == profile.plan_s == 0.25
    assert (profile.skew, profile.rows_per_s) == (None, 0.0)


def test_run_that_failed_while_planning_has_no_further_phases() -> None:
    clock = Clock()
    profiler = RunProfiler(clock)
    clock.now = 102.0
    assert profiler.profile().plan_s == 2.0


def test_work_units_in_parallel_partitions_never_give_negative_shares() -> None:
    clock = Clock()
    profiler = RunProfiler(clock)
    profiler.planned(JobPlan("job", "run", (), packs=(("u1",),)))
    clock.now = 102.0
    profiler.task_done(unit("u1", 2.0, 3.0, 1.0), 1, 1)  # summed over partitions
    profiler.extracted()
    profile = profiler.profile()
    assert (profile.extract_s, profile.convert_s) == pytest.approx((1.5, 0.5))
    assert profile.write_s == pytest.approx(0.0)
