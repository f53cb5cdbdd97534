"""ChildTableConverter: rows of a nested list become rows of a table of their own, which know their parent."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from gobblin_dagster.constructs.converters.explode import items_of
from gobblin_dagster.constructs.types.arrow import is_list
from gobblin_dagster.constructs.types.columns import convert_error, refuse_twice, require_columns
from gobblin_dagster.core.constructs import Chunk, ConstructContext
from gobblin_dagster.spec.job import SpecModel

_NAME = "converter 'child_table'"
_PLAIN = "value"
"""Column of items that are no structs."""


class ChildTableConverter:
    """Make one row of each item of a nested list, with the keys of the row that it stands in; all else is left out.

    A row without items has no child rows. Lists inside of items stay lists: a branch for each makes a table of each.

    Shape: the keys; for each list on the way, its name and `_number`, int32, the place of the item from 0; then the
    fields of the items, or `value` if they are no structs. A row's items follow each other, in their order, and have
    the place of the row in the source.

    Source: none; in Gobblin this needs a class for each schema.
    """

    class Options(SpecModel):
        """Options of `type: child_table`."""

        list: str
        """The list: a column, or a path to a list in structs and lists, with dots: `lines`, `lines.parts`."""
        keys: tuple[str, ...] = Field(min_length=1)
        """Columns that identify the row; each item gets them."""
        key_prefix: str = ""
        """Text before the names of the keys, e.g. `order_`; needed if items have fields of the same names."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._options = options
        self._context = context

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        keys, numbers, fields = self._columns(schema)
        made = pa.schema([*keys, *numbers, *fields])
        refuse_twice(made.names, _NAME, self._context, "name the keys otherwise, by `key_prefix`")
        return made

    def number_columns(self, schema: pa.Schema) -> list[str]:
        """Return the columns that hold the places of an item, outermost list first; raises ConvertError."""
        return [field.name for field in self._columns(schema)[1]]

    def _columns(self, schema: pa.Schema) -> tuple[list[pa.Field], list[pa.Field], list[pa.Field]]:
        """Return the columns of the keys, of the places, and of the items."""
        path = self._path(schema)
        require_columns([*self._options.keys, path[0]], schema, _NAME, self._context)
        keys = [schema.field(name).with_name(self._options.key_prefix + name) for name in self._options.keys]
        kind, numbers = schema.field(path[0]).type, []
        for at, name in enumerate(path):
            if at:
                kind = self._field_type(kind, path[:at], name)
            if is_list(kind):
                kind = kind.value_type
                numbers.append(pa.field(f"{name}_number", pa.int32()))
            elif at == len(path) - 1:
                raise convert_error(f"{self._options.list!r}: expected a list, got {kind}", _NAME, self._context)
        return keys, numbers, list(kind) if pa.types.is_struct(kind) else [pa.field(_PLAIN, kind)]

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        schema = self.convert_schema(chunk.batch.schema)
        path = self._path(chunk.batch.schema)
        values, parents = chunk.batch.column(path[0]), None
        numbers: list[pa.Array] = []
        for at, name in enumerate(path):
            if at:
                values = pc.struct_field(values, name)
            if is_list(values.type):
                found = items_of(values)
                above = pa.array(found.parents)
                numbers = [*(number.take(above) for number in numbers), found.positions]
                parents = above if parents is None else parents.take(above)
                values = found.items
        if parents is None or not len(parents):
            return
        keys = [chunk.batch.column(name).take(parents) for name in self._options.keys]
        fields = values.flatten() if pa.types.is_struct(values.type) else [values]
        rows = pa.RecordBatch.from_arrays([*keys, *numbers, *fields], schema=schema)
        yield Chunk(rows, chunk.file, chunk.rows.take(parents))

    def _path(self, schema: pa.Schema) -> list[str]:
        """Return the names of the path; a column may have dots in its name."""
        whole = self._options.list
        return [whole] if whole in schema.names else whole.split(".")

    def _field_type(self, kind: pa.DataType, above: list[str], name: str) -> pa.DataType:
        if not pa.types.is_struct(kind):
            problem = f"{'.'.join(above)!r}: expected a list of structs, or a struct, with {name!r}, got {kind}"
            raise convert_error(problem, _NAME, self._context)
        if kind.get_field_index(name) < 0:
            there = ", ".join(field.name for field in kind)
            raise convert_error(f"{'.'.join(above)!r} has no field {name!r}; it has {there}", _NAME, self._context)
        return kind.field(name).type
