"""Rows of a user's function as record batches; what Arrow would leave out of them without a word is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from gobblin_dagster.constructs.losses import first_loss


class MisfitError(Exception):
    """Rows do not fit their columns."""

    def __init__(self, problem: str, index: int = 0) -> None:
        super().__init__(problem)
        self.problem = problem
        self.index = index
        """Index of the row that does not."""


def as_batch(rows: list[dict[str, Any]] | pa.RecordBatch, schema: pa.Schema | None) -> pa.RecordBatch:
    """Return rows as a batch of a schema; None: the columns are all fields that any of the rows has.

    Raises:
        MisfitError: a row has a field that the schema lacks, in a struct too, or a value that does not fit its column.
    """
    try:
        if isinstance(rows, pa.RecordBatch):
            if schema is not None:
                _refuse_fields(sorted(set(rows.schema.names) - set(schema.names)), 0)
            return rows if schema is None else rows.select(schema.names).cast(schema)
        if schema is None:
            names = dict.fromkeys(name for row in rows for name in row)
            return pa.RecordBatch.from_pydict({name: [row.get(name) for row in rows] for name in names})
        known = set(schema.names)
        for index, row in enumerate(rows):
            if not row.keys() <= known:
                _refuse_fields(sorted(row.keys() - known), index)
        if loss := first_loss(rows, schema):
            raise MisfitError(f"yielded {loss[1]}", loss[0])
        return pa.RecordBatch.from_pylist(rows, schema=schema)
    except (pa.ArrowException, KeyError, OverflowError, TypeError, ValueError) as error:
        raise MisfitError(f"yielded rows that do not fit their columns: {error}") from error


def _refuse_fields(names: list[str], index: int) -> None:
    if names:
        raise MisfitError(f"yielded the field(s) {', '.join(names)}, which its columns lack", index)
