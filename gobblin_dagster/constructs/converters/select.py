"""SelectConverter: pick columns and struct fields."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from gobblin_dagster.constructs.converters.each_row import EachRowConverter
from gobblin_dagster.constructs.types.columns import columns_text, convert_error, has_column, refuse_twice
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.spec.job import SpecModel

_NAME = "converter 'select'"


class SelectConverter(EachRowConverter):
    """Keep the named columns, in the given order. `user.city` is the field `city` of the struct column `user`.

    If a column's own name has a dot, the column is picked before a struct field.

    Shape: the named columns and fields; as many rows. A field of a null struct is null.

    Source: gobblin-core `AvroFieldsPickConverter`, `AvroFieldRetrieverConverter`. Differs: picked fields become
    columns.
    """

    class Options(SpecModel):
        """Options of `type: select`."""

        columns: tuple[str, ...] | dict[str, str] = Field(min_length=1)
        """Names or dotted paths, which become columns named by their last part; or path by new name. Each must
        exist."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        given = options.columns
        self._named: list[tuple[str | None, str]] = (
            list(given.items()) if isinstance(given, Mapping) else [(None, path) for path in given]
        )
        self._context = context

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        fields = [pa.field(name or _own_name(path, schema), self._type(path, schema)) for name, path in self._named]
        refuse_twice([field.name for field in fields], _NAME, self._context)
        return pa.schema(fields)

    def convert_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        schema = self.convert_schema(batch.schema)
        return pa.RecordBatch.from_arrays([_values(path, batch) for _, path in self._named], schema=schema)

    def _type(self, path: str, schema: pa.Schema) -> pa.DataType:
        if has_column(schema, path):
            return schema.field(path).type
        first, *inner = path.split(".")
        kind = schema.field(first).type if has_column(schema, first) else None
        for name in inner:
            at = kind.get_field_index(name) if kind is not None and pa.types.is_struct(kind) else -1
            kind = kind.field(at).type if kind is not None and at >= 0 else None
        if kind is None:
            raise convert_error(f"expected column {path!r}; found: {_paths_text(schema)}", _NAME, self._context)
        return kind


def _values(path: str, batch: pa.RecordBatch) -> pa.Array:
    if has_column(batch.schema, path):
        return batch.column(path)
    first, *inner = path.split(".")
    return pc.struct_field(batch.column(first), inner)


def _own_name(path: str, schema: pa.Schema) -> str:
    return path if has_column(schema, path) else path.rpartition(".")[2]


def _paths_text(schema: pa.Schema) -> str:
    """Return the names of the columns and of struct fields, separated by commas."""
    inner = [
        pa.field(f"{field.name}.{field.type.field(at).name}", pa.null())
        for field in schema
        if pa.types.is_struct(field.type)
        for at in range(field.type.num_fields)
    ]
    return columns_text(pa.schema([*schema, *inner])) or "none"
