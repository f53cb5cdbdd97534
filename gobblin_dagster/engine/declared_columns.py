"""Find columns that the parts of a job name, but its declared rows do not have; no data is read.

Converters, row policies, the fork, `partition_by` of writers and publishers are asked, in the order of a task.

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
from gobblin_dagster.constructs.types.arrow import no_rows
from gobblin_dagster.constructs.types.plain import plain_schema
from gobblin_dagster.constructs.writers.files import FileOptions, FileWriter
from gobblin_dagster.constructs.writers.partitions import Partitioner
from gobblin_dagster.core.constructs import ConstructContext, DeclaresSchema
from gobblin_dagster.core.errors import ConvertError, GobblinDagsterError, SpecFault, UsageError
from gobblin_dagster.engine.task.branch import judge_of_rows
from gobblin_dagster.spec.job import BranchSpec, ConstructSpec, ConverterSpec, JobSpec, RowPolicySpec


def unknown_columns(job: JobSpec, root: Path) -> tuple[SpecFault, ...]:
    """Return the faults of the parts that do not fit the declared columns: of the job's, else of each branch's.

    Only the first converter that does not fit is told. A converter or source that this machine cannot make, for
    instance because a key is set only where tasks run, ends what is known.
    """
    context = ConstructContext(job=job.job, base_dir=str(root.resolve()))
    faults: list[SpecFault] = []
    schema = _declared(job, context, faults)
    schema = _after("", job, schema, context, faults)
    if not faults:
        taken = _taken(job, schema, context, faults)
        for number, branch in enumerate(job.fork.branches):
            if branch.name in taken:
                place = f"fork.branches[{number}]."
                faults += _branch_faults(job, branch, place, schema, dataclasses.replace(context, branch=branch.name))
    return tuple(faults)


def _declared(job: JobSpec, context: ConstructContext, faults: list[SpecFault]) -> pa.Schema | None:
    """Return the columns that the source declares; None if they are not known. Adds a fault of the declaration."""
    try:
        source = registry.create(ConstructKind.SOURCE, job.source, context)
        return source.declared_schema() if isinstance(source, DeclaresSchema) else None
    except UsageError as error:
        faults.append(SpecFault("source", f"{error.problem} {error.hint}"))
    except GobblinDagsterError:
        pass
    return None


def _taken(
    job: JobSpec, schema: pa.Schema | None, context: ConstructContext, faults: list[SpecFault]
) -> frozenset[str]:
    """Return the branches that the fork operator gives rows of the schema to; none if it cannot be asked.

    Adds its fault.
    """
    names = [one.name for one in job.fork.branches]
    if schema is None:
        return frozenset(names)
    try:
        flags = registry.create(ConstructKind.FORK, job.fork.operator, context, branches=names).fork_schema(schema)
    except ConvertError as error:
        faults.append(SpecFault("fork.operator", error.problem))
    except GobblinDagsterError:
        pass
    else:
        return frozenset(name for name, flag in zip(names, flags, strict=False) if flag)
    return frozenset()


def _branch_faults(
    job: JobSpec, branch: BranchSpec, place: str, schema: pa.Schema | None, context: ConstructContext
) -> Iterator[SpecFault]:
    faults: list[SpecFault] = []
    schema = _after(place, branch, schema, context, faults)
    yield from faults
    if schema is None:
        return
    if why := _unfit_folders(job.writer_of(branch), schema, context):
        yield SpecFault("writer" if branch.writer is None else f"{place}writer", why)
    judge = judge_of_rows(job, branch, context)
    if judge is not None and (why := judge.unfit_columns(job.to_extract(), schema)):
        yield SpecFault("publisher" if branch.publisher is None else f"{place}publisher", why)


def _unfit_folders(spec: ConstructSpec, schema: pa.Schema, context: ConstructContext) -> str:
    """Return why a writer cannot make the folders of its `partition_by`; empty if it can, or has none."""
    writer = registry.load(ConstructKind.WRITER, spec.type)
    if not issubclass(writer, FileWriter) or not spec.options.get("partition_by"):
        return ""
    options: FileOptions = registry.load(ConstructKind.WRITER, spec.type).Options.model_validate(spec.options)
    try:
        Partitioner(options.partition_by, schema, options.keep_partition_columns, context)
    except ValueError as error:
        return f"{error}."
    except ConvertError as error:
        return error.problem
    except GobblinDagsterError:
        pass
    return ""


def _after(
    place: str,
    parts: JobSpec | BranchSpec,
    schema: pa.Schema | None,
    context: ConstructContext,
    faults: list[SpecFault],
) -> pa.Schema | None:
    """Return the schema after the converters of a job or branch; None if it is not known.

    Adds the fault of the first converter that does not fit, and of row policies.
    """
    schema = _converted(f"{place}converters", parts.converters, schema, context, faults)
    for number, spec in enumerate(parts.row_policies):
        if schema is not None and (why := _unfit_policy(spec, schema, context)):
            faults.append(SpecFault(f"{place}row_policies[{number}]", why))
    return schema


def _unfit_policy(spec: RowPolicySpec, schema: pa.Schema, context: ConstructContext) -> str:
    """Return why a row policy cannot check rows of a schema; empty if it can, or if this machine cannot make it."""
    try:
        policy = registry.create(ConstructKind.ROW_POLICY, spec, dataclasses.replace(context, name=spec.name))
        policy.check(no_rows(schema))
    except ConvertError as error:
        return error.problem
    except Exception:  # noqa: BLE001  # a policy of the user's own need not take a batch without rows; the run tells
        return ""
    return ""


def _converted(
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
                schema = plain_schema(converter.convert_schema(schema))
            elif isinstance(converter, SchemaConverter):
                schema = converter.declared
        except ConvertError as error:
            faults.append(SpecFault(f"{place}[{number}]", error.problem))
            return None
        except GobblinDagsterError:
            schema = None
    return schema
