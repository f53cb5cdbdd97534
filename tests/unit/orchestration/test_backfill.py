"""A backfill of scattered partitions: one run works for all, the others leave their datasets to it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.orchestration import metadata as md
from gobblin_dagster.orchestration.backfill import BACKFILL_TAG
from gobblin_dagster.orchestration.partitions import PARTITION_TAG
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.orchestration.world import World

BACKFILL = {BACKFILL_TAG: "bkfl1"}


@pytest.fixture
def scattered(world: World) -> World:
    """Five partitions, of which a backfill asks for the first, third and fifth."""
    world.datasets.update({"d": {"rows": 7}, "e": {"rows": 9}})
    world.add_partitions("a", "b/1", "c c", "d", "e")
    return world


def sibling(world: World, key: str, backfill: str = "bkfl1", select: tuple[str, ...] = ("all", "masked")) -> str:
    """Make a run of the backfill that has not begun to work, as Dagster's daemon does; return its id."""
    job = world.definitions.resolve_implicit_global_asset_job_def()
    chosen = frozenset(world.binding.keys[branch] for branch in select)
    made = world.instance.create_run_for_job(
        job.get_subset(asset_selection=chosen),
        asset_selection=chosen,
        tags={BACKFILL_TAG: backfill, PARTITION_TAG: key},
        status=dg.DagsterRunStatus.STARTING,
    )
    return made.run_id


def end(world: World, *run_ids: str) -> None:
    for run_id in run_ids:
        run = world.instance.get_run_by_id(run_id)
        assert run is not None
        world.instance.report_run_canceled(run)


def test_first_run_of_a_backfill_works_for_all(scattered: World) -> None:
    sibling(scattered, "c%20c")
    sibling(scattered, "e")
    result = scattered.run_range("a", tags=BACKFILL)
    assert result.success
    assert scattered.status("all") == scattered.status("masked") == ({"a", "c%20c", "e"}, set())
    assert {scattered.events(urn)[0][md.RUN_ID] for urn in ("a", "c c", "e")} == {result.run_id}
    assert [one for one in scattered.instance.all_logs(result.run_id) if "all: 2 more here" in one.user_message]


class Unused(InlineRunner):
    """Fails a run that would start Spark."""

    def start_early(self) -> None:
        raise AssertionError("Spark would be started")

    def run(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("Spark would be started")


def test_runs_that_come_later_find_nothing_left_and_say_so_to_the_backfill_without_spark(scattered: World) -> None:
    other = sibling(scattered, "c%20c")
    first = scattered.run_range("a", tags=BACKFILL)
    end(scattered, other)
    scattered.runner = Unused
    later = scattered.run_range("c%20c", tags=BACKFILL)
    assert later.success
    newest, older = scattered.events("c c")
    assert (newest[md.MOVED], older[md.MOVED]) == (False, True)
    assert newest[md.RUN_ID] == older[md.RUN_ID] == first.run_id


def test_run_leaves_its_dataset_at_once_to_the_run_that_holds_it(scattered: World) -> None:
    other = sibling(scattered, "c%20c")
    store = scattered.binding.project.open_store()
    store.acquire_leases("numbers", ["a", "c c"], LeaseOwner.current(other), timedelta(minutes=5))
    scattered.runner = Unused
    # Without the backfill, the run would wait a minute for the dataset.
    assert scattered.run_range("a", tags=BACKFILL).success
    assert scattered.status() == (set(), set())
    store.close()


def test_dataset_that_failed_in_one_run_of_a_backfill_is_not_tried_by_the_others(scattered: World) -> None:
    scattered.datasets["c c"]["fail_at"] = 3
    other = sibling(scattered, "c%20c")
    first = scattered.run_range("a", tags=BACKFILL)
    end(scattered, other)
    assert scattered.status() == ({"a"}, {"c%20c"})
    del scattered.datasets["c c"]["fail_at"]
    later = scattered.run_range("c%20c", tags=BACKFILL)
    assert not later.success, "Dagster shows a backfill as done if all of its runs succeed"
    assert f"failed in run {first.run_id} of the same backfill" in scattered.error(later)
    assert scattered.status() == ({"a"}, {"c%20c"})
    assert scattered.run_range("c%20c", tags={BACKFILL_TAG: "bkfl2"}).success


def test_runs_of_other_backfills_and_assets_work_for_themselves(scattered: World) -> None:
    sibling(scattered, "c%20c", backfill="bkfl2")
    sibling(scattered, "e", select=("all",))
    scattered.run_range("a", tags=BACKFILL)
    assert scattered.status() == ({"a"}, set())


def test_backfill_of_partitions_without_new_data_is_done(scattered: World) -> None:
    """Dagster counts partitions that no run of the backfill materializes as failed."""
    scattered.run_all()
    assert scattered.run_range("a", "c%20c", tags=BACKFILL).success
    assert [event[md.MOVED] for event in scattered.events("a")] == [False, True]
    assert scattered.run_range("d").success
    assert len(scattered.events("d")) == 1


def test_partition_that_was_deleted_fails_its_own_run_alone(scattered: World) -> None:
    sibling(scattered, "c%20c")
    scattered.instance.delete_dynamic_partition("numbers.dataset_urn", "c%20c")
    assert scattered.run_range("a", tags=BACKFILL).success
    assert scattered.status() == ({"a"}, set())
