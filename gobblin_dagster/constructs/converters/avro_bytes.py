"""AvroBytesConverter: decode a binary column of Avro data with one schema into columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from pydantic import Field, model_validator

from gobblin_dagster.constructs.converters.each_row import EachRowConverter, splice, spliced
from gobblin_dagster.constructs.decoders.avro import AvroDecoder
from gobblin_dagster.constructs.decoders.base import DecodeError
from gobblin_dagster.constructs.types.arrow import is_binary
from gobblin_dagster.constructs.types.columns import convert_error, refuse_twice, require_columns
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.utils.json_text import parse_json
from gobblin_dagster.core.utils.regular_file import read_regular_text
from gobblin_dagster.spec.job import SpecModel

_NAME = "converter 'avro_bytes'"


class AvroBytesConverter(EachRowConverter):
    """Decode Avro data without a file header; the fields of the record replace the column. Null gives nulls.

    Raises:
        UsageError: (when made) the schema is no Avro schema, or not of a record.
        EnvironmentFaultError: (when made) the package fastavro is missing.

    Shape: as many rows; the record's fields are in the place of the binary column.

    Source: gobblin-core `BytesToAvroConverter`. Differs: one schema, from the job; for registries, see the Kafka
    source's `value: {type: avro}`.
    """

    packages = ("fastavro",)

    class Options(SpecModel):
        """Options of `type: avro_bytes`; `avro_schema` or `schema_file`."""

        column: str
        """Binary column with one Avro datum in each value."""
        avro_schema: dict[str, Any] | None = None
        """Schema of the record, as Avro's JSON."""
        schema_file: str | None = None
        """File with the schema, relative to the project."""
        header_bytes: int = Field(default=0, ge=0)
        """Number of bytes before each datum to skip (5 for a schema id of Confluent's registry)."""

        @model_validator(mode="after")
        def _one_schema(self) -> Self:
            if (self.avro_schema is None) == (self.schema_file is None):
                raise ValueError("expected avro_schema or schema_file, one of both")
            return self

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._options = options
        self._context = context
        self._decoder = AvroDecoder(_schema(options, context), None)
        if not pa.types.is_struct(self._decoder.type):
            raise UsageError(problem=f"{_NAME}: expected the schema of a record, got one of {self._decoder.type}.")
        self._fields = [self._decoder.type.field(at) for at in range(self._decoder.type.num_fields)]

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        column = self._options.column
        require_columns([column], schema, _NAME, self._context)
        kind = schema.field(column).type
        if not is_binary(kind):
            raise convert_error(f"column {column!r}: expected bytes, got {kind}", _NAME, self._context)
        result = spliced(schema, column, self._fields)
        refuse_twice(result.names, _NAME, self._context)
        return result

    def convert_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        header = self._options.header_bytes
        values = [value and value[header:] for value in batch.column(self._options.column).to_pylist()]
        try:
            records = self._decoder.decode(values)
        except DecodeError as error:
            raise convert_error(f"column {self._options.column!r} {error}", _NAME, self._context) from error
        return splice(batch, self._options.column, self._fields, records.flatten())


def _schema(options: AvroBytesConverter.Options, context: ConstructContext) -> Any:
    if options.schema_file is None:
        return options.avro_schema
    path = Path(context.base_dir, options.schema_file)
    try:
        return parse_json(read_regular_text(path))
    except (OSError, ValueError) as error:
        raise UsageError(problem=f"{_NAME} cannot read the Avro schema {options.schema_file}: {error}.") from error
