"""Make and check the publishers that a job declares."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.commit import body_digest
from gobblin_dagster.core.constructs import (
    ConstructContext,
    DataPublisher,
    DataWriter,
    KeepsLedger,
    ListsTableFiles,
    WriterContext,
)
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.same_place import PlaceIdentity
from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.traits import PublisherTraits, Widening, WriterTraits, traits_of
from gobblin_dagster.engine.commit.steps import load_own_steps
from gobblin_dagster.engine.task.branch import names_columns, widenings_of
from gobblin_dagster.engine.task.context import RunContext
from gobblin_dagster.engine.task.publishers import each_publisher
from gobblin_dagster.spec.job import ConstructSpec, JobSpec, SchemaContract
from gobblin_dagster.spec.load import output_root

_DIGITS = 16
_ANY_PROJECT = "/any/folder/of/a/project"


def make_publishers(job: JobSpec, context: RunContext, dataset_urn: str) -> dict[str, DataPublisher]:
    """Return the publisher of each branch for one publication of a dataset; raises as `Registry.create`."""
    made = each_publisher(job, context.construct_context(job, dataset_urn))
    return {branch.name: publisher for branch, publisher in made}


def branch_writers(
    job: JobSpec, context: RunContext, storage: Storage, dataset_urn: str, commit_id: str
) -> Callable[[str, pa.Schema], DataWriter]:
    """Return what makes the writer of a branch on the driver, for files that a publisher writes again."""
    branches = {branch.name: branch for branch in job.fork.branches}

    def make(name: str, schema: pa.Schema) -> DataWriter:
        where = WriterContext(
            storage=storage,
            staging_dir=context.staging_dir(commit_id),
            target_dir=job.dataset_folder(name, dataset_urn),
            file_stem=f"{commit_id}-merged",
            branch=name,
            dataset_urn=dataset_urn,
            schema=schema,
        )
        made = context.construct_context(job, dataset_urn, name)
        writer: DataWriter = registry.create(
            ConstructKind.WRITER, job.writer_of(branches[name]), made, writer_context=where
        )
        return writer

    return make


def publisher_traits(job: JobSpec, dataset_urn: str = "") -> dict[str, PublisherTraits]:
    """Return the traits of each branch's publisher, made for a dataset; raises as `Registry.create`."""
    made = each_publisher(job, ConstructContext(job=job.job, base_dir="", dataset_urn=dataset_urn))
    return {branch.name: traits_of(publisher, PublisherTraits) for branch, publisher in made}


def branch_homes(
    job: JobSpec, context: RunContext, publishers: Mapping[str, DataPublisher]
) -> dict[str, dict[str, str]]:
    """Return what holds the rows of each branch, and where, as `DatasetState.places` (see `branch_places`)."""
    homes = branch_places(job, context, publishers)
    return {
        name: {held: _as_stored(place, context.base_dir) for held, place in home.items()}
        for name, home in homes.items()
    }


def branch_places(
    job: JobSpec, context: RunContext, publishers: Mapping[str, DataPublisher]
) -> dict[str, dict[str, str]]:
    """Return what holds the rows of each branch (`PublisherTraits.holders`), and where, with values of variables.

    Nothing holds the rows of a branch that drops them, or whose writer only shows them. Places have `{dataset}` where
    datasets differ.
    """
    found = {}
    branches = {branch.name: branch for branch in job.fork.branches}
    for name, publisher in publishers.items():
        traits = traits_of(publisher, PublisherTraits)
        folder = f"{context.output_root}/{job.folder_of_datasets(name)}"
        elsewhere = f"{folder}/{traits.keeps_rows_in}".rstrip("/") if traits.is_in_output else traits.keeps_rows_in
        holders = traits.holders if _stages_files(job.writer_of(branches[name])) else ()
        places = ((held, folder if held == "files" else elsewhere) for held in holders)
        found[name] = dict(places)
    return found


