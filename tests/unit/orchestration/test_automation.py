"""Automation conditions of assets below a job: they ask for the partitions whose dataset moved, and for no other."""

from __future__ import annotations

import dagster as dg
import pytest

from gobblin_dagster.orchestration.backfill import BACKFILL_TAG
from tests.unit.orchestration.world import World

# Dagster's own tester uses a parameter of Dagster's that is in beta.
pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")

PARTITIONS = dg.DynamicPartitionsDefinition(name="numbers.dataset_urn")
OF_NEW_DATA = dg.AutomationCondition.eager().replace("newly_updated", dg.AutomationCondition.data_version_changed())


@dg.asset(
    deps=[["test", "numbers", "all"]], partitions_def=PARTITIONS, automation_condition=dg.AutomationCondition.eager()
)
def eager() -> None:
    """Is made again for each materialization."""


@dg.asset(deps=[["test", "numbers", "all"]], partitions_def=PARTITIONS, automation_condition=OF_NEW_DATA)
def of_new_data() -> None:
    """Is made again for new data alone."""


class Daemon:
    """Evaluates the conditions as Dagster's daemon does, and makes what they ask for."""

    def __init__(self, world: World) -> None:
        world.downstream = [eager, of_new_data]
        self._world = world
        self._cursor: dg.AutomationConditionCursor | None = None

    def tick(self) -> dict[str, set[str]]:
        """Return the partitions that are asked for, by asset."""
        found = dg.evaluate_automation_conditions(self._world.definitions, self._world.instance, cursor=self._cursor)
        self._cursor = found.cursor
        asked = {
            asset.key: {str(key) for key in found.get_requested_partitions(asset.key)} for asset in (eager, of_new_data)
        }
        for asset_key, keys in asked.items():
            for key in sorted(keys):
                self._world.instance.report_runless_asset_event(dg.AssetMaterialization(asset_key, partition=key))
        return {asset_key.path[-1]: keys for asset_key, keys in asked.items()}


def test_conditions_ask_for_the_partitions_that_moved(world: World) -> None:
    daemon = Daemon(world)
    daemon.tick()
    world.run_all(["a", "c c"])
    assert daemon.tick() == {"eager": {"a", "c%20c"}, "of_new_data": {"a", "c%20c"}}
    assert daemon.tick() == {"eager": set(), "of_new_data": set()}
    world.datasets["a"] |= {"rows": 31}
    world.run_all()
    assert daemon.tick() == {"eager": {"a", "b/1"}, "of_new_data": {"a", "b/1"}}


def test_dataset_without_new_data_in_a_failing_range_run_asks_for_nothing(world: World) -> None:
    daemon = Daemon(world)
    world.run_all()
    daemon.tick()
    daemon.tick()
    world.datasets["c c"] |= {"rows": 25, "fail_at": 22}
    assert not world.run_range("a", "c%20c").success
    assert daemon.tick() == {"eager": set(), "of_new_data": set()}
    # Dagster's page of a backfill needs a materialization of each of its partitions.
    assert world.run_range("a", "b/1", tags={BACKFILL_TAG: "bkfl1"}).success
    assert daemon.tick() == {"eager": {"a", "b/1"}, "of_new_data": set()}
