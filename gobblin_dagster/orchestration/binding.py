"""JobBinding: the names of a job in Dagster: its asset keys, partitions, Dagster job and resources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

import dagster as dg

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.engine.project import Project, open_project
from gobblin_dagster.orchestration.translator import BranchData, GobblinTranslator
from gobblin_dagster.spec.job import JobSpec

Checks: TypeAlias = bool | Literal["failures"]
"""Which outcomes of policies Dagster is told as asset checks: all (True), none (False), or only failures."""


@dataclass(frozen=True, slots=True)
class JobBinding:
    """One job in one code location. Assets, sensors and so on each make their own; equal jobs give equal bindings."""

    project: Project
    job: JobSpec
    specs: Mapping[str, dg.AssetSpec]
    """The translator's asset spec of each branch, in the order of the fork."""
    upstream: tuple[dg.AssetSpec, ...] = ()
    """The external assets that the job reads from."""
    checks: Checks = True
    """Which outcomes of policies are asset checks: all, none, or failures alone."""
    job_of_run: Callable[[JobSpec, Mapping[str, str]], JobSpec] = field(
        default=lambda job, tags: job, compare=False, repr=False
    )
    """The translator's choice of the job that a run works on."""

    @classmethod
    def of(
        cls,
        project: Project | Path | str,
        job: JobSpec | str,
        translator: GobblinTranslator | None = None,
        *,
        checks: Checks = True,
    ) -> JobBinding:
        """Bind a job.

        Raises:
            InvalidSpecError, UsageError: the project or the job cannot be loaded.
        """
        # The service is no part of what each run of Dagster imports.
        from gobblin_dagster.service.known_jobs import with_flows  # noqa: PLC0415 - as said above

        names = [job] if isinstance(job, str) else []
        opened = with_flows(project if isinstance(project, Project) else open_project(Path(project), names))
        spec = opened.job(job) if isinstance(job, str) else job
        used, lines = translator or GobblinTranslator(), opened.lines.get(spec.job)
        specs = {branch.name: used.get_asset_spec(BranchData(spec, branch, lines)) for branch in spec.fork.branches}
        return cls(opened, spec, specs, tuple(used.get_upstream_specs(spec)), checks, used.job_of_run)

    def for_run(self, tags: Mapping[str, str]) -> JobBinding:
        """Return the binding of the job that a run with these tags works on.

        Raises:
            UsageError: this job has other branches than the one that was loaded.
        """
        job = self.job_of_run(self.job, tags)
        names, wanted = list(self.specs), [branch.name for branch in job.fork.branches]
        if names != wanted:
            problem = f"Job {self.name!r} has the branches {', '.join(wanted)}, and Dagster loaded {', '.join(names)}."
            raise UsageError(problem=problem, hint="Reload the code location in Dagster's pages, and run it again.")
        return replace(self, job=job)

    @property
    def name(self) -> str:
        """The job's name; the graph and its ops have the same name."""
        return self.job.job

    @property
    def dagster_job(self) -> str:
        """Name of the Dagster job that runs the job's branches and nothing else."""
        return f"{self.name}_job"

    @property
    def pool(self) -> str:
        """Name of the pool in Dagster that limits how many runs of the job work at once."""
        return self.job.pool or f"gobblin_{self.name}"

    @property
    def io_manager_key(self) -> str:
        """Resource key of the job's IO manager; one per job, so that it cannot clash with other resources."""
        return f"gobblin_{self.name}"

    @property
    def spark_key(self) -> str:
        """Resource key of the job's Spark."""
        return f"gobblin_{self.name}_spark"

    @property
    def partitions(self) -> dg.DynamicPartitionsDefinition:
        """The job's partitions: one per dataset.urn."""
        return dg.DynamicPartitionsDefinition(name=f"{self.name}.dataset_urn")

    @property
    def partitions_name(self) -> str:
        """Name of the dynamic partitions in the Dagster instance."""
        return f"{self.name}.dataset_urn"

    @property
    def keys(self) -> Mapping[str, dg.AssetKey]:
        """Asset key by branch."""
        return {branch: spec.key for branch, spec in self.specs.items()}

    def branch_of(self, key: dg.AssetKey) -> str:
        """Return the branch of one of the job's asset keys."""
        return next(branch for branch, spec in self.specs.items() if spec.key == key)

    def dataset_path(self, branch: str, dataset_urn: str) -> str:
        """Return the absolute folder of a branch of a dataset."""
        return f"{self.project.output_root(self.job)}/{self.job.dataset_folder(branch, dataset_urn)}"
