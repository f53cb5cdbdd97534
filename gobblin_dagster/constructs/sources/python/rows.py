"""Convert rows of a user's function to record batches; refuse values that Arrow would cut silently."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from gobblin_dagster.constructs.types.arrow import is_list, levels_of
from gobblin_dagster.constructs.types.losses import first_loss
from gobblin_dagster.constructs.types.nesting import MAX_LEVELS, deep_problem, first_deep
from gobblin_dagster.constructs.types.strict_cast import strict_cast
from gobblin_dagster.core.utils.duplicates import repeated

_REFUSED = (pa.ArrowException, KeyError, ArithmeticError, TypeError, ValueError)
"""Exceptions of Arrow and Python for values that do not fit."""
_MAX_TEXT = 80
_MISSING = ("NaTType", "NAType")
"""Classes of pandas' missing values, which Arrow accepts only in whole columns of pandas."""


class MisfitError(Exception):
    """Rows do not fit their columns."""

    def __init__(self, problem: str, index: int = 0, *, is_solvable: bool = True) -> None:
        super().__init__(problem)
        self.problem = problem
        self.index = index
        """Index of the first row that does not fit."""
        self.is_solvable = is_solvable
        """Whether declaring `columns` may help."""


def as_batch(rows: list[dict[str, Any]] | pa.RecordBatch, schema: pa.Schema | None) -> pa.RecordBatch:
    """Return rows as a batch with the given schema; without one, with all fields of all rows.

    Raises:
        MisfitError: a row has a field that the schema lacks (also inside structs), or a value that does not fit, or
            is nested too deep.
    """
    if isinstance(rows, pa.RecordBatch):
        return _batch(rows, schema)
    known = None if schema is None else set(schema.names)
    for index, row in enumerate(rows):
        if known is None or not row.keys() <= known:
            _refuse_names([name for name in row if not isinstance(name, str)], index)
            _refuse_fields([] if known is None else sorted(row.keys() - known), index)
    names = list(dict.fromkeys(name for row in rows for name in row)) if schema is None else schema.names
    values = [[row.get(name) for row in rows] for name in names]
    for name, column in zip(names, values, strict=True):
        if (deep := first_deep(column)) is not None:
            problem = f"yielded in the column {name} {deep_problem(column[deep])}"
            raise MisfitError(problem, deep, is_solvable=False)
    try:
        if schema is None:
            batch = pa.RecordBatch.from_pydict(dict(zip(names, values, strict=True)))
        else:
            arrays = [pa.array(column, field.type) for field, column in zip(schema, values, strict=True)]
            batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        loss = first_loss(rows, batch.schema)
    except MemoryError:
        raise
    except _REFUSED as error:
        raise _misfit(rows, names, schema, error) from error
    if loss:
        raise MisfitError(f"yielded {loss[1]}", loss[0])
    return batch


def _batch(rows: pa.RecordBatch, schema: pa.Schema | None) -> pa.RecordBatch:
    names = rows.schema.names
    if twice := repeated(names):
        raise MisfitError(f"yielded a RecordBatch with more than one column {', '.join(twice)}", is_solvable=False)
    # The row is a level, and so is a plain value.
    if too_deep := [field.name for field in rows.schema if levels_of([field.type]) > MAX_LEVELS]:
        problem = f"yielded in the column {too_deep[0]} values nested more than {MAX_LEVELS} levels deep"
        raise MisfitError(problem, is_solvable=False)
    if schema is None or rows.schema.equals(schema):
        return rows
    _refuse_fields(sorted(set(names) - set(schema.names)), 0)
    if lacking := sorted(set(schema.names) - set(names)):
        raise MisfitError(f"yielded a RecordBatch without the column(s) {', '.join(lacking)}")
    columns = []
    for field in schema:
        given = rows.column(field.name)
        if unfit := _unfit(given.type, field.type, field.name):
            raise MisfitError(f"yielded {unfit}")
        try:
            columns.append(strict_cast(given, field.type))
        except MemoryError:
            raise
        except _REFUSED as error:
            problem = f"yielded {given.type} for the column {field.name}, which is {field.type}: {error}"
            raise MisfitError(problem.rstrip(".")) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _unfit(given: pa.DataType, wanted: pa.DataType, name: str) -> str:
    """Return what a cast between two types would lose in every value; empty if it loses nothing."""
    is_time = pa.types.is_timestamp(given)
    has_other_zone = is_time and pa.types.is_timestamp(wanted) and (given.tz is None) != (wanted.tz is None)
    if (has_other_zone and wanted.tz != "UTC") or (is_time and pa.types.is_date(wanted)):
        return f"{given} for the column {name}, which is {wanted}"
    if is_list(given) and is_list(wanted):
        return _unfit(given.value_type, wanted.value_type, name)
    if not (pa.types.is_struct(given) and pa.types.is_struct(wanted)):
        return ""
    inside = {field.name: field.type for field in wanted}
    if new := [f"{name}.{field.name}" for field in given if field.name not in inside]:
        return f"the field(s) {', '.join(new)}, which its columns lack"
    parts = (_unfit(field.type, inside[field.name], f"{name}.{field.name}") for field in given)
    return next(filter(None, parts), "")


def _misfit(
    rows: Sequence[dict[str, Any]], names: list[str], schema: pa.Schema | None, error: Exception
) -> MisfitError:
    """Return an error that names the row and the value that Arrow refused."""
    for name in names:
        kind = None if schema is None else schema.field(name).type
        values = [row.get(name) for row in rows]
        if (problem := _refused(values, kind)) is None:
            continue
        # Search the shortest beginning that Arrow refuses: its last row has the bad value.
        index = bisect_left(range(len(values)), True, key=lambda at: _refused(values[: at + 1], kind) is not None)
        value = values[index]
        if value.__class__.__name__ in _MISSING:
            problem = f"yielded {value} in the column {name}, expected None for what is missing"
            return MisfitError(problem, index, is_solvable=False)
        text = repr(value)
        shown = text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
        wanted = f", which is {kind}" if kind is not None else " beside values of another kind" if index else ""
        reason = _refused(values[: index + 1], kind) or problem
        return MisfitError(f"yielded {shown} in the column {name}{wanted}: {reason}", index)
    return MisfitError(f"yielded rows that do not fit their columns: {error}")


def _refused(values: list[Any], kind: pa.DataType | None) -> str | None:
    """Return Arrow's reason to refuse the values; None if it accepts them."""
    try:
        pa.array(values, kind)
    except _REFUSED as error:
        return str(error).rstrip(".")
    return None


def _refuse_fields(names: list[str], index: int) -> None:
    if names:
        raise MisfitError(f"yielded the field(s) {', '.join(names)}, which its columns lack", index)


def _refuse_names(names: list[Any], index: int) -> None:
    if names:
        shown = ", ".join(map(repr, names[:5]))
        raise MisfitError(f"yielded the field(s) {shown}, expected texts as names", index, is_solvable=False)
