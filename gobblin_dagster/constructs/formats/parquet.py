"""ParquetFormat: read Parquet files, row group by row group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from gobblin_dagster.constructs.formats.base import FormatError
from gobblin_dagster.constructs.formats.columns_published import PublishedColumns
from gobblin_dagster.constructs.formats.published import Types
from gobblin_dagster.constructs.formats.typed_files import TypedFileFormat, TypedFileReader, incomplete
from gobblin_dagster.constructs.types.arrow import leaves
from gobblin_dagster.constructs.types.plain import plain_schema
from gobblin_dagster.constructs.types.plain_parquet import plain_batches
from gobblin_dagster.storage.os_errors import raise_if_passing

if TYPE_CHECKING:
    import pyarrow.dataset as ds

_MERGED_ROWS = 16_384
"""Rows in memory while files are merged."""
_READ_BYTES = 1 << 20


class ParquetReader(TypedFileReader):
    """Reads one Parquet file."""

    def count_rows(self) -> int:
        return int(self._file.metadata.num_rows)

    def close(self) -> None:
        self._file.close(force=True)
        super().close()

    def _open(self) -> pa.Schema:
        try:
            self._file = self._opened()
        except (pa.ArrowInvalid, OSError) as error:
            raise_if_passing(error)
            raise incomplete("Parquet", error) from error
        return self._file.schema_arrow

    def _opened(self, unit: str = "us") -> parquet.ParquetFile:
        """Open the file, with INT96 times in `unit`; in nanoseconds of 64 bits, the year 9999 would become 1816."""
        # Small buffers: a row group may be far larger than a task's memory.
        return parquet.ParquetFile(
            self._raw,
            pre_buffer=False,
            buffer_size=self._block_bytes,
            coerce_int96_timestamp_unit=unit,
            page_checksum_verification=True,
        )

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        metadata = self._file.metadata
        unpacked = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
        rows = self._rows_a_block(self.count_rows(), int(unpacked))
        self._require_micros(rows, names)
        yield from plain_batches(self._file, rows, names, use_threads=False)

    def _require_micros(self, rows: int, names: Sequence[str]) -> None:
        """Raise FormatError if an INT96 time has parts of a microsecond, which would be cut off."""
        schema = self._file.metadata.schema
        columns = [schema.column(at) for at in range(len(schema))]
        paths = [one.path for one in columns if one.physical_type == "INT96" and _is_of(one.path, names)]
        if not paths:
            return
        done = 0
        in_nanos = self._opened("ns").iter_batches(rows, columns=paths, use_threads=False)
        for micros, nanos in zip(
            self._file.iter_batches(rows, columns=paths, use_threads=False), in_nanos, strict=True
        ):
            for name, us, ns in zip(micros.schema.names, micros.columns, nanos.columns, strict=True):
                if any(_is_cut(*pair) for pair in zip(leaves(us), leaves(ns), strict=True)):
                    raise FormatError(
                        f"column {name!r} has nanoseconds (INT96) in one of the {len(us)} rows from here; expected "
                        "microseconds, as Spark writes them. Write it as TIMESTAMP(NANOS), or leave it out with "
                        "`include`.",
                        done + 1,
                    )
            done += micros.num_rows


def _is_of(path: str, names: Sequence[str]) -> bool:
    """Return True if a leaf belongs to one of the columns."""
    return any(path == name or path.startswith(f"{name}.") for name in names)


def _is_cut(micros: pa.Array, nanos: pa.Array) -> bool:
    if not pa.types.is_timestamp(micros.type) or micros.type == nanos.type:
        return False
    # Beyond 2262 both overflow in the same way, so only parts of a microsecond make a difference.
    return bool(pc.any(pc.not_equal(pc.multiply(micros.cast(pa.int64()), 1000), nanos.cast(pa.int64()))).as_py())


class PublishedParquet(PublishedColumns):
    """Parquet files of the writer `parquet`."""

    spark_name = "parquet"

    def schema(self, file: pa.NativeFile) -> pa.Schema:
        return plain_schema(self._opened(file).schema_arrow)

    def batches(self, file: pa.NativeFile) -> Iterator[pa.RecordBatch]:
        yield from plain_batches(self._opened(file), _MERGED_ROWS)

    def arrow_format(self, names: Sequence[str], types: Types) -> ds.FileFormat:
        import pyarrow.dataset as ds  # noqa: PLC0415  # slow to load

        return ds.ParquetFileFormat()

    @staticmethod
    def _opened(file: pa.NativeFile) -> parquet.ParquetFile:
        # With pre-buffering, the whole file would be in memory.
        return parquet.ParquetFile(file, pre_buffer=False, buffer_size=_READ_BYTES)


class ParquetFormat(TypedFileFormat):
    """Reads Parquet.

    Source: none; Gobblin copies Parquet files without reading them.
    """

    reader = ParquetReader
    Published = PublishedParquet
