"""The fork operator and the converter of Gobblin's example, in Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from gobblin_dagster import Chunk, ConstructContext

SENSITIVE = ("ssn", "card")


class SensitiveDataAwareForkOperator:
    """Sends a record to branch 0 where it has sensitive data, else to branch 1."""

    def fork_record(self, record: dict[str, Any]) -> list[bool]:
        """Return one flag per branch."""
        is_sensitive = any(record[name] is not None for name in SENSITIVE)
        return [is_sensitive, not is_sensitive]


class PurgingConverter:
    """Replaces the values of columns by null; the columns stay."""

    class Options(BaseModel):
        """What the job file says beside `type`."""

        model_config = ConfigDict(frozen=True, extra="forbid")

        columns: tuple[str, ...]

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._columns = options.columns

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema as it is."""
        return schema

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield the rows without the values."""
        batch = chunk.batch
        for name in self._columns:
            at = batch.schema.get_field_index(name)
            batch = batch.set_column(at, batch.schema.field(at), pa.nulls(batch.num_rows, batch.schema.field(at).type))
        yield Chunk(batch, chunk.file, chunk.rows)
