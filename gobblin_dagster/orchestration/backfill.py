"""A backfill of chosen partitions: Dagster makes one run of each range without gaps; one of them works for all.

Each run of a backfill asks for the datasets of all its unfinished runs. Leases let only one run have them: the others
end at once, without Spark, and leave their datasets to it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import dagster as dg

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.orchestration.binding import JobBinding
from gobblin_dagster.orchestration.events import to_dagster_run
from gobblin_dagster.orchestration.partitions import tagged_keys, to_urn
from gobblin_dagster.state.store import StateStore

BACKFILL_TAG = "dagster/backfill"
_FAILED = (DatasetOutcome.FAILED, DatasetOutcome.QUARANTINED)


@dataclass(frozen=True, slots=True)
class Backfill:
    """What a run knows of the other runs of its backfill; empty for a run that works for itself only."""

    others: frozenset[str] = frozenset()
    """Dagster run ids of the other runs."""
    waiting: frozenset[str] = frozenset()
    """Datasets of those others that have not ended."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Datasets of this run that one of the others has tried in vain, with the reason: they are not tried again."""

    @classmethod
    def of_run(
        cls,
        instance: dg.DagsterInstance,
        run: dg.DagsterRun,
        urns: Collection[str],
        binding: JobBinding,
        store: StateStore,
    ) -> Backfill:
        """Look up the other runs of a run's backfill; `urns` are the run's own datasets.

        Only runs of the same assets count. A run that repeats another one works for itself, so that a person can try
        a failed dataset again.
        """
        if BACKFILL_TAG not in run.tags or run.parent_run_id is not None:
            return cls()
        same = dg.RunsFilter(job_name=run.job_name, tags={BACKFILL_TAG: run.tags[BACKFILL_TAG]})
        runs = [record.dagster_run for record in instance.get_run_records(same)]
        others = [one for one in runs if one.run_id != run.run_id and one.asset_selection == run.asset_selection]
        unfinished = [one for one in others if not one.is_finished]
        keys = {key for one in unfinished for key in _keys(instance, one, binding.partitions_name)}
        ids = frozenset(one.run_id for one in others)
        failed = _failed_in(store, binding.name, ids) if ids else {}
        waiting = frozenset(map(to_urn, keys)) - failed.keys()
        return cls(ids, waiting, {urn: why for urn, why in failed.items() if urn in urns})

    def holds(self, run_id: str) -> bool:
        """Return whether an engine's run id is of another run of the backfill."""
        return to_dagster_run(run_id) in self.others


def _keys(instance: dg.DagsterInstance, run: dg.DagsterRun, partitions_name: str) -> frozenset[str]:
    """Return the partition keys of another run; none if its partitions were deleted, which fails that run alone."""
    try:
        return tagged_keys(instance, run, partitions_name) or frozenset()
    except UsageError:
        return frozenset()


def _failed_in(store: StateStore, job: str, run_ids: frozenset[str]) -> dict[str, str]:
    """Return the datasets that failed in these runs, with the reason."""
    return {
        urn: f"it failed in run {to_dagster_run(record.run_id)} of the same backfill: {one.error or one.outcome}"
        for record in store.find_runs(job, run_ids)
        for urn, one in record.datasets.items()
        if one.outcome in _FAILED
    }
