"""SchemaConverter: bring rows into a schema that the job file declares."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
from pydantic import Field

from gobblin_dagster.constructs.converters.each_row import EachRowConverter, python_value
from gobblin_dagster.constructs.types.arrow import is_list
from gobblin_dagster.constructs.types.columns import columns_text, convert_error, has_column, require_columns
from gobblin_dagster.constructs.types.shapes import Shape, arrow_shape
from gobblin_dagster.constructs.types.strict_cast import strict_cast
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.utils.text import shown
from gobblin_dagster.spec.job import SpecModel

_NAME = "converter 'schema'"


class SchemaConverter(EachRowConverter):
    """Give rows exactly the declared columns, in the declared order and types.

    Shape: the declared columns, as many rows.

    Source: gobblin-core `StringSchemaInjector` (`gobblin.converter.schemaInjector.schema`). Differs: converts the rows
    to the schema; Gobblin only declares that they have it.
    """

    class Options(SpecModel):
        """Options of `type: schema`."""

        columns: dict[str, Shape] = Field(min_length=1)
        """Shape by column name: a type's name, `[shape]` for a list, `{name: shape}` for a struct."""
        missing: Literal["fail", "null"] | None = "fail"
        """What to do if a declared column or struct field is missing: `fail`, or fill it with null (`null`, quoted or
        not)."""
        others: Literal["fail", "drop"] = "fail"
        """What to do with a column or struct field that is not declared: `fail` or `drop` it."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._options = options
        self._context = context
        self.declared = pa.schema([(name, arrow_shape(shape)) for name, shape in options.columns.items()])
        """The columns of all rows behind it."""

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        if self._options.missing == "fail":
            require_columns(self.declared.names, schema, _NAME, self._context)
        others = pa.schema([field for field in schema if not has_column(self.declared, field.name)])
        if others.names and self._options.others == "fail":
            problem = f"expected columns {columns_text(self.declared)}; got also {columns_text(others)}"
            raise convert_error(problem, _NAME, self._context)
        for field in self.declared:
            if has_column(schema, field.name):
                self._require_fields(field.name, schema.field(field.name).type, field.type)
                self._cast(field, pa.nulls(0, schema.field(field.name).type))
        return self.declared

    def convert_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([self._column(field, batch) for field in self.declared], schema=self.declared)

    def _require_fields(self, path: str, given: pa.DataType, declared: pa.DataType) -> None:
        """Apply `missing` and `others` to struct fields too: Arrow's cast fills and drops them silently."""
        if is_list(given) and is_list(declared):
            self._require_fields(path, given.value_type, declared.value_type)
        if not (pa.types.is_struct(given) and pa.types.is_struct(declared)):
            return
        names, wanted = {field.name for field in given}, {field.name for field in declared}
        missing = sorted(wanted - names) if self._options.missing == "fail" else []
        others = sorted(names - wanted) if self._options.others == "fail" else []
        if missing or others:
            found = "".join(f"; no field {name!r}" for name in missing) + "".join(f"; also {name!r}" for name in others)
            raise convert_error(f"column {path!r}: expected {declared}, got {given}{found}", _NAME, self._context)
        for name in sorted(wanted & names):
            self._require_fields(f"{path}.{name}", given.field(name).type, declared.field(name).type)

    def _column(self, field: pa.Field, batch: pa.RecordBatch) -> pa.Array:
        at = batch.schema.get_field_index(field.name)
        return pa.nulls(batch.num_rows, field.type) if at < 0 else self._cast(field, batch.column(at))

    def _cast(self, field: pa.Field, values: pa.Array) -> pa.Array:
        try:
            return strict_cast(values, field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            got = shown(python_value(values[0])) if len(values) == 1 else values.type
            raise convert_error(
                f"column {field.name!r}: expected {field.type}, got {got}", _NAME, self._context
            ) from error
