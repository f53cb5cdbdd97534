"""FlattenConverter: convert struct fields to columns."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pydantic import Field

from gobblin_dagster.constructs.converters.each_row import EachRowConverter
from gobblin_dagster.constructs.types.arrow import no_rows
from gobblin_dagster.constructs.types.columns import convert_error, refuse_twice, require_columns
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.spec.job import SpecModel

_NAME = "converter 'flatten'"


class FlattenConverter(EachRowConverter):
    """Replace struct columns by their fields, named `column_field`, at all depths.

    A null struct gives nulls. Lists are not changed: see `explode`.

    Shape: the fields of each struct are in its place, in their order; as many rows.

    Source: gobblin-core `FlattenNestedKeyConverter`. Differs: the struct column is not kept.
    """

    class Options(SpecModel):
        """Options of `type: flatten`."""

        columns: tuple[str, ...] | None = None
        """Struct columns to flatten; default: all."""
        separator: str = Field(default="_", min_length=1)
        """Text between the names."""
        levels: int = Field(default=100, ge=1, le=100)
        """How many levels of structs inside structs to flatten."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._options = options
        self._context = context

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        columns = self._options.columns or ()
        require_columns(columns, schema, _NAME, self._context)
        for name in columns:
            if not pa.types.is_struct(schema.field(name).type):
                got = schema.field(name).type
                raise convert_error(f"column {name!r}: expected a struct, got {got}", _NAME, self._context)
        flat = self.convert_batch(no_rows(schema)).schema
        refuse_twice(flat.names, _NAME, self._context)
        return flat

    def convert_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        chosen = self._options.columns
        pairs = [
            pair
            for field, values in zip(batch.schema, batch.columns, strict=True)
            for pair in self._flat(
                field.name, values, self._options.levels if chosen is None or field.name in chosen else 0
            )
        ]
        names, arrays = zip(*pairs, strict=True) if pairs else ((), ())
        return pa.RecordBatch.from_arrays(list(arrays), names=list(names))

    def _flat(self, name: str, values: pa.Array, levels: int) -> Iterator[tuple[str, pa.Array]]:
        if not levels or not pa.types.is_struct(values.type):
            yield name, values
            return
        fields = [values.type.field(at) for at in range(values.type.num_fields)]
        for field, inner in zip(fields, values.flatten(), strict=True):
            yield from self._flat(f"{name}{self._options.separator}{field.name}", inner, levels - 1)
