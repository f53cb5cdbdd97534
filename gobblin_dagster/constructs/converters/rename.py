"""RenameConverter: rename columns."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pydantic import Field

from gobblin_dagster.constructs.types.columns import refuse_twice, require_columns
from gobblin_dagster.core.constructs import Chunk, ConstructContext
from gobblin_dagster.spec.job import SpecModel


class RenameConverter:
    """Rename columns, all at once (two may swap names); keep their order and types.

    Shape: as many columns and rows, in their order.

    Source: gobblin-core `AvroToJdbcEntryConverter` (`converter.avro.jdbc.entry_fields_pairs`).
    """

    class Options(SpecModel):
        """Options of `type: rename`."""

        columns: dict[str, str] = Field(min_length=1)
        """New name by old name; each old name must exist."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._names = options.columns
        self._context = context

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        require_columns(self._names, schema, "converter 'rename'", self._context)
        renamed = [field.with_name(self._names.get(field.name, field.name)) for field in schema]
        refuse_twice([field.name for field in renamed], "converter 'rename'", self._context)
        return pa.schema(renamed)

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        schema = self.convert_schema(chunk.batch.schema)
        yield Chunk(pa.RecordBatch.from_arrays(chunk.batch.columns, schema=schema), chunk.file, chunk.rows)
