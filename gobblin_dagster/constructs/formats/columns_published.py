"""What Parquet and ORC share as published files: pyarrow counts, merges and reads them without further facts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gobblin_dagster.constructs.formats.published import DatasetFormat, MergesColumns

if TYPE_CHECKING:
    import pyarrow.fs as pafs


class PublishedColumns(DatasetFormat, MergesColumns):
    """Files of columns; rows are merged batch by batch."""

    def count_rows(self, filesystem: pafs.FileSystem, paths: Sequence[str]) -> int:
        """Add up the row counts in the files' footers."""
        import pyarrow.dataset as ds  # noqa: PLC0415  # loads pandas, which takes a second; only audits need it

        return int(ds.dataset(list(paths), filesystem=filesystem, format=self.arrow_format((), {})).count_rows())
