"""Compare the schemas that a run will read with the published ones, before any row is read; the plan gets notes.

Works for sources that know their schema beforehand (columns of a table, footer of a file); for others there are no
notes. The columns go through the job's converters as in a task, and the branch's contract compares them with the last
published schema.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import pyarrow as pa

from gobblin_dagster.constructs.quality.contract import differences
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.constructs.types.columns import convert_error
from gobblin_dagster.core.constructs import Chunk, ConstructContext, PreviewsSchema, Source
from gobblin_dagster.core.errors import ConvertError, GobblinDagsterError
from gobblin_dagster.engine.plan.model import DatasetPlan, JobPlan
from gobblin_dagster.engine.task.branch import contract_of, judge_of_rows
from gobblin_dagster.engine.task.context import RunContext
from gobblin_dagster.engine.task.row_pipeline import RowPipeline
from gobblin_dagster.spec.job import PRE_FORK, BranchSpec, JobSpec

MOST_DATASETS = 20
"""Number of datasets that are checked: each may cost a request to a remote file system."""


def with_schema_notes(job: JobSpec, source: Source, runner: RunContext, plan: JobPlan) -> JobPlan:
    """Return the plan with a note for each column that is new, gone or changed, and for each failure to come of it.

    Checks the first work unit of the first `MOST_DATASETS` datasets that have work and were published before, or whose
    publisher needs certain columns.
    """
    if not isinstance(source, PreviewsSchema):
        return plan
    context = runner.construct_context(job)
    are_judged = any(judge_of_rows(job, branch, context) is not None for branch in job.fork.branches)
    chosen = [d.dataset_urn for d in plan.datasets if d.has_work and (d.previous_schemas or are_judged)][:MOST_DATASETS]
    noted = {
        dataset.dataset_urn: dataclasses.replace(dataset, notes=(*dataset.notes, *_notes(job, source, runner, dataset)))
        for dataset in plan.datasets
        if dataset.dataset_urn in chosen
    }
    return dataclasses.replace(plan, datasets=tuple(noted.get(d.dataset_urn, d) for d in plan.datasets))


def _notes(job: JobSpec, source: PreviewsSchema, runner: RunContext, dataset: DatasetPlan) -> Iterator[str]:
    context = runner.construct_context(job, dataset.dataset_urn)
    try:
        schema = source.preview_schema(dataset.work_units[0])
        if schema is None:
            return
        schema = RowPipeline(PRE_FORK, job.converters, (), context, _never).open(schema)
        fork = registry.create(
            ConstructKind.FORK, job.fork.operator, context, branches=[branch.name for branch in job.fork.branches]
        )
        flags = fork.fork_schema(schema)
    except (GobblinDagsterError, OSError) as error:
        yield f"its work units will fail: {error}"
        return
    for branch, is_there in zip(job.fork.branches, flags, strict=False):
        if is_there:
            yield from _branch_notes(job, branch, context, schema, dataset.previous_schemas)


def _branch_notes(
    job: JobSpec, branch: BranchSpec, context: ConstructContext, schema: pa.Schema, published: Mapping[str, str]
) -> Iterator[str]:
    previous = published.get(branch.name)
    kind = branch.schema_contract or job.schema_contract
    context = dataclasses.replace(context, branch=branch.name)
    try:
        found = RowPipeline(branch.name, branch.converters, (), context, _never).open(schema)
        notes = differences(previous, found, branch.name) if previous is not None else ()
        contract = contract_of(job, branch, previous, found, context)
        found = found if contract is None else contract.schema
        judge = judge_of_rows(job, branch, context)
        if judge is not None and (why := judge.unfit_columns(job.to_extract(), found)):
            raise convert_error(why, "publisher", context)
    except ConvertError as error:
        yield f"its work units will fail: {error}"
        return
    meant = (
        f"schema contract `{kind}` allows it" if kind is not None else "no schema contract: it is written as it comes"
    )
    yield from (f"{note} ({meant})." for note in notes)


def _never(chunk: Chunk, policy: str, reason: str, stage: str) -> None:
    """Ignore rejected rows; there are none because no row is read."""
