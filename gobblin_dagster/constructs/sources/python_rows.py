"""Rows of a user's function as record batches; what Arrow would leave out of them without a word is refused."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa


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
        for field in schema:
            _refuse_losses([row.get(field.name) for row in rows], field)
        return pa.RecordBatch.from_pylist(rows, schema=schema)
    except (pa.ArrowException, KeyError, OverflowError, TypeError, UnicodeError) as error:
        raise MisfitError(f"yielded rows that do not fit their columns: {error}") from error


def _refuse_fields(names: list[str], index: int) -> None:
    if names:
        raise MisfitError(f"yielded the field(s) {', '.join(names)}, which its columns lack", index)


def _refuse_losses(values: list[Any], field: pa.Field) -> None:
    if pa.types.is_nested(field.type) or pa.types.is_integer(field.type):
        for index, value in enumerate(values):
            if value.__class__ is not int and (problem := _loss(value, field.type, field.name)):
                raise MisfitError(f"yielded {problem}", index)


def _loss(value: Any, kind: pa.DataType, name: str) -> str:
    """Say what of a value its type would leave out; nothing where it holds all of it, or refuses it by itself."""
    if pa.types.is_integer(kind):
        is_cut = isinstance(value, float | Decimal) and value % 1 != 0
        return f"{value} in the column {name}, which holds whole numbers" if is_cut else ""
    if pa.types.is_struct(kind) and isinstance(value, dict):
        inner = {field.name: field.type for field in kind}
        if new := sorted(value.keys() - inner.keys()):
            return f"the field(s) {', '.join(f'{name}.{one}' for one in new)}, which its columns lack"
        return next(filter(None, (_loss(one, inner[key], f"{name}.{key}") for key, one in value.items())), "")
    if pa.types.is_list(kind) and isinstance(value, list | tuple):
        return next(filter(None, (_loss(one, kind.value_type, name) for one in value)), "")
    return ""
