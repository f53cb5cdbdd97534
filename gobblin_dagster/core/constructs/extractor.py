"""Extractors read the rows of one work unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

import pyarrow as pa

from gobblin_dagster.core.constructs.context import Chunk
from gobblin_dagster.core.row_mark import RowMark
from gobblin_dagster.core.watermark import Watermark


class Extractor(Protocol):
    """Reads one work unit, batch by batch.

    `Source.extractor` makes it in a Spark task, once per attempt. The engine reads `schema`, iterates over `chunks`,
    then calls `close`. It may stop iterating early (`execution.limit`, a run that is stopped).

    Source: gobblin-api `Extractor`. Differs: yields batches, not records; `ConstructContext.block_bytes` bounds what it
    buffers.
    """

    schema: pa.Schema
    """Schema of every chunk; set when the extractor is made."""
    bytes_read: int
    """Bytes of input read so far; the engine reads it between chunks and at the end."""

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows of the work unit, `[low, expected_high)`; called once.

        Shape: each chunk has `schema`; any number of rows.

        Raises:
            ExtractError: the input cannot be read; the error names the file and, if known, the row.
            TransientError: a retry may succeed (a lost connection). The engine tries again as `execution.retries` says.
        """

    def close(self) -> None:
        """Release files and connections; called once, also after a failure."""


@runtime_checkable
class PositionedExtractor(Protocol):
    """Optional addition to `Extractor`: it knows how far it has read, so that a part of a work unit can be published.

    Its source implements `PositionedSource`.

    Source: gobblin-runtime `Task`, which calls `Extractor.getHighWatermark` once, at the end. Differs: returns None if
    the position is not exact.
    """

    def position(self) -> Watermark | None:
        """Return the exclusive end of the rows yielded so far, or None if there is no exact end now.

        Return a watermark only if the chunks hold all rows below it and no row at or above it. It has all components of
        the work unit's `low`, and lies in `[low, expected_high]`.

        Called on the task's thread between two chunks, and once after `chunks` has raised; must be cheap. An extractor
        may yield a chunk without rows so that the engine asks.
        """


@runtime_checkable
class MarksRows(Protocol):
    """Optional addition to `Extractor`: it tells by what the last rows read are known again.

    The commit stores the marks (`DatasetState.row_marks`); the source compares them when it plans, if rows that were
    read can be lost and others written at their positions.

    Source: none; Gobblin reads on at the stored offset, whatever lies before it.
    """

    def row_marks(self) -> Mapping[str, RowMark]:
        """Return the mark of the last row yielded, by component of the watermark; empty if no row was yielded.

        Called on the task's thread after the last chunk, before `close`; must be cheap and not raise.
        """


@runtime_checkable
class TellsNotes(Protocol):
    """Optional addition to `Extractor`: it tells people what it found while it read, such as fields that it left out.

    The notes are shown with the dataset in the result of the run, each once.

    Source: none.
    """

    def reading_notes(self) -> Sequence[str]:
        """Return sentences, few and short; empty if there is nothing to tell.

        Called on the task's thread after the last chunk, or after `chunks` has raised, before `close`; must be cheap
        and not raise.
        """
