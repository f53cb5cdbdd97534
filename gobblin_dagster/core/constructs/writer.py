"""Data writers write the rows of one branch to staged files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.task_state import StagedFile


@dataclass(frozen=True, slots=True)
class WriterContext:
    """Where a writer stages files and how it names them.

    Stage each file directly in `staging_dir`, without subfolders. Its target is
    `<target_dir>/.../<file_stem>-<n>.<ext>`, with one folder per writer partition in place of the dots.
    """

    storage: Storage
    """Creates and deletes the staged files."""
    staging_dir: str
    """Absolute folder of this dataset and commit. All attempts and branches share it: put `file_stem` and `branch`
    into the names of staged files."""
    target_dir: str
    """Folder of the published files, relative to the output root; every target starts with it."""
    file_stem: str
    """Never used twice: it holds commit id, work unit and attempt."""
    branch: str
    dataset_urn: str
    schema: pa.Schema
    """Schema of every batch that the writer gets."""


class DataWriter(Protocol):
    """Writes the rows of one branch of one work unit to staged files.

    `core.traits.WriterTraits` lists the class attributes that a writer may set.

    Made with `cls(options, context, writer_context=WriterContext(...))` in a Spark task, once per attempt; on the
    driver in `gobblin compact` and `gobblin replay`. The engine calls `write` for each batch, then `finish` or
    `abort`; `abort` may also follow a `finish`.

    Source: gobblin-api `DataWriter`.
    """

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows; each batch has `WriterContext.schema`.

        Raises:
            ConvertError: the file format cannot hold a value or type.
            StorageError: the storage refuses (no space, no permission).
        """

    def finish(self) -> Sequence[StagedFile]:
        """Close and sync all files and return them; empty if no row was written.

        Raises:
            ConvertError: as `write`, for rows that were still buffered.
            StorageError: as `write`.
        """

    def abort(self) -> None:
        """Delete all staged files of this writer; called after a failure or a stop, in any state; never raises."""
