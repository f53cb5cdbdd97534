"""What Dagster's internals do for us, one test each: a release of Dagster that changes one fails here first.

No `from __future__ import annotations` here: Dagster reads the annotation of `context`.
"""

import dagster as dg
import pytest

from gobblin_dagster.orchestration import _internal
from tests.unit.orchestration.world import World

KEY = dg.AssetKey(["test", "numbers", "all"])


def materialize(instance: dg.DagsterInstance, *partitions: str) -> None:
    for partition in partitions:
        instance.report_runless_asset_event(dg.AssetMaterialization(KEY, partition=partition))


def test_planned_partition_of_a_failed_run_is_shown_as_failed(world: World) -> None:
    @dg.job
    def empty() -> None: ...

    world.add_partitions("a", "b")
    materialize(world.instance, "a", "b")
    run = world.instance.create_run_for_job(empty)
    _internal.log_planned(world.instance, run, "extract", KEY, "b")
    world.instance.report_run_failed(run)
    assert world.status() == ({"a"}, {"b"})


def test_partition_that_no_run_plans_any_more_is_shown_as_before(world: World) -> None:
    @dg.job
    def empty() -> None: ...

    world.add_partitions("a", "b", "c")
    materialize(world.instance, "a")
    run = world.instance.create_run_for_job(empty)
    for partition in ("a", "b", "c"):
        _internal.log_planned(world.instance, run, "extract", KEY, partition)
    for partition in ("a", "b"):
        _internal.log_unplanned(world.instance, run, "extract", KEY, partition)
    world.instance.report_run_failed(run)
    assert world.status() == ({"a"}, {"c"})


def test_materialized_keys_are_those_with_a_materialization(instance: dg.DagsterInstance) -> None:
    materialize(instance, "a", "b", "a")
    assert _internal.materialized_keys(instance, KEY) == {"a", "b"}
    assert _internal.materialized_keys(instance, dg.AssetKey("other")) == frozenset()


def test_targets_are_the_newest_materializations(instance: dg.DagsterInstance) -> None:
    materialize(instance, "b", "a", "a", "a")
    records = instance.fetch_materializations(KEY, limit=10).records
    newest = {"a": records[0].storage_id, "b": records[3].storage_id}
    found = _internal.newest_targets(instance, KEY, ["a", "b", "c"])
    assert {partition: target.storage_id for partition, target in found.items()} == newest


def test_assets_of_a_run_are_those_that_it_makes(instance: dg.DagsterInstance) -> None:
    seen: list[frozenset[dg.AssetKey]] = []

    @dg.asset
    def one(context: dg.AssetExecutionContext) -> None:
        seen.append(_internal.assets_of_run(context.op_execution_context))

    @dg.asset(deps=[one])
    def two() -> None: ...

    both = dg.Definitions([one, two], jobs=[dg.define_asset_job("both"), dg.define_asset_job("first", selection=[one])])
    for job in ("both", "first"):
        assert both.resolve_job_def(job).execute_in_process(instance=instance).success
    assert seen == [{one.key, two.key}, {one.key}]


def test_run_is_ended_by_the_launcher_of_the_instance(instance: dg.DagsterInstance) -> None:
    # The launcher of an instance in memory cannot end runs, and says so.
    with pytest.raises(Exception, match="Termination not supported"):
        _internal.end_run(instance, "1f0c")