def declared_places(job: JobSpec) -> list[str]:
    """Return where a job's rows will be, as far as its file tells it: references to variables stand as they are.

    Two jobs of one project that say in the same words where their rows go have a place in common. Classes of users are
    not imported: a service asks this of whatever is posted, and only the job's executor knows what it may run.
    """
    context = RunContext("", "", _ANY_PROJECT, output_root(Path(_ANY_PROJECT), job.output.path))
    found: list[str] = []
    for branch in job.fork.branches:
        spec = job.publisher_of(branch)
        if ":" in spec.type or ":" in job.writer_of(branch).type:
            folder = f"{context.output_root}/{job.folder_of_datasets(branch.name)}"
            found.append(json.dumps([spec.model_dump(mode="json"), folder], sort_keys=True))
            continue
        places: Iterable[str] = [""]
        with suppress(Exception):  # any error of a reference that stands for a value, or of a package that is missing
            publisher = registry.create(
                ConstructKind.PUBLISHER, spec, context.construct_context(job, "any", branch.name)
            )
            places = branch_homes(job, context, {branch.name: publisher})[branch.name].values()
        found += [place or json.dumps(spec.model_dump(mode="json"), sort_keys=True) for place in places]
    return found


def _stages_files(writer: ConstructSpec) -> bool:
    return traits_of(registry.load(ConstructKind.WRITER, writer.type), WriterTraits).stages_files


def _as_stored(place: str, base_dir: str) -> str:
    """Return a place relative to the project, whose folder may be moved with all that it holds.

    Values of variables are never stored. Digests tell a place from those of other values: one of its text, as older
    programs stored it alone, and one of each text of its identity.
    """
    # Places elsewhere may have the project's path in theirs: `/mnt/shop/lake`, `s3://lake/shop/n` beside `/shop`.
    inside_base = partial(re.compile(rf"^((?:[\w+]*:///)?){re.escape(base_dir.rstrip('/'))}/").sub, r"\1")
    inside = inside_base(place)
    shown = hidden(inside)
    if shown == inside:
        return inside
    texts = (inside, *map(inside_base, PlaceIdentity.of(place, base_dir).texts))
    return f"{shown} ({' '.join(dict.fromkeys(body_digest(text)[:_DIGITS] for text in texts))})"


def inferred_widenings(job: JobSpec) -> frozenset[Widening]:
    """Return how inferred types of published datasets may become wider, as all branches allow.

    In no way if a branch has another contract than `evolve`, or names folders by values, whose texts would change.
    Raises as `Registry.load`.
    """
    branches = job.fork.branches
    if any((branch.schema_contract or job.schema_contract) is not SchemaContract.EVOLVE for branch in branches):
        return frozenset()
    if any(job.writer_of(branch).options.get("partition_by") for branch in branches):
        return frozenset()
    return frozenset.intersection(*(widenings_of(job, branch) for branch in branches))


