"""GobblinTranslator: the asset key, group and so on of a job's branches. Override its method to change them."""

from __future__ import annotations

from dataclasses import dataclass

import dagster as dg

from gobblin_dagster.spec.job import BranchSpec, JobSpec


@dataclass(frozen=True, slots=True)
class BranchData:
    """A job and one branch of its fork; they become one asset."""

    job: JobSpec
    branch: BranchSpec


class GobblinTranslator:
    """Turns branches into asset specs. Make a subclass and pass it to `gobblin_assets` or `build_definitions`.

    Example:
        >>> class OwnedByData(GobblinTranslator):
        ...     def get_asset_spec(self, data: BranchData) -> dg.AssetSpec:
        ...         return super().get_asset_spec(data).replace_attributes(owners=["team:data"])
    """

    def get_asset_spec(self, data: BranchData) -> dg.AssetSpec:
        """Return key, description, group, kinds, tags, owners and so on of a branch's asset.

        Called when definitions are loaded, once per branch and use. Partitions and dependencies of the spec are
        ignored: a partition is always a dataset, and a job reads from outside of Dagster.
        """
        job, branch = data.job, data.branch
        writer = job.writer_of(branch).type
        return dg.AssetSpec(
            key=[job.extract.namespace, job.extract.table, branch.name],
            description=job.description or None,
            group_name=job.job,  # Dagster's pages show the last part of a key, which is `main` for most jobs
            kinds={"spark", writer} if writer.isidentifier() else {"spark"},
        )
