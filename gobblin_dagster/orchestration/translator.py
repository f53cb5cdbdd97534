"""GobblinTranslator: the asset key, group and so on of a job's branches. Override its methods to change them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.engine.project import JobLines
from gobblin_dagster.orchestration import metadata as md
from gobblin_dagster.orchestration.upstream import upstream_specs
from gobblin_dagster.spec.asset import age
from gobblin_dagster.spec.job import BranchSpec, JobSpec

_KEY = "{namespace}/{table}/{branch}"


@dataclass(frozen=True, slots=True)
class BranchData:
    """A job and one branch of its fork; they become one asset."""

    job: JobSpec
    branch: BranchSpec
    lines: JobLines | None = None
    """Where the job stands; None if it was not loaded from a file."""


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
        ignored: a partition is always a dataset, and `get_upstream_specs` says what a job reads from.
        """
        job, branch = data.job, data.branch
        writer, shown = job.writer_of(branch).type, job.asset
        return dg.AssetSpec(
            key=[part.format_map(_Names(data)) for part in (shown.key or _KEY).split("/")],
            description=hidden(job.description) or None,
            # Dagster's pages show the last part of a key, which is `main` for most jobs.
            group_name=shown.group or job.job,
            kinds={*shown.kinds}
            if shown.kinds is not None
            else {"spark", *([writer] if writer.isidentifier() else [])},
            owners=shown.owners,
            tags=shown.tags,
            metadata=_metadata(data),
            freshness_policy=_freshness(job),
        )

    def get_upstream_specs(self, job: JobSpec) -> list[dg.AssetSpec]:
        """Return the assets that a job reads from: those that its file names, else the external ones of its source.

        External assets are its folder, tables, topics or API. To connect the job to an asset that is defined elsewhere,
        return a spec with nothing but its key.
        """
        if (named := job.asset.upstream) is not None:
            return [dg.AssetSpec(key.split("/")) for key in named]
        return upstream_specs(job)

    def job_of_run(self, job: JobSpec, tags: Mapping[str, str]) -> JobSpec:
        """Return the job that a Dagster run works on, with the same branches; by default, the one that was loaded.

        Called once at the beginning of each run, in its process.

        Args:
            job: as the definitions were loaded with.
            tags: of the run.
        """
        return job


def _metadata(data: BranchData) -> Mapping[str, Any]:
    found: dict[str, Any] = {"dagster/table_name": _table_name(data)}
    if (uri := data.job.asset.uri) is not None:
        found[md.URI] = hidden(uri.format_map(_Names(data)))
    if data.lines is not None:
        line, file = data.lines.branches.get(data.branch.name, 1), str(data.lines.file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dg.BetaWarning)  # our users cannot do anything about the warning
            place = dg.LocalFileCodeReference(file_path=file, line_number=line, label=f"{data.lines.file.name}:{line}")
            found["dagster/code_references"] = dg.CodeReferencesMetadataValue(code_references=[place])
    return found


def _table_name(data: BranchData) -> str:
    """Return the table that a branch is published to, or a name of the same form for a folder of files."""
    if (named := data.job.asset.table_name) is not None:
        return named.format_map(_Names(data))
    publisher = data.job.publisher_of(data.branch)
    if publisher.type in ("iceberg", "sql_table") and "table" in publisher.options:
        return str(publisher.options["table"]).format_map(_Names(data))
    return f"{data.job.extract.namespace}.{data.job.extract.table}.{data.branch.name}"


class _Names(dict[str, str]):
    """The words in braces that names of tables may hold; one that is not known at load, such as the dataset, stays."""

    def __init__(self, data: BranchData) -> None:
        extract = data.job.extract
        super().__init__(namespace=extract.namespace, table=extract.table, branch=data.branch.name)

    def __missing__(self, name: str) -> str:
        return f"{{{name}}}"


def _freshness(job: JobSpec) -> Any:
    wanted = job.asset.freshness
    if wanted is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)
        warnings.simplefilter("ignore", dg.BetaWarning)
        warn = age(wanted.warn_after) if wanted.warn_after else None
        return dg.FreshnessPolicy.time_window(fail_window=age(wanted.fail_after), warn_window=warn)
