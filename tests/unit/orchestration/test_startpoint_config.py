"""The run config `startpoint:`: set for the chosen datasets before the run plans, or the run fails."""

from __future__ import annotations

from typing import Any

import dagster as dg

from gobblin_dagster.core.selection import Selection
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.orchestration.ops import run_config
from gobblin_dagster.orchestration.startpoint_config import set_startpoints
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.engine.jobs import project, published
from tests.unit.engine.plan.test_startpoints import store_of, waiting
from tests.unit.orchestration.world import World

WISH = {"position": "28", "reason": "snow", "on_rewind": "append"}


def run_from(world: World, startpoint: dict[str, Any], urns: list[str] | None) -> dg.ExecuteInProcessResult:
    config: Any = run_config("numbers", urns)
    config["ops"]["numbers"]["ops"]["extract"]["config"]["startpoint"] = startpoint
    job = world.definitions.resolve_job_def("numbers_job")
    return job.execute_in_process(instance=world.instance, run_config=config, raise_on_error=False)


def test_run_begins_there_for_the_chosen_datasets_alone(world: World) -> None:
    world.run_all()
    assert run_from(world, WISH, ["a"]).success
    assert published(world.root, world.job, "a") == sorted([*range(30), 28, 29])
    assert published(world.root, world.job, "c c") == list(range(20))
    told = world.events("a")[0]["gobblin/startpoint"]
    assert "begins at 28, by the startpoint 28 of" in told
    assert "by Dagster: snow" in told
    assert "gobblin/startpoint" not in world.events("c c")[0]
    assert waiting(world.root, world.job) == {}


def test_position_that_is_none_fails_the_run_and_stores_nothing(world: World) -> None:
    world.run_all()
    result = run_from(world, {**WISH, "on_rewind": "refuse"}, ["a"])
    assert "would see the rows of [28, 30) twice" in world.error(result)
    assert waiting(world.root, world.job) == {}


def test_startpoint_without_chosen_datasets_fails_the_run(world: World) -> None:
    assert "needs chosen partitions" in world.error(run_from(world, WISH, None))


def test_runs_that_repeat_a_run_set_what_it_did_not_come_to_and_nothing_twice(world: World) -> None:
    """A run that failed before it set the startpoint was repeated without it, at the watermark."""
    world.run_all()
    config = {**WISH, "partition": "", "expires_days": 7}
    with store_of(world.root, world.job) as store:
        opened = JobContext.of(project(world.root, world.job), world.job, store, Selection(urns=frozenset("a")))

        def waits(run_id: str) -> list[str]:
            set_startpoints(opened, ["a"], config, InlineRunner(), run_id=run_id)
            return [one.id for one in store.list_startpoints("numbers")]

        (first,) = waits("root")
        assert waits("root") == [first]
        (saved,) = store.list_startpoints("numbers")
        assert store.delete_startpoint(saved, "anna@host")
        assert waits("root") == []
        assert len(waits("another")) == 1
