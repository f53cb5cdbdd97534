"""Small chunks and contexts that tests of constructs share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from gobblin_dagster.core.constructs import Chunk, ConstructContext, Converter

CONTEXT = ConstructContext(job="flights", base_dir="/", dataset_urn="AA/EWR")
FILE = "in/flights.csv"


def batch(columns: Mapping[str, Any], schema: pa.Schema | None = None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(dict(columns), schema=schema)


def chunk(columns: Mapping[str, Any], first_row: int = 1) -> Chunk:
    rows = batch(columns)
    return Chunk(rows, FILE, pa.array(range(first_row, first_row + rows.num_rows), pa.int64()))


def converted(converter: Converter, given: Chunk) -> Chunk:
    """Convert a chunk that yields one chunk, and check it against the schema that the converter announced."""
    schema = converter.convert_schema(given.batch.schema)
    (result,) = converter.convert(given)
    assert result.batch.schema.equals(schema)
    assert len(result.rows) == result.batch.num_rows
    return result


def pylist(chunks: Iterable[Chunk]) -> list[dict[str, Any]]:
    return [row for part in chunks for row in part.batch.to_pylist()]
