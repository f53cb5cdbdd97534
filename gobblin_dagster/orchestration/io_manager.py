"""CommitStepIOManager: handling the output of `extract` publishes it; loading an input reads committed files only."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, get_origin

import dagster as dg

from gobblin_dagster.engine.results import CommitPlan, RecoveredDataset
from gobblin_dagster.engine.run.job_run import JobRun
from gobblin_dagster.engine.run.profile import RunProfiler
from gobblin_dagster.orchestration import metadata as md
from gobblin_dagster.orchestration.binding import JobBinding
from gobblin_dagster.orchestration.errors import without_secrets
from gobblin_dagster.orchestration.events import Event
from gobblin_dagster.orchestration.partitions import to_urn
from gobblin_dagster.orchestration.published import PublishedDatasets
from gobblin_dagster.orchestration.report import RunReport
from gobblin_dagster.orchestration.resources import GobblinSparkResource
from gobblin_dagster.orchestration.termination import waits_end_on_termination
from gobblin_dagster.state.store import StateStore

URN_COLUMN = "gobblin/urn_column"
"""Key of the metadata of an input (`dg.AssetIn(metadata=...)`): name of a column that tells the dataset.urn of each
row."""


@dataclass(frozen=True, slots=True)
class Extracted:
    """The output of `extract` for its IO manager, in the same process: what to commit, and the run with its leases."""

    run: JobRun
    commit: CommitPlan
    recovered: tuple[RecoveredDataset, ...]
    store: StateStore
    planned_keys: frozenset[str] | None
    """Partition keys that the Dagster run was launched for; None if it was launched without partitions."""
    reconciled: frozenset[str]
    """Datasets whose earlier commits this run has reported."""
    failed_before: Mapping[str, str]
    """Datasets that another run of the same backfill has tried in vain, with the reason; this run left them out."""
    log_event: Callable[[Event], None]
    profiler: RunProfiler
    """Measured the run since its plan began."""
    pages: Mapping[str, str]
    """Addresses of Spark's pages, see `PagesRunner`."""
    resources: ExitStack
    """Closing it releases leases and store."""


