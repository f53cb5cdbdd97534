"""A job over made-up rows in an ephemeral Dagster instance, run without Spark; and what Dagster shows of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.storage.partition_status_cache import get_and_update_asset_status_cache_value

from gobblin_dagster.engine.results import RunResult
from gobblin_dagster.orchestration import GobblinTranslator, gobblin_assets, gobblin_job
from gobblin_dagster.orchestration.binding import Checks, JobBinding
from gobblin_dagster.orchestration.ops import run_config
from gobblin_dagster.orchestration.partitions import PARTITION_TAG, RANGE_TAGS, to_key
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.engine.jobs import job_spec, project, run

BAD_BRANCH = {
    "branches": [
        {"name": "all"},
        {
            "name": "masked",
            "row_policies": [
                {"name": "not_bad", "type": "sql", "rule": "dataset <> 'bad_branch'", "on_violation": "fail"}
            ],
        },
    ]
}
"""A fork whose second branch fails for dataset `bad_branch`."""


@dataclass
class World:
    """One job whose datasets tests change between runs; each run loads it again, as Dagster's run processes do."""

    root: Path
    instance: dg.DagsterInstance
    datasets: dict[str, dict[str, Any]]
    parts: dict[str, Any] = field(default_factory=dict)
    downstream: Sequence[dg.AssetsDefinition] = ()
    translator: GobblinTranslator | None = None
    checks: Checks = True
    runner: type[InlineRunner] = InlineRunner

    @property
    def job(self) -> JobSpec:
        return job_spec(self.datasets, **self.parts)

    @property
    def binding(self) -> JobBinding:
        return JobBinding.of(project(self.root, self.job), self.job, self.translator)

    @property
    def definitions(self) -> dg.Definitions:
        bound = project(self.root, self.job)
        assets = gobblin_assets(bound, self.job, runner=self.runner(), translator=self.translator, checks=self.checks)
        job = gobblin_job(bound, self.job, translator=self.translator)
        return dg.Definitions([assets, *self.downstream], jobs=[job], executor=dg.in_process_executor)

    def add_partitions(self, *urns: str) -> None:
        self.instance.add_dynamic_partitions("numbers.dataset_urn", [to_key(urn) for urn in urns])

    def run_all(self, urns: list[str] | None = None, busy_wait_s: float | None = None) -> dg.ExecuteInProcessResult:
        """Run as a sensor does: without partitions."""
        job = self.definitions.resolve_job_def("numbers_job")
        config = run_config("numbers", urns, busy_wait_s)
        return job.execute_in_process(instance=self.instance, run_config=config, raise_on_error=False)

    def run_range(
        self,
        first: str,
        last: str | None = None,
        select: Sequence[str] = ("all", "masked"),
        beyond: Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
    ) -> dg.ExecuteInProcessResult:
        """Run as Dagster's pages do: for one partition or a range of them, of some branches and assets beyond."""
        partitions = {PARTITION_TAG: first} if last is None else dict(zip(RANGE_TAGS, (first, last), strict=True))
        chosen = [*(self.binding.keys[branch] for branch in select), *(dg.AssetKey(name) for name in beyond)]
        job = self.definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            instance=self.instance, tags={**partitions, **(tags or {})}, asset_selection=chosen, raise_on_error=False
        )

    def run_elsewhere(self) -> RunResult:
        """Run as the command line does: Dagster does not hear of it."""
        return run(self.root, self.job)

    def status(self, branch: str = "all") -> tuple[set[str], set[str]]:
        """Return the partitions that Dagster's pages show as materialized and as failed."""
        key, parts = self.binding.keys[branch], self.binding.partitions
        cached = get_and_update_asset_status_cache_value(self.instance, key, parts, self.instance)
        failed = set(cached.deserialize_failed_partition_subsets(parts).get_partition_keys()) if cached else set()
        return self.instance.get_materialized_partitions(key) - failed, failed

    def checked(self, name: str, branch: str = "all") -> dict[str, set[str]]:
        """Return the partitions by what Dagster's pages show of a check; those of which they show nothing are left
        out."""
        key, parts = dg.AssetCheckKey(self.binding.keys[branch], name), self.binding.partitions
        with partition_loading_context(dynamic_partitions_store=self.instance):
            state = self.instance.event_log_storage.get_asset_check_state([(key, parts)])[key]
            shown = {status.value.lower(): subset.subset_value for status, subset in state.subsets.items()}
            return {status: found for status, subset in shown.items() if (found := set(subset.get_partition_keys()))}

    def events(self, urn: str, branch: str = "all") -> list[dict[str, Any]]:
        """Return the metadata of a partition's materializations, newest first."""
        wanted = dg.AssetRecordsFilter(self.binding.keys[branch], asset_partitions=[to_key(urn)])
        records = self.instance.fetch_materializations(wanted, limit=100).records
        found = [record.asset_materialization for record in records]
        return [{name: value.value for name, value in event.metadata.items()} for event in found if event]

    def check_keys(self) -> set[dg.AssetCheckKey]:
        """Return the keys of all declared checks."""
        return {
            spec.key
            for assets in self.definitions.assets or ()
            if isinstance(assets, dg.AssetsDefinition)
            for spec in assets.check_specs
        }

    def error(self, result: dg.ExecuteInProcessResult) -> str:
        """Return what a failed run says."""
        failure = result.get_step_failure_events()[0].step_failure_data.error
        assert failure is not None
        return failure.to_string()

    def failure(self, result: dg.ExecuteInProcessResult) -> dict[str, Any]:
        """Return the metadata of a failed run's error."""
        said = result.get_step_failure_events()[0].step_failure_data.user_failure_data
        assert said is not None
        return {name: value.value for name, value in said.metadata.items()}
