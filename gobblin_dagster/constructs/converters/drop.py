"""DropConverter: drop columns."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pydantic import Field

from gobblin_dagster.constructs.types.columns import require_columns
from gobblin_dagster.core.constructs import Chunk, ConstructContext
from gobblin_dagster.spec.job import SpecModel


class DropConverter:
    """Drop columns; the others keep their order.

    Shape: the other columns, as many rows.

    Source: gobblin-core `AvroProjectionConverter` (`<table>.remove.fields`). Differs: a missing column is an error, so
    that a secret column that was renamed is not published.
    """

    class Options(SpecModel):
        """Options of `type: drop`."""

        columns: tuple[str, ...] = Field(min_length=1)
        """Names of the columns to drop; each must exist."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._dropped = options.columns
        self._context = context

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        require_columns(self._dropped, schema, "converter 'drop'", self._context)
        return pa.schema([field for field in schema if field.name not in self._dropped])

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        kept = self.convert_schema(chunk.batch.schema).names
        yield Chunk(chunk.batch.select(kept), chunk.file, chunk.rows)
