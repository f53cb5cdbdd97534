"""Find columns that converters and publishers of a job name, but its declared rows do not have; no data is read.

Rows are declared by a source whose job file names all of its columns, and by the converter `schema`. For all others
the plan looks: see `schema_preview`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from gobblin_dagster.constructs.converters.schema import SchemaConverter
from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.constructs import ConstructContext, DeclaresSchema
from gobblin_dagster.core.errors import ConvertError, GobblinDagsterError, SpecFault
from gobblin_dagster.engine.task.branch import judge_of_rows
from gobblin_dagster.spec.job import BranchSpec, ConverterSpec, JobSpec


def unknown_columns(job: JobSpec, root: Path) -> tuple[SpecFault, ...]:
    """Return a fault for the first converter of the job, and of each branch, that does not fit the declared columns.

    A converter or source that this machine cannot make, for instance because a key is set only where tasks run, ends
    what is known.
    """
    context = ConstructContext(job=job.job, base_dir=str(root.resolve()))
    try:
        source = registry.create(ConstructKind.SOURCE, job.source, context)
        schema = source.declared_schema() if isinstance(source, DeclaresSchema) else None
    except GobblinDagsterError:
        schema = None
    faults: list[SpecFault] = []
    schema = _after("converters", job.converters, schema, context, faults)
    if not faults:
        for number, branch in enumerate(job.fork.branches):
            if _is_taken(job, branch, schema, context):
                place = f"fork.branches[{number}]"
                faults += _branch_faults(job, branch, place, schema, dataclasses.replace(context, branch=branch.name))
    return tuple(faults)


def _is_taken(job: JobSpec, branch: BranchSpec, schema: pa.Schema | None, context: ConstructContext) -> bool:
    """Return False if the fork operator leaves the branch out for rows of the schema, or cannot be asked."""
    if schema is None:
        return True
    names = [one.name for one in job.fork.branches]
    try:
        flags = registry.create(ConstructKind.FORK, job.fork.operator, context, branches=names).fork_schema(schema)
    except GobblinDagsterError:
        return False
    return bool(flags[names.index(branch.name)])


def _branch_faults(
    job: JobSpec, branch: BranchSpec, place: str, schema: pa.Schema | None, context: ConstructContext
) -> Iterator[SpecFault]:
    faults: list[SpecFault] = []
    schema = _after(f"{place}.converters", branch.converters, schema, context, faults)
    yield from faults
    judge = judge_of_rows(job, branch, context) if schema is not None else None
    if judge is not None and (why := judge.unfit_columns(job.to_extract(), schema)):
        yield SpecFault("publisher" if branch.publisher is None else f"{place}.publisher", why)


def _after(
    place: str,
    converters: Sequence[ConverterSpec],
    schema: pa.Schema | None,
    context: ConstructContext,
    faults: list[SpecFault],
) -> pa.Schema | None:
    """Return the schema after converters; None if it is not known. Adds the fault of the first that does not fit."""
    for number, spec in enumerate(converters):
        try:
            converter = registry.create(ConstructKind.CONVERTER, spec, context)
            if schema is not None:
                schema = converter.convert_schema(schema)
            elif isinstance(converter, SchemaConverter):
                schema = converter.declared
        except ConvertError as error:
            faults.append(SpecFault(f"{place}[{number}]", error.problem))
            return None
        except GobblinDagsterError:
            schema = None
    return schema
