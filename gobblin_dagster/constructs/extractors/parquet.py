"""ParquetFormat: Parquet files, streamed row group by row group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import ClassVar

import pyarrow as pa
from pyarrow import parquet
from pydantic import BaseModel, ConfigDict

from gobblin_dagster.constructs.extractors.files import first_line
from gobblin_dagster.constructs.extractors.format import FileReader, FormatError, InputFile, chosen_columns
from gobblin_dagster.core.constructs import ConstructContext


class ParquetOptions(BaseModel):
    """Options of the format `parquet`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    include: tuple[str, ...] = ()
    """Columns to read, in this order; default: all. The others are not even read from disk."""


class ParquetFormat:
    """Reads Parquet.

    Source: none in Gobblin, which copies Parquet files without reading them.
    """

    Options = ParquetOptions
    has_schema: ClassVar[bool] = True

    def __init__(self, options: ParquetOptions, context: ConstructContext) -> None:
        self._include = options.include
        self._block_bytes = context.block_bytes

    def open(self, file: InputFile, schema: pa.Schema | None) -> FileReader:
        return ParquetReader(file, self._include, self._block_bytes, schema)

    def count_rows(self, file: InputFile) -> int:
        with closing(ParquetReader(file, (), self._block_bytes, None)) as reader:
            return reader.rows


class ParquetReader:
    """Reads one Parquet file."""

    def __init__(self, file: InputFile, include: tuple[str, ...], block_bytes: int, schema: pa.Schema | None) -> None:
        self._raw = file.open_raw()
        try:
            self._size, self._rows_read = int(self._raw.size()), 0
            self._file = _opened(self._raw, block_bytes)
            self.schema = chosen_columns(self._file.schema_arrow.remove_metadata(), include, schema)
        except BaseException:
            self._raw.close()
            raise
        self._block_bytes = block_bytes

    @property
    def rows(self) -> int:
        """Rows of the file, from its footer."""
        return int(self._file.metadata.num_rows)

    @property
    def bytes_read(self) -> int:
        return self._size * self._rows_read // max(self.rows, 1)

    def batches(self) -> Iterator[pa.RecordBatch]:
        names = self.schema.names
        for batch in self._file.iter_batches(self._batch_rows(), columns=names, use_threads=False):
            self._rows_read += batch.num_rows
            yield batch.select(names).replace_schema_metadata(None)

    def close(self) -> None:
        self._file.close(force=True)
        self._raw.close()

    def _batch_rows(self) -> int:
        """Return how many rows make about one block of unpacked data."""
        metadata = self._file.metadata
        unpacked = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
        return max(1, min(1 << 15, self._block_bytes * self.rows // max(int(unpacked), 1)))


def _opened(raw: pa.NativeFile, block_bytes: int) -> parquet.ParquetFile:
    try:
        # Column chunks are read through small buffers: a row group may be far larger than a task's memory.
        return parquet.ParquetFile(raw, pre_buffer=False, buffer_size=block_bytes)
    except (pa.ArrowInvalid, OSError) as error:
        problem = f"is no complete Parquet file ({first_line(error).rstrip('.')}). Was its upload interrupted?"
        raise FormatError(problem) from error