class CommitStepIOManager(dg.IOManager):
    """Commits what a run staged, reports it, and loads published data for downstream assets.

    `handle_output`, called for the output of `extract`, commits the datasets, then logs one materialization per branch
    of each committed dataset, then raises Failure if any dataset failed. A step retry runs `extract` again, which
    recovers first.

    `load_input`, called for an input of a downstream asset, returns the data of the partitions that this asset works
    on. The annotation of the parameter chooses the form: a pyarrow Table or Dataset, a DataFrame of Spark or pandas, a
    DataFrame or LazyFrame of polars, a relation of DuckDB, `dict[str, pa.Table]` (a table per dataset.urn), `list[str]`
    (paths of the files), or PublishedDatasets, also if there is no annotation. With `gobblin/urn_column` in the
    metadata of the input, rows have one more column of this name, with their dataset.urn.

    Source: gobblin-api `DataPublisher` and gobblin-runtime `CommitStep`s. Differs: an IO manager publishes, so that an
    asset is materialized only after its data are committed.
    """

    def __init__(self, binding: JobBinding) -> None:
        self._binding = binding
        self._kept: list[ExitStack] = []

    @staticmethod
    def resource(binding: JobBinding) -> dg.IOManagerDefinition:
        """Return the manager of a job as a resource of Dagster's, which closes it at the end of a run or step."""

        def opened(_: dg.InitResourceContext) -> Iterator[CommitStepIOManager]:
            manager = CommitStepIOManager(binding)
            try:
                yield manager
            finally:
                manager.close()

        return dg.IOManagerDefinition(opened)  # type: ignore[arg-type]  # its annotation leaves generators out

    def keep(self, resources: ExitStack) -> None:
        """Keep the leases and the store of a run until its output is handled, or until `close`."""
        self._kept.append(resources)

    def close(self) -> None:
        """End runs whose output Dagster did not hand over, because it could not log it.

        They would hold their datasets as long as this process lives, which may be for many runs.
        """
        for resources in self._kept:
            with suppress(_OutputLost), resources:
                raise _OutputLost

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Publish the output of `extract`; raises Failure if a dataset failed. Does nothing for outputs of `report`."""
        if not isinstance(obj, Extracted):
            return
        with without_secrets(), waits_end_on_termination(), obj.resources:
            result = obj.run.publish(obj.commit, obj.recovered)
            step = context.step_context
            report = RunReport(self._binding, obj.store, step.instance, step.dagster_run, step.step.key, obj.log_event)
            outcome = report.log_commits(obj.commit, result, obj.failed_before)
            obj.store.mark_reported([one.commit_id for one in outcome.committed.values()])
            report.log_idle(outcome, result, obj.planned_keys, obj.reconciled)
            profile = obj.profiler.profile().to_document(obj.profiler.since_end_s())
            told = {md.PROFILE: dg.JsonMetadataValue(profile), **_links(obj.pages)}
            context.add_output_metadata(told)
            # Dagster stores no output of a step that fails.
            report.log_failures(outcome, result, told)

    @without_secrets()
    def load_input(self, context: dg.InputContext) -> Any:
        """Return published data for a downstream asset; raises like `PublishedDatasets.load`."""
        branch = self._binding.branch_of(context.asset_key)
        # For an asset without partitions, Dagster names all keys, also those that were never committed.
        urns = [to_urn(key) for key in context.asset_partition_keys] if context.has_asset_partitions else None
        published = PublishedDatasets.load(self._binding.project, self._binding.job, branch, urns)
        if column := context.definition_metadata.get(URN_COLUMN):
            # Dagster makes a metadata value of the text for assets, and leaves it as it is for ops.
            published = dataclasses.replace(published, urn_column=str(getattr(column, "value", column)))
        return self._as_type(published, context.dagster_type.typing_type)

    def _as_type(self, published: PublishedDatasets, wanted: Any) -> Any:
        # By name: importing pyspark's class would cost seconds in every downstream run, and not everybody has polars.
        package = str(getattr(wanted, "__module__", "")).partition(".")[0].removeprefix("_")
        name = getattr(wanted, "__name__", "")
        if (package, name) == ("pyspark", "DataFrame"):
            return published.to_spark(GobblinSparkResource.of_project(self._binding.project).session)
        made = _FORMS.get((package, name)) or _COLLECTIONS.get(get_origin(wanted))
        return made(published) if made else published


class _OutputLost(Exception):
    """Dagster did not hand over the output of `extract`."""


def _links(pages: Mapping[str, str]) -> dict[str, dg.UrlMetadataValue]:
    keys = {"pages": md.SPARK_PAGES, "history": md.SPARK_HISTORY}
    return {keys[name]: dg.UrlMetadataValue(address) for name, address in pages.items()}


# A program that annotates a parameter with one of these types has imported its package.
_FORMS: Mapping[tuple[str, str], Callable[[PublishedDatasets], Any]] = {
    ("pyarrow", "Table"): PublishedDatasets.to_arrow,
    ("pyarrow", "Dataset"): PublishedDatasets.to_dataset,
    ("pandas", "DataFrame"): PublishedDatasets.to_pandas,
    ("polars", "DataFrame"): lambda published: sys.modules["polars"].from_arrow(published.to_arrow()),
    ("polars", "LazyFrame"): lambda published: sys.modules["polars"].scan_pyarrow_dataset(published.to_dataset()),
    ("duckdb", "DuckDBPyRelation"): lambda published: sys.modules["duckdb"].from_arrow(published.to_dataset()),
}
_COLLECTIONS: Mapping[Any, Callable[[PublishedDatasets], Any]] = {
    dict: PublishedDatasets.to_tables,
    list: lambda published: [path for paths in published.paths.values() for path in paths],
}
