"""Extractors: they read the rows of one work unit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import pyarrow as pa

from gobblin_dagster.core.constructs.context import Chunk
from gobblin_dagster.core.watermark import Watermark


class Extractor(Protocol):
    """Reads one work unit, batch by batch.

    Source: gobblin-api `Extractor`. Differs: batches, not records; no upper bound on what one object buffers but
    `block_bytes`.
    """

    schema: pa.Schema
    """Schema of every chunk; known once the extractor was made."""
    bytes_read: int
    """Bytes of input read so far."""

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows of the work unit; raises ExtractError (file, row) or TransientError."""

    def close(self) -> None:
        """Release files and connections; called once, also after a failure."""


@runtime_checkable
class PositionedExtractor(Protocol):
    """What an extractor also implements where it knows how far it got, so that a part of a work unit can be published.

    Source: gobblin-runtime `Task` asks `Extractor.getHighWatermark` once, at the end. Differs: a position that is not exact is
    no position.
    """

    def position(self) -> Watermark | None:
        """Return the end, exclusive, of what the chunks so far hold: all below it, nothing at or above it; else None.

        Called between chunks, and after `chunks` raised; cheap. It has all components of the work unit's low. An extractor
        may hand out an empty chunk to be asked.
        """
