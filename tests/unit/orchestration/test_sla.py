"""Late datasets: which are, and that each is told once."""

from __future__ import annotations

import dataclasses
from datetime import UTC, date, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from pydantic import ValidationError

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.core.watermark import DateWatermark, LongWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.orchestration import Alert, sla_sensor
from gobblin_dagster.orchestration import metadata as md
from gobblin_dagster.orchestration import sla as sla_module
from gobblin_dagster.orchestration.sla import late_datasets
from gobblin_dagster.spec.asset import SlaSpec
from gobblin_dagster.testing.conformance.state_store.opening import ManualClock
from tests.unit.engine.jobs import job_spec, project, run
from tests.unit.orchestration.world import World

NOON = datetime(2026, 1, 3, 12, tzinfo=UTC)


def state(urn: str, hours: float, reached: date | None = None) -> DatasetState:
    """Return the state of a dataset that was committed so many hours before noon."""
    committed = (
        CommittedRanges(LongWatermark, {"": ((0, 10),)})
        if reached is None
        else CommittedRanges(DateWatermark, {"": ((date(2026, 1, 1), reached),)})
    )
    return DatasetState("numbers", urn, 1, committed, 1, "r", NOON - timedelta(hours=hours))


def test_dataset_is_late_if_its_last_commit_or_its_watermark_is_too_old() -> None:
    states = [state("b", 27), state("a", 26), state("behind", 1, date(2026, 1, 2)), state("ok", 1, date(2026, 1, 3))]
    assert late_datasets(states, SlaSpec(max_age="26h", max_lag="1d"), NOON) == {
        "b": "the last commit is 1d 3h old, expected at most 26h",
        "behind": "the watermark 2026-01-02 is 1d 12h behind, expected at most 1d",
    }
    both = late_datasets([state("both", 30, date(2026, 1, 2))], SlaSpec(max_age="90m", max_lag="5m"), NOON)
    assert both["both"].count("expected at most") == 2


@pytest.mark.parametrize("sla", [{}, {"max_age": "1 day"}, {"max_age": "0h"}])
def test_limit_without_a_meaning_is_refused(sla: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        job_spec({}, asset={"sla": sla})


class Watched:
    """A project with a limit of one hour, whose sensor is evaluated at times of the test's choice."""

    def __init__(self, world: World) -> None:
        world.parts["asset"] = {"sla": {"max_age": "1h"}}
        self.world, self.told = world, list[Alert]()
        self.cursor: str | None = None
        self.clock = ManualClock()
        self.clock.instant = datetime.now(UTC)

    def tick(self, tell: Any = None) -> Any:
        made = dataclasses.replace(self.world.binding.project, clock=self.clock)
        sensor = sla_sensor(made, tell or self.told.append)
        with dg.build_sensor_context(instance=self.world.instance, cursor=self.cursor) as context:
            data = sensor.evaluate_tick(context)
        self.cursor = data.cursor
        return data


def test_each_late_dataset_is_told_once_until_it_is_in_time_again(world: World) -> None:
    watched = Watched(world)
    world.run_elsewhere()
    assert watched.tick().skip_message == "No dataset is late."
    watched.clock.advance(timedelta(hours=2, minutes=5))
    data = watched.tick()
    assert data.skip_message == "numbers: late datasets: 3 of 3."
    assert {(event.asset_key.path[-1], event.partition) for event in data.asset_events} == {
        (branch, key) for branch in ("all", "masked") for key in ("a", "b/1", "c%20c")
    }
    assert "old, expected at most 1h" in data.asset_events[0].metadata[md.LATE].value
    (alert,) = watched.told
    assert (alert.kind, alert.project, alert.job) == ("late", "tests", "numbers")
    assert list(alert.datasets) == ["a", "b/1", "c c"]
    assert alert.text.startswith("numbers: late datasets: 3\n- 'a': the last commit is 2h")
    assert not watched.tick().asset_events
    assert len(watched.told) == 1
    watched.clock.advance(timedelta(hours=-2))
    watched.tick()
    assert [(one.kind, list(one.datasets)) for one in watched.told[1:]] == [("in_time", ["a", "b/1", "c c"])]


def test_alert_that_nobody_took_is_told_by_the_next_tick(world: World) -> None:
    watched = Watched(world)
    world.run_elsewhere()
    watched.clock.advance(timedelta(hours=2, minutes=5))

    def away(alert: Alert) -> None:
        raise ConnectionError(alert.text)

    with pytest.raises(ConnectionError, match="late datasets: 3"):
        watched.tick(away)
    watched.tick()
    assert [one.kind for one in watched.told] == ["late"]


def test_one_tick_tells_a_bounded_number_of_datasets(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sla_module, "AT_ONCE", 2)
    watched = Watched(world)
    world.run_elsewhere()
    watched.clock.advance(timedelta(hours=2, minutes=5))
    for _ in range(3):
        watched.tick()
    assert [list(one.datasets) for one in watched.told] == [["a", "b/1"], ["c c"]]


def test_one_tick_tells_a_bounded_number_of_datasets_of_all_jobs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sla_module, "AT_ONCE", 4)
    watched, told = Watched(world), list[Alert]()
    jobs = [world.job.model_copy(update={"job": name}) for name in ("first", "second")]
    both = dataclasses.replace(project(world.root, *jobs), clock=watched.clock)
    for job in jobs:
        run(world.root, job)
    watched.clock.advance(timedelta(hours=2, minutes=5))
    sensor, cursor = sla_sensor(both, told.append), None
    for _ in range(2):
        with dg.build_sensor_context(instance=world.instance, cursor=cursor) as context:
            cursor = sensor.evaluate_tick(context).cursor
    assert [(one.job, len(one.datasets)) for one in told] == [("first", 3), ("second", 1), ("second", 2)]


