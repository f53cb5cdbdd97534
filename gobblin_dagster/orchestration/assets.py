"""gobblin_assets: a job as a graph-backed Dagster asset: one asset key per branch, one partition per dataset."""

from __future__ import annotations

import inspect
import warnings
from functools import cache
from pathlib import Path

import dagster as dg

from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.task.runner import TaskRunner
from gobblin_dagster.orchestration.binding import Checks, JobBinding
from gobblin_dagster.orchestration.checks import check_specs
from gobblin_dagster.orchestration.io_manager import CommitStepIOManager
from gobblin_dagster.orchestration.ops import EXTRACT, EXTRACTED, REPORT, extract_op, report_op, upstream_inputs
from gobblin_dagster.orchestration.resources import GobblinSparkResource
from gobblin_dagster.orchestration.translator import GobblinTranslator
from gobblin_dagster.spec.job import JobSpec

MAX_RUNTIME_S = 24 * 3600
"""Seconds after which Dagster's run monitoring ends a run that still works."""


def gobblin_assets(
    project: Project | Path | str,
    job: JobSpec | str,
    *,
    translator: GobblinTranslator | None = None,
    checks: Checks = True,
    runner: TaskRunner | None = None,
    spark: GobblinSparkResource | None = None,
) -> dg.AssetsDefinition:
    """Return the assets of a job, one per branch.

    A run reads the source once for all branches and commits them together. If only one branch is selected in Dagster,
    all branches are committed and reported all the same.

    Args:
        project: a project or its folder.
        job: a job or its name in the project.
        translator: chooses keys, groups and so on of the assets; default: `GobblinTranslator()`.
        checks: whether policies are shown as asset checks. False only leaves the checks out of Dagster: policies still
            apply, and their counts are in the metadata. With very many datasets, check events are most of what Dagster
            stores; with "failures", an event is stored only if a policy was broken.
        runner: runs the work units; default: `spark`. Tests pass `testing.inline_runner.InlineRunner()`.
        spark: the Spark to use; default: the one of `gobblin.yaml`.

    Raises:
        InvalidSpecError, UsageError: the project or the job cannot be loaded.

    Example:
        >>> def definitions() -> dg.Definitions:
        ...     flights = gobblin_assets("demo", "flights")
        ...     return dg.Definitions([flights], jobs=[gobblin_job("demo", "flights")], executor=dg.in_process_executor)
    """
    binding = JobBinding.of(project, job, translator, checks=checks)
    checked = check_specs(binding)
    check_outputs = {check.get_python_identifier(): check for check in checked}
    outputs = [*binding.specs, *check_outputs]
    extract, report = extract_op(binding, runner), report_op(binding, outputs)

    inputs = upstream_inputs(binding)

    def body(**upstream: object) -> dict[str, object]:
        reported = report.alias(REPORT)(**{EXTRACTED: extract.alias(EXTRACT)(**upstream)})
        # For an op with one output, Dagster returns this output itself.
        return {name: getattr(reported, name) if len(outputs) > 1 else reported for name in outputs}

    # Dagster reads the inputs of the graph from the signature.
    named = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in inputs]
    body.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    resources: dict[str, dg.ResourceDefinition] = {binding.io_manager_key: CommitStepIOManager.resource(binding)}
    if runner is None:
        used = spark or GobblinSparkResource.of_project(binding.project)
        resources[binding.spark_key] = used.get_resource_definition()
    with warnings.catch_warnings():
        # `resource_defs` and `backfill_policy` are in beta; our users cannot do anything about the warning.
        warnings.simplefilter("ignore", dg.BetaWarning)
        made = dg.graph_multi_asset(
            name=binding.name,
            ins=inputs,
            outs={branch: dg.AssetOut(key=spec.key, is_required=False) for branch, spec in binding.specs.items()},
            partitions_def=binding.partitions,
            backfill_policy=dg.BackfillPolicy.single_run(),
            can_subset=True,
            check_specs=checked,
            resource_defs=resources,
        )(body)
        by_key = {spec.key: spec for spec in binding.specs.values()}
        return made.map_asset_specs(lambda spec: _dressed(spec, by_key[spec.key]))


def gobblin_job(
    project: Project | Path | str, job: JobSpec | str, *, translator: GobblinTranslator | None = None
) -> dg.UnresolvedAssetJobDefinition:
    """Return the Dagster job `<job>_job`, which runs the branches of a job and nothing else.

    It leaves out downstream assets, because Dagster skips them without a message in a run without partitions: let
    automation or a sensor launch them. It runs in one process, so that Spark starts once. Raises like `gobblin_assets`.
    """
    binding = JobBinding.of(project, job, translator)
    return _dagster_job(binding.dagster_job, tuple(binding.keys.values()), hidden(binding.job.description) or None)


@cache
def _dagster_job(name: str, keys: tuple[dg.AssetKey, ...], description: str | None) -> dg.UnresolvedAssetJobDefinition:
    # The same object for equal arguments: sensors of several jobs name these jobs too, and Dagster refuses a job that
    # is there as two objects.
    return dg.define_asset_job(
        name,
        # Checks are evaluated all the same, for each dataset. If selected, Dagster would plan one more of each without
        # a partition, and show it as skipped or failed.
        selection=dg.AssetSelection.assets(*keys).without_checks(),
        description=description,
        executor_def=dg.in_process_executor,
        tags={"dagster/max_runtime": str(MAX_RUNTIME_S)},
    )


def _dressed(made: dg.AssetSpec, translated: dg.AssetSpec) -> dg.AssetSpec:
    """Return the translator's asset spec, with the partitions and dependencies of the graph's output."""
    return translated.replace_attributes(partitions_def=made.partitions_def, deps=made.deps).merge_attributes(
        metadata=dict(made.metadata)
    )
