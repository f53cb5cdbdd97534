"""GobblinTranslator: how a branch of a job looks in Dagster. Override one method to change any of it."""

from __future__ import annotations

from dataclasses import dataclass

import dagster as dg

from gobblin_dagster.spec.job import BranchSpec, JobSpec


@dataclass(frozen=True, slots=True)
class BranchData:
    """What an asset is made from: a job and one branch of its fork."""

    job: JobSpec
    branch: BranchSpec


class GobblinTranslator:
    """Maps branches to asset specs.

    Example:
        >>> class OwnedByData(GobblinTranslator):
        ...     def get_asset_spec(self, data: BranchData) -> dg.AssetSpec:
        ...         return super().get_asset_spec(data).replace_attributes(owners=["team:data"])
    """

    def get_asset_spec(self, data: BranchData) -> dg.AssetSpec:
        """Return key, description, group, kinds, tags, owners and the like of a branch's asset.

        Partitions and dependencies are ours to set: a partition is a dataset, and what a job reads lies outside Dagster.
        """
        job, branch = data.job, data.branch
        writer = job.writer_of(branch).type
        return dg.AssetSpec(
            key=[job.extract.namespace, job.extract.table, branch.name],
            description=job.description or None,
            group_name=job.job,  # pages name a branch by the last part of its key, and most jobs have a branch `main`
            kinds={"spark", writer} if writer.isidentifier() else {"spark"},
        )
