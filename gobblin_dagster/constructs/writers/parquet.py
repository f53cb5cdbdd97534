"""ParquetWriter: write Parquet files."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, model_validator

from gobblin_dagster.constructs.types.arrow import has_part, leaves
from gobblin_dagster.constructs.writers.files import (
    Encoder,
    FileOptions,
    FileWriter,
    refuse_deep,
    refuse_negative_scale,
    refuse_size_of_none,
)
from gobblin_dagster.constructs.writers.parquet_encoding import choose_encodings, dictionary_columns
from gobblin_dagster.core.constructs import ConstructContext, WriterContext
from gobblin_dagster.core.traits import ALL_WIDENINGS

DICTIONARY_BYTES = 256 << 10
"""Bytes of a column's dictionary above which values are written plain. Measured on columns of ids and instants, against
Arrow's default of 1 MB: half the time and four fifths of the size; no difference on 336,776 flights."""


_LEVELS = {"zstd": 22, "gzip": 9}
"""Highest level of compression, by codec; the others have none."""
MAX_LEVELS = 99
"""Most levels that Arrow's own reader opens, measured: 98 structs, or 49 lists or maps of two levels each."""


class ParquetWriter(FileWriter):
    """Write Parquet.

    The default compression is snappy. Measured on one thread, 336,776 flights in one file: snappy 85 ms and 5.68 MB,
    zstd-1 99 ms and 5.28 MB, zstd-3 115 ms and 5.23 MB, gzip 342 ms and 5.13 MB; in 1,095 small files: snappy 0.49 s,
    zstd-1 1.50 s, because each column of each file needs a new zstd context. Choose zstd for few large files.

    Source: gobblin-parquet `ParquetDataWriterBuilder`.
    """

    widens: ClassVar = ALL_WIDENINGS

    class Options(FileOptions):
        """Options of `type: parquet`."""

        compression: Literal["zstd", "snappy", "lz4", "gzip", "none"] = "snappy"
        """Compression of all columns."""
        compression_level: int | None = Field(default=None, ge=1)
        """Level of zstd (default 1) or gzip (default: the library's own); the other codecs have none."""
        encoding: Literal["auto", "dictionary"] = "auto"
        """`auto`: write ids, days and instants as differences if this is smaller than a dictionary, judged by the first
        rows of a file. `dictionary`: never, for readers from before 2015 (Spark's own reader: before 3.3)."""

        @model_validator(mode="after")
        def _level_fits(self) -> Self:
            highest = _LEVELS.get(self.compression, 0)
            if self.compression_level is not None and self.compression_level > highest:
                levels = f"has levels 1 to {highest}" if highest else "has no levels"
                raise ValueError(f"{self.compression} {levels}; got compression_level {self.compression_level}")
            return self

    def __init__(self, options: Options, context: ConstructContext, *, writer_context: WriterContext) -> None:
        super().__init__(options, context, writer_context, "parquet")
        refuse_deep(self._partitioner.schema, MAX_LEVELS, self._construct, context, a_list=2)
        refuse_negative_scale(self._partitioner.schema, self._construct, context)
        refuse_size_of_none(self._partitioner.schema, self._construct, context)
        self._compression = options.compression
        self._is_choosing = options.encoding == "auto"
        level = options.compression_level
        self._level = 1 if level is None and options.compression == "zstd" else level

    def encoder(self, stream: pa.NativeFile, schema: pa.Schema) -> Encoder:
        return _ParquetEncoder(self._begin, stream)

    def _begin(self, stream: pa.NativeFile, first: pa.Table) -> pq.ParquetWriter:
        encodings = choose_encodings(first) if self._is_choosing else {}
        return pq.ParquetWriter(
            stream,
            first.schema,
            compression=self._compression,
            compression_level=self._level,
            use_dictionary=dictionary_columns(first.schema, encodings),
            column_encoding=encodings or None,
            dictionary_pagesize_limit=DICTIONARY_BYTES,
        )


class _ParquetEncoder:
    """Open the file at its first rows, which decide about its encoding."""

    def __init__(self, open_file: Callable[[pa.NativeFile, pa.Table], pq.ParquetWriter], stream: pa.NativeFile) -> None:
        self._open = open_file
        self._stream = stream
        self._writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        for column in table.columns:
            for part in leaves(column) if has_part(column.type, pa.types.is_date64) else ():
                if pa.types.is_date64(part.type):
                    part.validate(full=True)  # Arrow would cut the milliseconds of the day, before 1970 to the next one
        if self._writer is None:
            self._writer = self._open(self._stream, table)
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
