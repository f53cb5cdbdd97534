"""Check the constructs of a job file: that each exists, fits its options, and fits its neighbours."""

from __future__ import annotations

import itertools
import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gobblin_dagster.constructs.registry import ConstructKind, Fault, registry
from gobblin_dagster.constructs.writers.quarantine import QUARANTINE_WRITER
from gobblin_dagster.core.constructs import (
    ChecksExtract,
    ConstructContext,
    JudgesExtract,
    JudgesWriter,
    PositionedSource,
    ReadsPaths,
    Source,
)
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.traits import PublisherTraits, SourceTraits, traits_of
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.engine.commit.steps import check_own_step
from gobblin_dagster.engine.task.publishers import each_publisher
from gobblin_dagster.spec.job import QUARANTINE_BRANCH, ConstructSpec, JobSpec
from gobblin_dagster.storage import storage_path


def check_construct(kind: Any, type_name: str, options: Mapping[str, Any]) -> list[Fault]:
    """Return every fault of a construct's declaration, also of a custom commit step; see `Registry.check`."""
    return check_own_step(type_name, options) if kind == "commit_step" else registry.check(kind, type_name, options)


def check_parts(job: JobSpec, root: Path) -> None:
    """Make the constructs whose checks need an object, and check that they fit together; raises UsageError.

    - The fork operator is made as in a work unit: it may refuse the branches' names.
    - The source is made if a limit can end work units early (it must report positions), if the extract reads
      everything, or if the source checks the extract itself.
    - Publishers must not replace all published data by the part that a limit leaves.
    """
    check_publishers(job)
    context = ConstructContext(job=job.job, base_dir=str(root.resolve()))
    judges = issubclass(registry.load(ConstructKind.SOURCE, job.source.type), ChecksExtract)
    if judges or job.execution.limit.ends_early or job.extract.reads_everything:
        source = registry.create(ConstructKind.SOURCE, job.source, context)
        if job.execution.limit.ends_early:
            require_positions(job, source)
        if isinstance(source, ChecksExtract):
            source.check_extract(job.to_extract())
        starts_over(job, source)
        _require_all_rows(job, source)
    if issubclass(registry.load(ConstructKind.SOURCE, job.source.type), ReadsPaths):
        _refuse_own_output(job, root, registry.create(ConstructKind.SOURCE, job.source, context))
    registry.create(ConstructKind.FORK, job.fork.operator, context, branches=[b.name for b in job.fork.branches])


def _refuse_own_output(job: JobSpec, root: Path, source: ReadsPaths) -> None:
    """Raise UsageError if the source would read what the job publishes: each run would read all earlier ones again."""
    for one in published_paths(job, root, source.named_datasets()):
        if place := next(filter(source.would_read, one.paths), None):
            raise UsageError(
                problem=f"Job {job.job!r}: the source would read what branch {one.branch!r} publishes "
                f"({f'in {one.folder}' if one.folder else place}), again and again.",
                hint="Choose an `output.path` outside of the folders that the source's `path` matches."
                if one.folder
                else "Publish to another table or topic, or let the source leave this one out.",
            )


@dataclass(frozen=True, slots=True)
class PublishedPaths:
    """Paths such as a branch publishes."""

    branch: str
    folder: str
    """The folder of a dataset; empty for a table or topic."""
    paths: tuple[str, ...]
    """Of files, or of tables or topics, as a source is asked for them."""


