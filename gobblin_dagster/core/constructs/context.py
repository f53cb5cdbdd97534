"""The context that every construct gets when it is made, and the chunks of rows that it works on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from gobblin_dagster.core.allow import EVERYTHING, AllowLists


@dataclass(frozen=True, slots=True)
class ConstructContext:
    """Job, dataset, branch and limits of one construct; the engine passes it to `cls(options, context)`."""

    job: str
    """Name of the job."""
    base_dir: str
    """Absolute folder; relative paths of the job file start from it."""
    dataset_urn: str = ""
    """The dataset of the work unit. Empty on the driver, and for a job without datasets."""
    branch: str | None = None
    """The branch that the construct belongs to; None before the fork."""
    block_bytes: int = 1 << 20
    """Bytes that a reader should read at a time; a smaller number saves memory."""
    run_id: str = ""
    """Id of the run; empty outside of a run (for example, in `gobblin check`)."""
    load_time: datetime = field(default_factory=lambda: datetime.now(UTC))
    """When the attempt on the work unit began, aware and in UTC; the same instant for all of its rows."""
    evolves: bool = False
    """Whether the branch has the schema contract `evolve`: tables may get wider types for its rows."""
    in_order: bool = False
    """Whether the first part of a work unit may be published without the rest. If so, extractors should read in the
    order of their positions if they can."""
    name: str = ""
    """Name of the construct in the job file, for messages; set for row-level policies only."""
    limit_rows: int | None = None
    """Rows after which a work unit may end early (`execution.limit.rows`). Extractors should end a chunk there if they
    can."""
    allow: AllowLists = EVERYTHING
    """Paths and servers that may be used. Check against it what the job file does not name, such as files found by a
    pattern."""
    spark: Callable[[], Any] | None = None
    """Returns the Spark session, starting Spark if needed; for sources on the driver that plan or count with Spark.
    None for all other constructs."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A batch of rows inside a task, with the place that each row came from.

    Shape: `rows` is int64, as long as `batch`: the number of each row in `file`, counted from 1 without the header, or
    the offset of a message. It is null if a converter made the row from several rows or from none.
    """

    batch: pa.RecordBatch
    file: str
    """Name of the input, for messages: a path, a table, or a topic and partition."""
    rows: pa.Array

    def filter(self, mask: pa.BooleanArray) -> Chunk:
        """Return the rows for which the mask is true; null counts as false."""
        return Chunk(self.batch.filter(mask), self.file, self.rows.filter(mask))

    def slice(self, offset: int, length: int | None = None) -> Chunk:
        """Return `length` rows beginning at `offset` (default: all the rest), without copying."""
        return Chunk(self.batch.slice(offset, length), self.file, self.rows.slice(offset, length))
