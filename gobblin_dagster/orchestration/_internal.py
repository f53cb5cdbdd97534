"""The only module that uses Dagster's internals, because its public API is not enough; each has a test of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData
from dagster._core.events import AssetMaterializationPlannedData, DagsterEvent


def log_planned(
    instance: dg.DagsterInstance, run: dg.DagsterRun, step_key: str, key: dg.AssetKey, partition: str
) -> None:
    """Log that a run planned to materialize a partition.

    Dagster shows a partition as failed if the newest plan for it is of a failed run, and it was not materialized since.
    Dagster itself logs plans only for selected assets, and only in runs that were launched for partitions.
    """
    _log_plan(instance, run, run.run_id, step_key, key, partition)


def log_unplanned(
    instance: dg.DagsterInstance, run: dg.DagsterRun, step_key: str, key: dg.AssetKey, partition: str
) -> None:
    """Log a plan of no run, the newest one of a partition that a run planned and need not materialize.

    Dagster then shows the partition as before, also if the run fails. No asset below is made again for it, as it would
    be for a materialization.
    """
    _log_plan(instance, run, _NO_RUN, step_key, key, partition)


_NO_RUN = ""
"""The run id of events that are of no run, as of those of `report_runless_asset_event`."""


def _log_plan(
    instance: dg.DagsterInstance, run: dg.DagsterRun, run_id: str, step_key: str, key: dg.AssetKey, partition: str
) -> None:
    planned = AssetMaterializationPlannedData(key, partition=partition, partitions_subset=None)
    event = DagsterEvent.build_asset_materialization_planned_event(run.job_name, step_key, planned)
    instance.report_dagster_event(event, run_id)


def end_run(instance: dg.DagsterInstance, run_id: str) -> None:
    """Ask a run to end, as the button in Dagster's pages does."""
    instance.run_coordinator.cancel_run(run_id)


def assets_of_run(context: dg.OpExecutionContext) -> frozenset[dg.AssetKey]:
    """Return the assets that the run makes; a run of a whole job has no asset selection, so its graph is asked."""
    return frozenset(context.job_def.asset_layer.selected_asset_keys)


def materialized_keys(instance: dg.DagsterInstance, key: dg.AssetKey) -> frozenset[str]:
    """Return the partition keys that the instance has a materialization of, in one query."""
    return frozenset(instance.get_materialized_partitions(key))


CheckTarget: TypeAlias = AssetCheckEvaluationTargetMaterializationData
"""The materialization that a check evaluation belongs to. Dagster shows the evaluation while it is the partition's
newest."""

_AT_ONCE = 500
"""Number of records per query; Dagster returns at most a thousand."""


def newest_targets(
    instance: dg.DagsterInstance, key: dg.AssetKey, partitions: Iterable[str]
) -> Mapping[str, CheckTarget]:
    """Return the newest materialization of each partition that has one."""
    found: dict[str, CheckTarget] = {}
    wanted = sorted(partitions)
    # Records come newest first: one query per 500 partitions finds those just logged, one query each finds the others.
    for asked in [*(wanted[at : at + _AT_ONCE] for at in range(0, len(wanted), _AT_ONCE)), *([one] for one in wanted)]:
        missing = [one for one in asked if one not in found]
        if missing:
            chosen = dg.AssetRecordsFilter(key, asset_partitions=missing)
            for record in instance.fetch_materializations(chosen, limit=len(missing)).records:
                target = CheckTarget(storage_id=record.storage_id, run_id=record.run_id, timestamp=record.timestamp)
                found.setdefault(str(record.partition_key), target)
    return found
