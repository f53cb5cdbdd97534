"""ParquetFormat: Parquet files, streamed row group by row group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyarrow import parquet

from gobblin_dagster.constructs.extractors.typed_files import TypedFileFormat, TypedFileReader, incomplete


class ParquetReader(TypedFileReader):
    """Reads one Parquet file."""

    def count_rows(self) -> int:
        return int(self._file.metadata.num_rows)

    def close(self) -> None:
        self._file.close(force=True)
        super().close()

    def _open(self) -> pa.Schema:
        try:
            # Column chunks are read through small buffers: a row group may be far larger than a task's memory.
            self._file = parquet.ParquetFile(self._raw, pre_buffer=False, buffer_size=self._block_bytes)
        except (pa.ArrowInvalid, OSError) as error:
            raise incomplete("Parquet", error) from error
        return self._file.schema_arrow

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        metadata = self._file.metadata
        unpacked = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
        rows = self._rows_a_block(self.count_rows(), int(unpacked))
        yield from self._file.iter_batches(rows, columns=names, use_threads=False)


class ParquetFormat(TypedFileFormat):
    """Reads Parquet.

    Source: none in Gobblin, which copies Parquet files without reading them.
    """

    reader = ParquetReader
