"""Data writers: they write the rows of one branch to staging."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.task_state import StagedFile


@dataclass(frozen=True, slots=True)
class WriterContext:
    """Where a writer stages and how it names: target `<target_dir>/.../<file_stem>-<n>.<ext>`, staged flat in `staging_dir`."""

    storage: Storage
    staging_dir: str
    """Absolute, of this dataset and commit; attempts differ by `file_stem`, branches by their name."""
    target_dir: str
    """Relative to the output root; every target starts with it."""
    file_stem: str
    """Unique for ever: holds commit id, work unit and attempt."""
    branch: str
    dataset_urn: str
    schema: pa.Schema


class DataWriter(Protocol):
    """Writes one branch of one work unit to staging. May say more of its class: `core.traits.WriterTraits`.

    Source: gobblin-api `DataWriter`.
    """

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows; raises ConvertError (values that the format cannot hold) or StorageError (no space)."""

    def finish(self) -> Sequence[StagedFile]:
        """Close and sync all files; no rows written means no files."""

    def abort(self) -> None:
        """Delete what was staged; never raises."""
