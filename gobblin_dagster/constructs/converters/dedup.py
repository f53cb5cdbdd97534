"""DedupConverter: keep the first row of each key within a work unit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pydantic import Field

from gobblin_dagster.constructs.types.arrow import decoded
from gobblin_dagster.constructs.types.columns import convert_error, require_columns
from gobblin_dagster.core.constructs import Chunk, ConstructContext
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.spec.job import SpecModel

_NAME = "converter 'dedup'"


class DedupConverter:
    """Keep the first row of each key, in the order of the input, and filter the others. Null is a key like any other.

    Exact, not by hashes: keys are kept in memory, each with about 100 bytes plus its own size, at most `max_keys` in
    each work unit. Duplicates in different work units are not found.

    Raises:
        UsageError: a work unit has more keys.

    Shape: all columns; the rows kept, in their order.

    Source: none; Gobblin removes duplicates by compaction.
    """

    class Options(SpecModel):
        """Options of `type: dedup`."""

        by: tuple[str, ...] = Field(min_length=1)
        """Key columns; no lists or structs."""
        max_keys: int = Field(default=2_000_000, ge=1)
        """Most keys of one work unit."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._options = options
        self._context = context
        self._seen: set[Any] = set()

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        require_columns(self._options.by, schema, _NAME, self._context)
        for name in self._options.by:
            kind = schema.field(name).type
            if pa.types.is_nested(kind):
                raise convert_error(f"column {name!r}: expected a plain type as key, got {kind}", _NAME, self._context)
        return schema

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        columns = [_keys(chunk.batch.column(name)) for name in self._options.by]
        is_first = [self._is_new(key) for key in (columns[0] if len(columns) == 1 else zip(*columns, strict=True))]
        if len(self._seen) > self._options.max_keys:
            raise UsageError(
                problem=f"Dataset {self._context.dataset_urn!r}, {_NAME}: more than {self._options.max_keys} keys in a "
                "work unit.",
                hint="Raise `max_keys` (each key takes about 100 bytes plus its size), or make work units smaller.",
            )
        mask = pa.array(is_first, pa.bool_())
        if mask.true_count:
            yield chunk.filter(mask)

    def _is_new(self, key: Any) -> bool:
        size = len(self._seen)
        self._seen.add(key)
        return len(self._seen) > size


def _keys(values: pa.Array) -> list[Any]:
    """Return values that are equal exactly if the column's values are equal."""
    values = decoded(values)
    if pa.types.is_timestamp(values.type) or pa.types.is_time64(values.type):
        # In Python, both hours are equal when a clock goes back, and times of day have no nanoseconds.
        values = values.cast(pa.int64())
    keys: list[Any] = values.to_pylist()
    return keys
