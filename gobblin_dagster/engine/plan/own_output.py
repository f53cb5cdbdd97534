"""Find datasets of which a run would read what its own job has published.

`validation` compares the paths of a job file. A link inside of the source's folders, the output's folder mounted there
too, or a server by another name, is seen only at the files themselves.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from gobblin_dagster.core.constructs import AsksServer, Source
from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.core.same_place import PlaceIdentity
from gobblin_dagster.core.traits import PublisherTraits, traits_of
from gobblin_dagster.engine.plan.model import DatasetPlan
from gobblin_dagster.engine.task.context import RunContext
from gobblin_dagster.engine.task.publishers import each_publisher
from gobblin_dagster.spec.job import QUARANTINE_BRANCH, JobSpec

_PUBLISHED = re.compile(r"([0-9a-f]{32})-")
"""In the name of each published file, also of merged and compacted ones: the id of its commit."""
_OF_TABLE = re.compile(r"part-[0-9]{5}-|[0-9]{5}-[0-9]+-[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}")
"""How names begin of files that deltalake and pyiceberg write into a table."""


def own_output(
    job: JobSpec, context: RunContext, datasets: Iterable[DatasetPlan], has_committed: Callable[[str], bool]
) -> dict[str, str]:
    """Return, by dataset.urn, why datasets cannot be read: one of their files was published by the job itself.

    Args:
        job: the job.
        context: of the run; only local folders of its output and of its tables are compared.
        datasets: with the work units of the run.
        has_committed: whether a commit, given its id, is one of the job; asked for files in folders that are named as
            those of its output are, on whatever server.
    """
    base_dir, has_committed = context.base_dir, cache(has_committed)
    branches = [*(branch.name for branch in job.fork.branches), QUARANTINE_BRANCH]
    named = [f"/{folder}/".replace("//", "/") for folder in map(job.folder_of_datasets, branches)]

    @cache
    def traits() -> list[PublisherTraits]:
        made = each_publisher(job, context.construct_context(job))
        return [traits_of(publisher, PublisherTraits) for _, publisher in made]

    @cache
    def ours(is_of_table: bool) -> list[PlaceIdentity]:
        """Return the folders of the output, and of tables elsewhere, in which files have such names."""
        folders = [
            posixpath.dirname(posixpath.join(context.output_root, job.dataset_folder(one, "d"))) for one in branches
        ]
        if is_of_table:
            folders = folders if any(one.is_in_output for one in traits()) else []
            folders += [posixpath.dirname(place) for one in traits() for place in one.places]
        found = {PlaceIdentity.of(folder, base_dir) for folder in folders}
        return [one for one in found if one.is_local_folder]

    @cache
    def is_ours(folder: str, is_of_table: bool) -> bool:
        return any(one.holds(PlaceIdentity.of(folder)) for one in ours(is_of_table))

    def is_published(path: str) -> bool:
        folder, name = posixpath.split(path)
        is_of_table, published = bool(_OF_TABLE.match(name)), _PUBLISHED.search(name)
        if "://" not in path and (is_of_table or published) and is_ours(folder, is_of_table):
            return True
        return published is not None and any(one in path for one in named) and has_committed(published[1])

    problems = {}
    for dataset in datasets:
        if path := next(filter(is_published, _paths(dataset, base_dir)), None):
            problems[dataset.dataset_urn] = (
                f"file {path}: this job has published it, and would read it again and again; take away what leads from "
                "the source's folders to it (a link, a mount, another name of its server), or publish elsewhere "
                "(`output.path`, or the `warehouse` of the table)"
            )
    return problems


def own_tables(
    job: JobSpec, context: RunContext, source: Source, datasets: Collection[str], known: Collection[str]
) -> dict[str, str]:
    """Return, by dataset.urn, why datasets cannot be read: their servers say that the job publishes to their tables.

    Job files tell it only if both name the server alike, and a table of PostgreSQL with its schema.

    Args:
        job: the job.
        context: of the run.
        source: the job's source.
        datasets: those to be read.
        known: those of the job, which have tables of their own.
    """
    if not isinstance(source, AsksServer) or not datasets:
        return {}
    # Who cannot be asked now tells it where rows are read or published.
    ours: dict[str, set[str]] = {}
    for branch, publisher in each_publisher(job, context.construct_context(job), AsksServer):
        with suppress(GobblinDagsterError):
            tables = publisher.server_tables(known) if isinstance(publisher, AsksServer) else {}
            ours[branch.name] = {table for one in tables.values() for table in one}
    read: Mapping[str, Collection[str]] = {}
    if any(ours.values()):  # most jobs publish files, and their source need not be asked
        with suppress(GobblinDagsterError):
            read = source.server_tables(datasets)
    return {
        urn: f"branch {name!r} publishes to it, by another name of its server or without its schema: each run would "
        "read again what the last one published; publish to another table or topic, or let the source leave this one "
        "out"
        for name, tables_of_branch in ours.items()
        for urn, found in read.items()
        if not tables_of_branch.isdisjoint(found)
    }


def _paths(dataset: DatasetPlan, base_dir: str) -> Iterator[str]:
    """Yield the files of a dataset's work units, as the source `files` names them; local ones as absolute paths."""
    for unit in dataset.work_units:
        files: Any = unit.read.get("files", ())
        for path in (file["path"] for file in files):
            yield path if "://" in path else os.path.join(base_dir, path)  # noqa: PTH118 - keeps the text
