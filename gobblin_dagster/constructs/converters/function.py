"""FunctionConverter: call a function of the user on records or on batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field, StringConstraints

from gobblin_dagster.constructs.records import load_object, records
from gobblin_dagster.constructs.types.arrow import has_part, leaves
from gobblin_dagster.constructs.types.columns import convert_error
from gobblin_dagster.constructs.types.losses import first_loss
from gobblin_dagster.constructs.types.shapes import Shape, arrow_shape
from gobblin_dagster.core.constructs import Chunk, ConstructContext
from gobblin_dagster.core.errors import ConvertError
from gobblin_dagster.core.utils.text import shown
from gobblin_dagster.spec.job import SpecModel

_NAME = "converter 'function'"
_NANO_TIME = pa.time64("ns")
_MISFITS = (pa.ArrowException, OverflowError, TypeError, ValueError, RecursionError)
"""Exceptions of Arrow for values that do not fit their column."""


class FunctionConverter:
    """Call `f(record: dict) -> dict | list[dict] | None` for each row, or `f(batch: RecordBatch) -> RecordBatch`.

    Records are copies, so the function cannot change rows of other branches. Rows made of one record keep its row
    number in the source; rows of a batch function keep theirs if it returns as many rows, otherwise they have none. An
    exception of the function is an error of the row, or of the batch.

    Shape: the columns of `columns`, or those of the input; by record, any number of rows per row, in order.

    Source: gobblin-core `Converter.convertRecord`, as a function.
    """

    class Options(SpecModel):
        """Options of `type: function`."""

        function: Annotated[str, StringConstraints(pattern=r"^[\w.]+:[\w.]+$")]
        """`module:name`; the module may be in the project folder."""
        by: Literal["record", "batch"] = "record"
        """What the function gets: one `record` or a whole `batch`."""
        columns: dict[str, Shape] | None = Field(default=None, min_length=1)
        """Shapes of the columns that the function returns; default: those that it gets."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._options = options
        self._context = context
        self._function: Callable[[Any], Any] = load_object(options.function, _NAME)
        shapes = options.columns
        self._declared = None if shapes is None else pa.schema([(n, arrow_shape(s)) for n, s in shapes.items()])

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        return self._declared or schema

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        schema = self.convert_schema(chunk.batch.schema)
        made = self._by_record(chunk, schema) if self._options.by == "record" else self._by_batch(chunk, schema)
        if made.batch.num_rows:
            yield made

    def _by_record(self, chunk: Chunk, schema: pa.Schema) -> Chunk:
        for field, values in zip(chunk.batch.schema, chunk.batch.columns, strict=True):
            if has_part(field.type, _NANO_TIME.equals) and _has_nanos(values):
                problem = f"column {field.name!r} has times of day with nanoseconds, which Python's have not"
                raise self._error(f"{problem}: take the rows by batch", chunk, None)
        lists = [self._records(record, schema, chunk, at) for at, record in enumerate(records(chunk.batch))]
        parents = [at for at, made in enumerate(lists) for _ in made]
        rows = list(itertools.chain.from_iterable(lists))
        try:
            if loss := first_loss(rows, schema):
                raise self._error(f"it returned {loss[1]}", chunk, parents[loss[0]])
            batch = pa.RecordBatch.from_pylist(rows, schema=schema)
        except MemoryError:
            raise
        except _MISFITS as error:
            for at, made in enumerate(lists):
                self._check(made, schema, chunk, at)
            raise self._error(f"it returned values that do not fit {schema}: {error}", chunk, None) from error
        return Chunk(batch, chunk.file, chunk.rows.take(pa.array(parents, pa.int64())))

    def _records(self, record: dict[str, Any], schema: pa.Schema, chunk: Chunk, at: int) -> list[dict[str, Any]]:
        try:
            made = self._function(record)
        except MemoryError:  # no fault of the row
            raise
        except Exception as error:  # any exception of a user's function is an error of this row
            raise self._error(f"it raised {type(error).__name__}: {error}", chunk, at) from error
        if made is None:
            return []
        rows = made if isinstance(made, list) else [made]
        for row in rows:
            if not isinstance(row, dict):
                raise self._error(f"expected a dict, a list of dicts or None, got {shown(made)}", chunk, at)
            if not row.keys() <= set(schema.names):
                unknown = ", ".join(sorted(map(repr, row.keys() - set(schema.names))))
                raise self._error(f"expected columns {', '.join(schema.names)}; it returned also {unknown}", chunk, at)
        return rows

    def _check(self, made: list[dict[str, Any]], schema: pa.Schema, chunk: Chunk, at: int) -> None:
        """Raise the error of the first value that does not fit its column."""
        for row in made:
            for field in schema:
                try:
                    pa.array([row.get(field.name)], field.type)
                except _MISFITS as error:
                    got = shown(row.get(field.name))
                    raise self._error(f"column {field.name!r}: expected {field.type}, got {got}", chunk, at) from error

    def _by_batch(self, chunk: Chunk, schema: pa.Schema) -> Chunk:
        try:
            batch = self._function(chunk.batch)
        except MemoryError:  # no fault of the rows
            raise
        except Exception as error:  # any exception of a user's function is an error of this batch
            raise self._error(f"it raised {type(error).__name__}: {error}", chunk, None) from error
        if not isinstance(batch, pa.RecordBatch) or not batch.schema.equals(schema):
            got = batch.schema if isinstance(batch, pa.RecordBatch) else type(batch).__name__
            raise self._error(f"expected a RecordBatch of {_flat(schema)}; got {_flat(got)}", chunk, None)
        is_same = batch.num_rows == chunk.batch.num_rows
        return Chunk(batch, chunk.file, chunk.rows if is_same else pa.nulls(batch.num_rows, pa.int64()))

    def _error(self, problem: str, chunk: Chunk, at: int | None) -> ConvertError:
        row = None if at is None else chunk.rows[at].as_py()
        where = "" if row is None else f"row {row}: "
        return convert_error(f"{where}{self._options.function}: {problem}", _NAME, self._context, chunk.file)


def _has_nanos(values: pa.Array) -> bool:
    """Return whether a time of day in a column, at any depth, has nanoseconds."""
    times = (part.drop_null() for part in leaves(values) if part.type.equals(_NANO_TIME))
    return any((part.view(pa.int64()).to_numpy() % 1000).any() for part in times)


def _flat(schema: object) -> str:
    return ", ".join(str(schema).split("\n"))
