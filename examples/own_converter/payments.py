"""A converter of one's own: a class with `Options`, made once per work unit, given one batch after the other."""

from __future__ import annotations

import hmac
from collections.abc import Iterator

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from gobblin_dagster import Chunk, ConstructContext, ConvertError


class PseudonymConverter:
    """Replaces the values of a text column by a keyed hash: equal values stay equal, and nobody can go back."""

    class Options(BaseModel):
        """What the job file says beside `type`."""

        model_config = ConfigDict(frozen=True, extra="forbid")

        column: str
        key: SecretStr = Field(min_length=8)

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._column = options.column
        self._key = options.key.get_secret_value().encode()
        self._dataset_urn = context.dataset_urn

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        if self._column not in schema.names or schema.field(self._column).type != pa.string():
            raise ConvertError(
                dataset_urn=self._dataset_urn,
                construct="PseudonymConverter",
                problem=f"expected a text column {self._column!r}, got columns {', '.join(schema.names)}",
            )
        return schema

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        at = chunk.batch.schema.get_field_index(self._column)
        hashed = pa.array([self._pseudonym(value) for value in chunk.batch.column(at).to_pylist()], pa.string())
        yield Chunk(chunk.batch.set_column(at, self._column, hashed), chunk.file, chunk.rows)

    def _pseudonym(self, value: str | None) -> str | None:
        return None if value is None else hmac.digest(self._key, value.encode(), "sha256").hex()[:16]