@pytest.mark.parametrize("cursor", ["{", "[1]", '{"numbers": 5}'])
def test_cursor_that_is_none_lets_the_sensor_tell_all(world: World, cursor: str) -> None:
    watched = Watched(world)
    watched.cursor = cursor
    watched.tick()
    assert watched.cursor == "{}"


def test_alert_that_was_taken_is_not_told_again_if_another_one_was_not(world: World) -> None:
    jobs = [
        job_spec(
            {"a": {"rows": 1}},
            job=name,
            extract={"namespace": "test", "table": name},
            asset={"sla": {"max_age": "1h"}},
        )
        for name in ("first", "second")
    ]
    for job in jobs:
        run(world.root, job)
    clock = ManualClock()
    clock.instant = datetime.now(UTC) + timedelta(hours=2)
    made = dataclasses.replace(project(world.root, *jobs), clock=clock)
    told: list[str] = []

    def tell(alert: Alert) -> None:
        if alert.job == "second" and not told.count("second") and len(told) == 1:
            told.append("refused")
            raise ConnectionError
        told.append(alert.job)

    cursor = None
    for _ in range(3):
        with dg.build_sensor_context(instance=world.instance, cursor=cursor) as context:
            data = sla_sensor(made, tell).evaluate_tick(context)
        cursor = data.cursor
    assert told == ["first", "refused", "second"]


def test_alerts_for_which_a_tick_has_no_time_are_told_by_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(world)
    world.run_elsewhere()
    watched.clock.advance(timedelta(hours=2, minutes=5))
    with monkeypatch.context() as patched:
        patched.setattr(sla_module, "TELL_S", -1)
        assert not watched.tick().asset_events
    assert watched.told == []
    watched.tick()
    assert [len(one.datasets) for one in watched.told] == [3]


def test_dataset_whose_state_is_damaged_is_not_told_to_be_in_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(world)
    world.run_elsewhere()
    watched.clock.advance(timedelta(hours=2, minutes=5))
    watched.tick()
    store = world.binding.project.open_store()
    kind: Any = type(store)
    store.close()
    whole = kind.load_readable_states

    def damaged(*asked: Any) -> Any:
        states, _ = whole(*asked)
        del states["a"]
        return states, {"a": CorruptRecordError(what="The state", problem="damaged")}

    with monkeypatch.context() as patched:
        patched.setattr(kind, "load_readable_states", damaged)
        watched.tick()
    watched.tick()
    assert [one.kind for one in watched.told] == ["late"]