def may_be_open(job: JobSpec) -> Callable[[str], bool]:
    """Return what tells whether a column that has had no value yet may be left out (`SourceContext.may_be_open`).

    In no job whose converters, row policies or own classes may name it, whose contract takes no new columns, whose
    files do not name their columns, or which changes rows: null may replace a value there. And no column that an option
    or the extract names.
    """
    branches = job.fork.branches
    takes_new = {None, SchemaContract.EVOLVE, SchemaContract.FAIL}
    parts = [job.fork.operator, *job.commit.steps]
    for branch in branches:
        parts += [job.writer_of(branch), job.publisher_of(branch), *job.task_policies_of(branch)]
    if (
        any((branch.schema_contract or job.schema_contract) not in takes_new for branch in branches)
        or job.converters
        or job.row_policies
        or any((*branch.converters, *branch.row_policies) for branch in branches)
        or any(":" in part.type or not names_columns(part) for part in parts)
        or job.extract.reads_everything
        or any(traits.on_again in ("upsert", "history") for traits in publisher_traits(job).values())
    ):
        return lambda _: False
    texts = [job.extract.primary_keys, job.extract.delta_fields, *(part.options for part in parts)]
    named = json.dumps(texts, default=str)
    return lambda name: not re.search(rf"(?<!\w){re.escape(json.dumps(name)[1:-1])}(?!\w)", named, re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LedgerKeeper:
    """A target of a job that lists its commits."""

    publisher: KeepsLedger
    branches: tuple[str, ...]
    """The branches that are published to it; a commit may have rows of some of them only."""
    suffers_again: bool
    """Whether a commit that is published again does harm: its rows come twice, or take the place of newer ones."""


def ledger_keepers(job: JobSpec, context: RunContext) -> list[LedgerKeeper]:
    """Return the targets that list their commits.

    Left out are those that lose no row for long if they are set back, because the next publication has all rows.

    Raises as `Registry.create`.
    """
    is_ordered = bool(job.extract.delta_fields) or job.extract.reads_everything
    targets: list[tuple[ConstructSpec, str]] = []
    found: list[LedgerKeeper] = []
    for branch in job.fork.branches:
        spec = job.publisher_of(branch)
        # Other publishers are made for a publication of one dataset only.
        cls = registry.load(ConstructKind.PUBLISHER, spec.type)
        if not hasattr(cls, "newest_commits"):
            continue
        target = (spec, branch.name if traits_of(cls, PublisherTraits, "is_in_output").is_in_output else "")
        if target in targets:
            place = targets.index(target)
            found[place] = replace(found[place], branches=(*found[place].branches, branch.name))
            continue
        publisher = registry.create(ConstructKind.PUBLISHER, spec, context.construct_context(job, branch=branch.name))
        traits = traits_of(publisher, PublisherTraits)
        merges = traits.on_again in {"upsert", "history"}
        if traits.on_again == "replace" or (merges and job.extract.reads_everything):
            continue
        if isinstance(publisher, KeepsLedger):
            targets.append(target)
            harmless = traits.keeps_order or (merges and is_ordered)
            found.append(LedgerKeeper(publisher, (branch.name,), not harmless))
    return found


def file_listers(job: JobSpec, context: RunContext) -> list[tuple[ListsTableFiles, str]]:
    """Return the publishers whose tables list data files, each with one branch; raises as `Registry.create`."""
    targets: list[tuple[ConstructSpec, str]] = []
    found: list[tuple[ListsTableFiles, str]] = []
    for branch in job.fork.branches:
        spec = job.publisher_of(branch)
        cls = registry.load(ConstructKind.PUBLISHER, spec.type)
        target = (spec, branch.name if traits_of(cls, PublisherTraits, "is_in_output").is_in_output else "")
        if not hasattr(cls, "held_files") or target in targets:
            continue
        publisher = registry.create(ConstructKind.PUBLISHER, spec, context.construct_context(job, branch=branch.name))
        if isinstance(publisher, ListsTableFiles):
            targets.append(target)
            found.append((publisher, branch.name))
    return found


def dataset_folders(job: JobSpec, dataset_urn: str) -> dict[str, str]:
    """Return the folder of each branch's files of a dataset, relative to the output's root."""
    return {branch.name: job.dataset_folder(branch.name, dataset_urn) for branch in job.fork.branches}


def load_step_types(job: JobSpec) -> None:
    """Import the step types of a job's publishers and its custom steps, so that stored sequences can be loaded.

    Raises:
        UsageError: a type is unknown or cannot be imported.
    """
    load_own_steps(job.commit.steps)
    for branch in job.fork.branches:
        registry.load(ConstructKind.PUBLISHER, job.publisher_of(branch).type)


def branches_without_files(job: JobSpec) -> set[str]:
    """Return the branches that never publish a file: their writer only shows rows, or their publisher drops them."""
    unstaged = {branch.name for branch in job.fork.branches if not _stages_files(job.writer_of(branch))}
    return unstaged | {name for name, traits in publisher_traits(job).items() if not traits.publishes_files}


def replaced_branches(job: JobSpec) -> set[str]:
    """Return the branches whose publications may remove files of earlier ones from the snapshot."""
    return {name for name, traits in publisher_traits(job).items() if traits.reads_current}


def published_elsewhere(job: JobSpec) -> dict[str, str]:
    """Return the branches that are also published to a table or topic, with its description."""
    traits = publisher_traits(job)
    return {name: one.published_elsewhere for name, one in traits.items() if one.published_elsewhere}


def require_only_files(job: JobSpec, doing: str) -> None:
    """Refuse an action that is possible only for branches published as files.

    Raises:
        UsageError: a branch is published to a table or topic.
    """
    for branch, elsewhere in published_elsewhere(job).items():
        raise UsageError(
            problem=f"Job {job.job!r} cannot be {doing}: branch {branch!r} is published to {elsewhere}, which keeps "
            "its rows.",
            hint="`gobblin state set` moves the watermark alone; then delete the rows that the table gets twice.",
        )
