"""Converters change rows between the source and the writers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from gobblin_dagster.core.constructs.context import Chunk


class Converter(Protocol):
    """Turns each row into no row, one row, or several rows.

    Runs in a Spark task, before the fork or in one branch; one object per work unit (and branch). A retry makes a new
    one. `gobblin plan` also calls `convert_schema`, on the driver, to show how schemas change.

    Source: gobblin-core `Converter`. Differs: converts batches, not records.
    """

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema after conversion; called once, before `convert`.

        Raises:
            ConvertError: a column that the converter needs is missing or has a wrong type; the error names the column.
        """

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield the rows of a chunk after conversion; called once for each chunk, in order.

        Shape: `chunk` has the schema given to `convert_schema`, each yielded chunk the schema that it returned. Keep
        `Chunk.file`, and give each row its number in the input (`Chunk.rows`), for messages and for the quarantine.
        After a ConvertError the engine may call it again with parts of the batch, to find the row.

        Raises:
            ConvertError: a value cannot be converted. The work unit fails, or only the row is dropped or quarantined if
                the job file sets `on_error`.
        """
