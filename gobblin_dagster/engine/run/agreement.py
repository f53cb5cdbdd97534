"""Hold the work units of one publication to the schema contract among themselves, and to one order of columns.

Each unit was compared with what was published before, by its own task, which knows no other unit. Without this, one run
would publish columns side by side that a second run would be refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pyarrow as pa

from gobblin_dagster.constructs.quality.contract import Contract
from gobblin_dagster.constructs.types.columns import convert_error
from gobblin_dagster.constructs.types.schema_text import any_type_from_text, type_texts
from gobblin_dagster.constructs.types.wider import joined_text
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import ConvertError
from gobblin_dagster.core.task_state import TaskState
from gobblin_dagster.engine.task.branch import names_columns, widenings_of
from gobblin_dagster.engine.task.context import RunContext
from gobblin_dagster.spec.job import BranchSpec, JobSpec, SchemaContract


def require_agreement(job: JobSpec, states: Sequence[TaskState], context: RunContext) -> None:
    """Raise ConvertError if columns of a work unit break a contract with those of the units before it.

    Or if they are in other places, and the files do not name them.

    The whole dataset fails, whatever its commit policy: small units share files.

    Args:
        job: the job.
        states: the results of a dataset's work units that are published, in the order of the source.
        context: the run.
    """
    for branch in job.fork.branches:
        kind = branch.schema_contract or job.schema_contract
        texts = list(dict.fromkeys(state.schemas[branch.name] for state in states if branch.name in state.schemas))
        if kind is not None and len(texts) > 1:
            _compare(job, branch, kind, texts, states[0].dataset_urn, context)
        if not names_columns(job.writer_of(branch)):
            _require_places(texts, context.construct_context(job, states[0].dataset_urn, branch.name))


def _require_places(texts: Sequence[str], context: ConstructContext) -> None:
    orders = [[*type_texts(text)] for text in texts]
    most = max(orders, key=len, default=[])
    if other := next((order for order in orders if order != most[: len(order)]), None):
        problem = (
            f"its files have no header, and work units of this run have their columns in other places: "
            f"{', '.join(most[:20])}, and {', '.join(other[:20])}. Name them in one order with the converter `select`, "
            "or let the writer write a header"
        )
        raise convert_error(problem, "writer", context)


def _compare(
    job: JobSpec, branch: BranchSpec, kind: SchemaContract, texts: Sequence[str], urn: str, context: RunContext
) -> None:
    # What `discard` would leave out is written already, so these columns need only fit each other.
    is_strict = kind in {SchemaContract.FAIL, SchemaContract.FREEZE}
    as_kind = kind if is_strict else SchemaContract.EVOLVE
    construct_context, widens = context.construct_context(job, urn, branch.name), widenings_of(job, branch)
    expected = "the columns that other work units of this run have written"
    seen = texts[0]
    for text in texts[1:]:
        if (schema := _schema(text)) is not None:
            try:
                Contract(as_kind, seen, schema, construct_context, widens=widens, expected=expected)
            except ConvertError as error:
                raise dataclasses.replace(error, construct=f"schema contract '{kind}'") from error
        seen = joined_text(seen, text)


def _schema(text: str) -> pa.Schema | None:
    """Return the schema of a text; None if a type has no known text."""
    kinds = {name: any_type_from_text(kind) for name, kind in type_texts(text).items()}
    return None if None in kinds.values() else pa.schema(list(kinds.items()))
