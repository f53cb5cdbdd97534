"""SqlConverter: filter rows and compute columns with SQL expressions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from gobblin_dagster.constructs.converters.blame import on_rows
from gobblin_dagster.constructs.sql.masks import SqlMasks
from gobblin_dagster.constructs.sql.select import SqlSelect
from gobblin_dagster.constructs.sql.syntax import SqlExpression, SqlSelectList
from gobblin_dagster.constructs.types.columns import HIDDEN_PREFIX
from gobblin_dagster.core.constructs import Chunk, ConstructContext
from gobblin_dagster.core.errors import ConvertError
from gobblin_dagster.core.utils.duplicates import repeated
from gobblin_dagster.spec.job import SpecModel

_ROW = f"{HIDDEN_PREFIX}row"
"""Column of row numbers that DuckDB must return unchanged: proof that each row came back once, in its place."""

_ROW_BY_ROW = "each row must be computed from that row alone"


class SqlConverter:
    """Keep the rows for which `where` is true, then compute the columns of `select`.

    Rows keep their order and their row numbers in the source. `select` sees one batch at a time, so anything that needs
    more than one row (aggregates, DISTINCT, ORDER BY, unnest) is refused.

    Shape: takes any batch; returns the columns of `select`, or all columns without it. A column that keeps its name
    keeps its time zone and its large or view type.

    Source: gobblin-core `AvroFilterConverter`, `AvroFieldsPickConverter`. Differs: SQL, not one field and one value.
    """

    class Options(SpecModel):
        """Options of `type: sql`."""

        select: SqlSelectList | None = Field(default=None, min_length=1)
        """Select list, e.g. `* EXCLUDE (tailnum), distance * 1.609 AS km`; default: all columns unchanged."""
        where: SqlExpression | None = Field(default=None, min_length=1)
        """Boolean expression; rows for which it is false or null are dropped, and counted as filtered. Default: keep
        all."""

        @model_validator(mode="after")
        def _does_something(self) -> Self:
            if self.select is None and self.where is None:
                raise ValueError("expected select, where or both")
            return self

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._where = None if options.where is None else SqlMasks([options.where], "converter 'sql' (where)", context)
        name = "converter 'sql' (select)"
        # The row number comes first: then `DISTINCT` is a syntax error, and an aggregate needs a GROUP BY and is
        # refused.
        self._select = (
            None
            if options.select is None
            else SqlSelect(f'"{_ROW}", {options.select}', name, context, shown=options.select)
        )

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        if self._where is not None:
            self._where.check(schema)
        return schema if self._select is None else self._visible(self._select, schema)

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        where, select = self._where, self._select
        if where is not None:
            mask = on_rows(lambda batch: where.masks(batch)[0], chunk)
            if mask.true_count < len(mask):
                chunk = chunk.filter(mask)
        if select is not None and chunk.batch.num_rows:
            chunk = Chunk(on_rows(lambda batch: self._selected(select, batch), chunk), chunk.file, chunk.rows)
        if chunk.batch.num_rows:
            yield chunk

    def _visible(self, select: SqlSelect, schema: pa.Schema) -> pa.Schema:
        """Return the schema of the select list without the row numbers, which `*` repeats."""
        try:
            numbered = select.schema(schema.append(pa.field(_ROW, pa.int64())))
        except ConvertError as error:
            if "GROUP BY clause" in error.problem:
                raise select.error(f"it aggregates; {_ROW_BY_ROW}") from error
            raise
        visible = pa.schema([field for field in numbered if not field.name.startswith(_ROW)])
        twice = repeated(visible.names)
        if twice or not len(visible):
            problem = f"columns named twice: {', '.join(twice)}" if twice else "it selects no column"
            raise select.error(problem)
        return visible

    def _selected(self, select: SqlSelect, batch: pa.RecordBatch) -> pa.RecordBatch:
        schema = self._visible(select, batch.schema)
        order = pa.array(np.arange(batch.num_rows, dtype=np.int64))
        result = select.run(batch.append_column(_ROW, order))
        if not result.column(0).equals(order):
            raise select.error(
                f"it returned {result.num_rows} rows for {batch.num_rows}, or in another order; {_ROW_BY_ROW}"
            )
        kept = [at for at, field in enumerate(result.schema) if not field.name.startswith(_ROW)]
        return pa.RecordBatch.from_arrays([result.column(at) for at in kept], schema=schema)
