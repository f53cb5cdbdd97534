"""Converters: they change rows on their way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from gobblin_dagster.core.constructs.context import Chunk


class Converter(Protocol):
    """Turns chunks into other chunks: one to none, one or many rows.

    Source: gobblin-core `Converter`.
    """

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema after conversion; raises ConvertError naming a missing or unfit column."""

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield converted chunks, all of the converted schema; raises ConvertError."""
