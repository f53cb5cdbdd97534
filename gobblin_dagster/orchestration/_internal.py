"""The one module that uses Dagster's internals: events that its public names cannot log. Pinned by tests on partition status."""

from __future__ import annotations

import dagster as dg
from dagster._core.events import AssetMaterializationPlannedData, DagsterEvent


def log_planned(
    instance: dg.DagsterInstance, run: dg.DagsterRun, step_key: str, key: dg.AssetKey, partition: str
) -> None:
    """Log that a run meant to materialize a partition.

    A partition shows as failed when it was planned by a run that failed, and not materialized since. Dagster plans only
    selected assets, and only in runs launched for partitions.
    """
    planned = AssetMaterializationPlannedData(key, partition=partition, partitions_subset=None)
    event = DagsterEvent.build_asset_materialization_planned_event(run.job_name, step_key, planned)
    instance.report_dagster_event(event, run.run_id)
