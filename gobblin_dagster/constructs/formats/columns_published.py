"""What Parquet and ORC share as published files: pyarrow counts, merges and reads them without being told anything."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from gobblin_dagster.constructs.formats.published import DatasetFormat

if TYPE_CHECKING:
    import pyarrow.fs as pafs


class PublishedColumns(DatasetFormat):
    """Files of columns; rows are merged batch by batch."""

    def count_rows(self, filesystem: pafs.FileSystem, paths: Sequence[str]) -> int:
        """Add up what the files' own ends say."""
        import pyarrow.dataset as ds  # noqa: PLC0415  # imports pandas: a second that a run without an audit need not pay

        return int(ds.dataset(list(paths), filesystem=filesystem, format=self.arrow_format((), {})).count_rows())

    @abstractmethod
    def schema(self, file: pa.NativeFile) -> pa.Schema:
        """Return a file's schema; raises ArrowInvalid where it is damaged."""

    @abstractmethod
    def batches(self, file: pa.NativeFile) -> Iterator[pa.RecordBatch]:
        """Yield a file's rows in order; raises ArrowInvalid where it is damaged."""
