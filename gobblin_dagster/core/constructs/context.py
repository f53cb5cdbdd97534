"""What every construct is told about where it works, and the batches that it works on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from gobblin_dagster.core.allow import EVERYTHING, AllowLists


@dataclass(frozen=True, slots=True)
class ConstructContext:
    """Where a construct works."""

    job: str
    base_dir: str
    """Absolute folder that relative paths of the job file start from."""
    dataset_urn: str = ""
    """Empty on the driver, and for a job without datasets."""
    branch: str | None = None
    """None before the fork."""
    block_bytes: int = 1 << 20
    """Bytes that readers take at a time: the lever on memory."""
    run_id: str = ""
    """Empty where nothing runs."""
    load_time: datetime = field(default_factory=lambda: datetime.now(UTC))
    """When the attempt on the work unit began: one instant for all of its rows, aware and in UTC."""
    in_order: bool = False
    """Whether a part of a work unit may be published, so that an extractor that can should read in order of its positions."""
    name: str = ""
    """What the job file calls the construct, for messages; set for row-level policies."""
    limit_rows: int | None = None
    """Rows after which the reading of a work unit may end (`execution.limit.rows`): an extractor that can ends a chunk there."""
    allow: AllowLists = EVERYTHING
    """What may be touched; for constructs that find files or servers which the job file does not name."""
    spark: Callable[[], Any] | None = None
    """Starts Spark where it is not started yet and returns the session; for sources on the driver that plan or count with
    Spark, None everywhere else."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A batch on its way through a task, with the place that each row came from.

    Shape: `rows` is int64, one per row of `batch`: the row's number in `file`, from 1, header not counted; null where a
    converter made the row from several or from none.
    """

    batch: pa.RecordBatch
    file: str
    rows: pa.Array

    def filter(self, mask: pa.BooleanArray) -> Chunk:
        """Return the rows for which the mask is true; null counts as false."""
        return Chunk(self.batch.filter(mask), self.file, self.rows.filter(mask))

    def slice(self, offset: int, length: int | None = None) -> Chunk:
        """Return so many rows from a position on, copying nothing; default: all the rest."""
        return Chunk(self.batch.slice(offset, length), self.file, self.rows.slice(offset, length))