def published_paths(job: JobSpec, root: Path, named: Sequence[str]) -> Iterator[PublishedPaths]:
    """Yield paths such as a job publishes, for each of its branches.

    Args:
        job: the job.
        root: folder of the project.
        named: names of datasets that are known; of very many, those that come first are like the others.

    Raises:
        UsageError: the path of the output cannot be compared.
    """
    output = job.output.path
    if "://" in output:
        inside = storage_path(output)  # refuses `..` and empty names, which cannot be compared
        output = inside if output.startswith("file://") else output
    if "://" not in output:
        output = os.path.realpath(root / output)
    context = ConstructContext(job=job.job, base_dir=str(root.resolve()))
    tables: dict[str, str] = {}
    for branch, publisher in each_publisher(job, context):
        traits = traits_of(publisher, PublisherTraits)
        if traits.is_in_output:
            tables[branch.name] = traits.keeps_rows_in
        yield PublishedPaths(branch.name, "", tuple(traits.places))
    writers = {branch.name: job.writer_of(branch) for branch in job.fork.branches}
    if job.has_quarantine:
        writers[QUARANTINE_BRANCH] = QUARANTINE_WRITER
    # Any name, that of a source without names, and those that the paths spell out; the plan looks at the files.
    datasets = ("dataset", f"{job.extract.namespace}.{job.extract.table}", *named[: max(_FEW, _PAIRS // len(writers))])
    folders = {name: f"{output.rstrip('/')}/{job.folder_of_datasets(name)}" for name in writers}
    for (name, writer), dataset in itertools.product(writers.items(), datasets):
        folder = f"{folders[name]}/{DatasetUrn(dataset).path_segment}"
        files = [f"{folder}/{file}" for file in _published_names(job.job, name, writer)]
        if name in tables:
            parent, segment = posixpath.split(folder)
            table = posixpath.join(parent, tables[name].replace("{dataset}", segment))
            files += [posixpath.join(table, file) for file in _names(writer, _FILE_OF_TABLE)]
        yield PublishedPaths(name, folder, tuple(files))


_FEW, _PAIRS = 10, 2_000
"""Named datasets that are always tried, and pairs of dataset and branch that are tried at most beyond those."""


def _published_names(job: str, branch: str, writer: ConstructSpec) -> Iterator[str]:
    """Yield names as those of a branch's files, below the dataset's folder."""
    options = writer.options
    stem = str(options.get("file_name", "{unique}")).format(unique=f"{0:032x}-wu-00001", job=job, branch=branch, rows=1)
    ending = {"gzip": ".gz", "zstd": ".zst"}.get(str(options.get("compression")), "")
    for end in {"", ending}:
        yield from _names(writer, f"{stem}.{writer.type}{end}")


def _names(writer: ConstructSpec, file: str) -> Iterator[str]:
    """Yield a file in the folders of `partition_by`, which hold numbers or dates."""
    levels = [
        level if isinstance(level, str) else level.get("name") or level.get("column") or "level"
        for level in writer.options.get("partition_by") or ()
    ]
    for value in ("1", "2013-01-31") if levels else ("",):
        yield "".join(f"{level}={value}/" for level in levels) + file


_FILE_OF_TABLE = f"part-00000-{0:032x}-c000.snappy.parquet"
"""As deltalake names the files that it writes when it merges rows into a table."""


def check_publishers(job: JobSpec) -> None:
    """Refuse publishers that do not fit the rest of the job.

    Raises:
        UsageError: a branch's writer, or the job's `extract`, does not suit its publisher; or runs would replace all
            published data by a part of it; or a trait of a publisher has a wrong type.
    """
    for branch, publisher in each_publisher(job, ConstructContext(job=job.job, base_dir="")):
        spec, writer = job.publisher_of(branch), job.writer_of(branch)
        where = f"Job {job.job!r}, branch {branch.name!r}: publisher {spec.type!r}"
        if isinstance(publisher, JudgesWriter) and (why := publisher.unfit_writer(writer.type, writer.options)):
            raise UsageError(problem=f"{where} cannot use its writer: {why}.")
        if isinstance(publisher, JudgesExtract) and (why := publisher.unfit_extract(job.to_extract())):
            raise UsageError(problem=f"{where} cannot publish what the job extracts: {why}.")
        traits = traits_of(publisher, PublisherTraits)
        converters = (*job.converters, *branch.converters)
        if traits.on_again in {"upsert", "history"} and any(one.type == "child_table" for one in converters):
            raise UsageError(
                problem=f"{where} replaces rows by key, but converter 'child_table' made them of the items of a list: "
                "when a list loses an item, its row would stay.",
                hint="Leave out the converter, and give the publisher (`delta`, `iceberg` or `merge`) `child_table: "
                "{list: ...}`, which replaces all items of a row; or let the publisher append.",
            )
        if traits.needs_all_units and job.execution.max_work_units is not None:
            raise UsageError(
                problem=f"{where} replaces what was published, but execution.max_work_units spreads one plan over "
                "several runs.",
                hint="Leave one of them out.",
            )


def _require_all_rows(job: JobSpec, source: Source) -> None:
    """Raise UsageError if a publisher would delete rows that exist, but that the source may not have read."""
    held = traits_of(source, SourceTraits).holds_back
    for branch, publisher in each_publisher(job, ConstructContext(job=job.job, base_dir="")) if held else ():
        if traits_of(publisher, PublisherTraits).deletes_missing:
            raise UsageError(
                problem=f"Job {job.job!r}, branch {branch.name!r}: `delete_missing` would delete rows that exist, "
                f"because source {job.source.type!r} may not have read them: {held}.",
                hint="Let the source read all rows in each run, or leave out `delete_missing`.",
            )


def starts_over(spec: JobSpec, source: Source) -> bool:
    """True if a run plans each dataset from its beginning; raises UsageError if the source cannot do that."""
    if not spec.extract.reads_everything:
        return False
    way = traits_of(source, SourceTraits).full_extract
    if not way:
        raise UsageError(
            problem=f"Job {spec.job!r}: source {spec.source.type!r} as declared cannot read everything in each run.",
            hint="Leave out its limits, or `extract.is_full` and `extract.type: snapshot_only`.",
        )
    return way == "start_over"


def require_positions(job: JobSpec, source: Source) -> None:
    """Raise UsageError if limits would end work units early, but the source cannot report where they ended."""
    if not job.execution.limit.ends_early:
        return
    if not isinstance(source, PositionedSource) or not source.tells_positions():
        raise UsageError(
            problem=f"Job {job.job!r}: source {job.source.type!r} cannot report its position, so `execution.limit` "
            "cannot end a work unit early.",
            hint="Leave out rows, bytes and seconds (rows_per_second is fine), or cut the source into smaller work "
            "units and set `execution.max_work_units`.",
        )
