"""CommitStepIOManager: publishing is what it means to handle the output of `extract`; loading reads whole commits only."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import dagster as dg
import pyarrow as pa

from gobblin_dagster.engine.results import CommitPlan, RecoveredDataset
from gobblin_dagster.engine.run.job_run import JobRun
from gobblin_dagster.orchestration.binding import JobBinding
from gobblin_dagster.orchestration.events import Event
from gobblin_dagster.orchestration.partitions import to_urn
from gobblin_dagster.orchestration.published import PublishedDatasets
from gobblin_dagster.orchestration.report import Outcome, RunReport
from gobblin_dagster.orchestration.resources import GobblinSparkResource
from gobblin_dagster.state.store import StateStore


@dataclass(frozen=True, slots=True)
class Extracted:
    """What `extract` hands to its IO manager, inside one process: what is to be committed, and the run that holds the leases."""

    run: JobRun
    commit: CommitPlan
    recovered: tuple[RecoveredDataset, ...]
    store: StateStore
    planned_keys: frozenset[str] | None
    """Partition keys that the Dagster run was launched for; None where for none in particular."""
    reconciled: frozenset[str]
    """Datasets whose earlier commits this run has reported."""
    log_event: Callable[[Event], None]
    resources: ExitStack
    """Gives leases and store back."""


class CommitStepIOManager(dg.IOManager):
    """Commits what a run staged, reports it, and gives downstream assets what is published.

    `handle_output` of `extract` commits every dataset on its own, then logs one materialization per branch of each
    committed one, then raises Failure naming those that failed. A step retry runs `extract` again, which recovers first.

    `load_input` of a downstream asset returns, by the type of its parameter, a PublishedDatasets (also without a type), a
    pyarrow Table or Dataset, or a Spark DataFrame, of the partitions that it works on.

    Source: gobblin-api `DataPublisher` and gobblin-runtime `CommitStep`s. Differs: an IO manager publishes, so that
    nothing counts as materialized that is not committed.
    """

    def __init__(self, binding: JobBinding) -> None:
        self._binding = binding
        self._outcomes: dict[str, Outcome] = {}

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Publish; raises Failure where any dataset failed. The outputs of `report` hold nothing."""
        if not isinstance(obj, Extracted):
            return
        with obj.resources:
            result = obj.run.publish(obj.commit, obj.recovered)
            step = context.step_context
            report = RunReport(self._binding, obj.store, step.instance, step.dagster_run, step.step.key, obj.log_event)
            outcome = report.log_commits(obj.commit, result)
            obj.store.mark_reported([one.commit_id for one in outcome.committed.values()])
            self._outcomes[context.run_id] = outcome
            report.log_idle(outcome, result, obj.planned_keys, obj.reconciled)
            report.log_failures(outcome, result)

    def load_input(self, context: dg.InputContext) -> Any:
        """Return the outcome to `report`, and published data to downstream assets; raises like `PublishedDatasets.load`."""
        if not context.has_asset_key:
            upstream = context.upstream_output
            return self._outcomes.pop(upstream.run_id, None) if upstream else None
        branch = self._binding.branch_of(context.asset_key)
        # Without partitions (an asset over all of them) Dagster names every key, also those never committed.
        urns = [to_urn(key) for key in context.asset_partition_keys] if context.has_asset_partitions else None
        published = PublishedDatasets.load(self._binding.project, self._binding.job, branch, urns)
        return self._as_type(published, context.dagster_type.typing_type)

    def _as_type(self, published: PublishedDatasets, wanted: Any) -> Any:
        if wanted is pa.Table:
            return published.to_arrow()
        if wanted is pa.dataset.Dataset:
            return published.to_dataset()
        # By name: asking pyspark for its class would import it into every downstream run.
        if getattr(wanted, "__name__", "") == "DataFrame" and str(wanted.__module__).startswith("pyspark."):
            return published.to_spark(GobblinSparkResource.of_project(self._binding.project).session)
        return published
