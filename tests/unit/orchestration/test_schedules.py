"""What a schedule asks for at its times, and at those that it missed."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.orchestration import job_schedule, schedules
from gobblin_dagster.orchestration.schedules import AT_ONCE, LATE, SCHEDULED_AT
from gobblin_dagster.testing.conformance.state_store.opening import ManualClock
from tests.unit.orchestration.world import World

CHANGE = datetime(2026, 3, 29, 4, tzinfo=UTC)
"""Six o'clock in Berlin, on the day on which clocks are set forward."""


def ask(world: World, at: datetime, late: timedelta = timedelta(), **how: Any) -> Any:
    """Evaluate the schedule for one of its times, so much later."""
    clock = ManualClock()
    clock.instant = at + late
    project = dataclasses.replace(world.binding.project, clock=clock)
    made = job_schedule(project, world.job, **{"cron": "0 6 * * *", "time_zone": "Europe/Berlin"} | how)
    context = dg.build_schedule_context(instance=world.instance, scheduled_execution_time=at)
    return made.evaluate_tick(context)


def start(world: World, answer: Any, status: dg.DagsterRunStatus = dg.DagsterRunStatus.SUCCESS) -> list[str]:
    """Make the runs that a schedule asks for, as Dagster's daemon does; return their times."""
    times = [request.tags[SCHEDULED_AT] for request in answer.run_requests]
    for time in times:
        tags = {"dagster/schedule_name": "numbers_schedule", SCHEDULED_AT: time}
        world.instance.add_run(dg.DagsterRun(job_name="numbers_job", status=status, tags=tags))
    return times


def test_latest_leaves_missed_times_to_dagster(world: World) -> None:
    answer = ask(world, CHANGE, timedelta(days=3))
    assert [(one.run_key, SCHEDULED_AT in one.tags) for one in answer.run_requests] == [(None, False)]


@pytest.mark.parametrize("word", ["skip", "none"])
def test_skip_leaves_out_what_was_missed_and_says_so(world: World, word: str) -> None:
    assert len(ask(world, CHANGE, LATE, catch_up=word).run_requests) == 1
    missed = ask(world, CHANGE, LATE + timedelta(seconds=1), catch_up=word)
    assert not missed.run_requests
    assert "2026-03-29T04:00:00+0000 was missed" in missed.skip_message


def test_all_asks_for_each_missed_time_once_oldest_first(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as stored:  # a schedule opens the instance by its folder
        world.instance = stored
        _each_missed_time_once(world, monkeypatch)


def _each_missed_time_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    day = timedelta(days=1)
    before = CHANGE + timedelta(hours=1) - 2 * day  # winter time
    assert start(world, ask(world, before, catch_up="all")) == ["2026-03-27T06:00:00+0100"], "nothing was before it"
    assert start(world, ask(world, before, catch_up="all")) == ["2026-03-27T06:00:00+0100"], "the run key is the same"
    left = start(world, ask(world, CHANGE, catch_up="all"), dg.DagsterRunStatus.NOT_STARTED)
    assert left == ["2026-03-28T06:00:00+0100", "2026-03-29T06:00:00+0200"]
    assert [one.run_key for one in ask(world, CHANGE, catch_up="all").run_requests] == left, "a dead daemon's are asked"
    monkeypatch.setattr(schedules, "AT_ONCE", 3)
    asked = [start(world, ask(world, CHANGE + (3 + more) * day, catch_up="all")) for more in range(2)]
    assert [[time[8:10] for time in times] for times in asked] == [["28", "29", "30"], ["31", "01", "02"]]
    assert AT_ONCE > 3


def test_job_file_and_arguments_make_one_schedule(world: World) -> None:
    world.parts["schedule"] = {"cron": "0 6 * * *", "time_zone": "Europe/Berlin", "catch_up": "all"}
    made = job_schedule(world.binding.project, world.job, cron="@hourly")
    assert (made.name, made.cron_schedule, made.execution_timezone) == ("numbers_schedule", "@hourly", "Europe/Berlin")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({}, "Job 'numbers' has no `schedule`"),
        ({"cron": "0 25 * * *"}, "cron: the hour is from 0 to 23"),
        ({"cron": "@daily", "time_zone": "Mars"}, "no time zone has the name 'Mars'"),
        ({"cron": "@daily", "catch_up": "some"}, "catch_up: .*'all', 'latest' or 'skip'"),
    ],
)
def test_arguments_that_make_no_schedule_are_told(world: World, how: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        job_schedule(world.binding.project, world.job, **how)
