"""FilterConverter: keep rows by the value of one column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import model_validator

from gobblin_dagster.constructs.options.column_regexes import ColumnRegex, match_whole
from gobblin_dagster.constructs.types.arrow import decoded, is_text, value_type
from gobblin_dagster.constructs.types.columns import convert_error, require_columns
from gobblin_dagster.constructs.types.strict_cast import strict_cast
from gobblin_dagster.core.constructs import Chunk, ConstructContext
from gobblin_dagster.spec.job import SpecModel

_NAME = "converter 'filter'"


class FilterConverter:
    """Keep rows whose column equals a value, or whose whole text matches a regular expression; null does neither.

    Shape: all columns; the rows kept, in their order.

    Source: gobblin-core `AvroFilterConverter`, `StringFilterConverter`. Differs: a pattern is required; without one
    Gobblin drops every row.
    """

    class Options(SpecModel):
        """Options of `type: filter`; `equals` or `matches`."""

        column: str
        """Column to test."""
        equals: str | int | float | bool | tuple[str | int | float, ...] | None = None
        """A value, or a list of values, one of them to be equal; compared in the column's type."""
        matches: ColumnRegex | None = None
        """Regular expression (RE2) that the whole text must match."""
        keep: bool = True
        """False: keep the other rows instead, including those with null."""

        @model_validator(mode="after")
        def _one_test(self) -> Self:
            if (self.equals is None) == (self.matches is None):
                raise ValueError("expected equals or matches, one of both")
            return self

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._options = options
        self._context = context

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        column = self._options.column
        require_columns([column], schema, _NAME, self._context)
        kind = schema.field(column).type
        if self._options.matches is not None and not is_text(kind):
            raise convert_error(f"column {column!r}: expected text to match, got {kind}", _NAME, self._context)
        if self._options.equals is not None:
            self._values(kind)
        return schema

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        options, column = self._options, decoded(chunk.batch.column(self._options.column))
        if options.matches is not None:
            found = pc.fill_null(match_whole(column, options.matches), False)
        else:
            found = pc.is_in(column, value_set=self._values(column.type))
        mask = found if options.keep else pc.invert(found)
        if mask.true_count:
            yield chunk.filter(mask)

    def _values(self, kind: pa.DataType) -> pa.Array:
        given = self._options.equals
        kind = value_type(kind)
        try:
            values = strict_cast(pa.array(given if isinstance(given, tuple) else (given,)), kind)
            pc.is_in(values, value_set=values)  # Arrow cannot compare all types
            return values
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            problem = f"column {self._options.column!r}: expected a value of type {kind} in `equals`, got {given!r}"
            raise convert_error(problem, _NAME, self._context) from error
