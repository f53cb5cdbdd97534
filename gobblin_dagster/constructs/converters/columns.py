"""ColumnsConverter: cast columns to declared types."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pydantic import Field, field_validator

from gobblin_dagster.constructs.converters.blame import first_failing_row
from gobblin_dagster.constructs.converters.cast import Cast, ColumnType
from gobblin_dagster.constructs.converters.each_row import python_value
from gobblin_dagster.constructs.types.columns import convert_error, require_columns
from gobblin_dagster.core.constructs import Chunk, ConstructContext
from gobblin_dagster.core.errors import ConvertError
from gobblin_dagster.core.utils.text import shown
from gobblin_dagster.spec.job import SpecModel

_NAME = "converter 'columns'"


class ColumnsConverter:
    """Cast columns strictly: a value that does not fit its type fails the work unit, with file and row.

    Declared columns keep their place; the others are kept unchanged or dropped.

    Shape: all columns in their order, or the declared ones only; as many rows.

    Source: gobblin-core `CsvToJsonConverterV2` with `JsonIntermediateToAvroConverter`. Differs: a value becomes null
    only if it is declared to mean null.
    """

    class Options(SpecModel):
        """Options of `type: columns`."""

        columns: dict[str, ColumnType] = Field(min_length=1)
        """Type by column name: a type's name, or `{type, nulls, format, timezone}`."""
        keep_others: bool = True
        """Whether to keep columns that are not declared."""

        @field_validator("columns", mode="before")
        @classmethod
        def _short_form(cls, columns: object) -> object:
            if not isinstance(columns, dict):
                return columns
            return {name: {"type": given} if isinstance(given, str) else given for name, given in columns.items()}

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._declared = options.columns
        self._casts = {name: Cast(declared, _NAME, context) for name, declared in options.columns.items()}
        self._keep_others = options.keep_others
        self._context = context

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        require_columns(self._declared, schema, _NAME, self._context)
        for name, cast in self._casts.items():
            problem = cast.problem(schema.field(name).type)
            if problem is not None:
                raise convert_error(f"column {name!r} {problem}", _NAME, self._context)
        return self._converted(schema)

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        require_columns(self._declared, chunk.batch.schema, _NAME, self._context)
        schema = self._converted(chunk.batch.schema)
        columns = [self._column(name, chunk) for name in schema.names]
        yield Chunk(pa.RecordBatch.from_arrays(columns, schema=schema), chunk.file, chunk.rows)

    def _converted(self, schema: pa.Schema) -> pa.Schema:
        declared = self._declared
        return pa.schema(
            [
                pa.field(field.name, declared[field.name].arrow) if field.name in declared else field
                for field in schema
                if self._keep_others or field.name in declared
            ]
        )

    def _column(self, name: str, chunk: Chunk) -> pa.Array:
        cast = self._casts.get(name)
        values = chunk.batch.column(name)
        if cast is None:
            return values
        try:
            return cast.run(values)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ConvertError) as error:
            raise self._bad_value(name, cast, chunk) from error

    def _bad_value(self, name: str, cast: Cast, chunk: Chunk) -> ConvertError:
        def run(batch: pa.RecordBatch) -> None:
            try:
                cast.run(batch.column(0))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise convert_error(str(error), _NAME, self._context) from error

        position = first_failing_row(run, chunk.batch.select([name]))
        value = shown(python_value(chunk.batch.column(name)[position]))
        row = chunk.rows[position].as_py()
        where = "" if row is None else f"row {row}, "
        declared = self._declared[name]
        expected = declared.type if declared.format == "iso" else f"{declared.type} as {declared.format}"
        problem = f"{where}column {name!r}: expected {expected}, got {value}"
        return convert_error(problem, _NAME, self._context, chunk.file)
