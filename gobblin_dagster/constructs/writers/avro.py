"""AvroWriter: write Avro container files."""

from __future__ import annotations

import io
from typing import Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from gobblin_dagster.constructs.types.arrow import leaves
from gobblin_dagster.constructs.types.columns import convert_error
from gobblin_dagster.constructs.types.iso_times import refuse_odd_times
from gobblin_dagster.constructs.writers.avro_schema import AvroColumns
from gobblin_dagster.constructs.writers.files import (
    Encoder,
    FileOptions,
    FileWriter,
    refuse_deep,
    refuse_negative_scale,
)
from gobblin_dagster.core.constructs import ConstructContext, WriterContext
from gobblin_dagster.core.errors import EnvironmentFaultError
from gobblin_dagster.core.traits import Widening

_NAME = "writer 'avro'"
MAX_LEVELS = 100
"""Most levels of nesting; readers in Python fail with RecursionError at 245 structs or 490 lists."""


class AvroWriter(FileWriter):
    """Write Avro: one record per row; a nullable column is a union with null. For types, see `AvroColumns`.

    Avro is written record by record, so it is the slowest format. Measured on one thread of a busy machine, 336,776
    flights (19 columns) in one file: null 6.9 s and 22.5 MB, snappy 8.5 s and 13.1 MB, zstandard 8.4 s and 9.1 MB,
    deflate 9.2 s and 8.9 MB; Parquet took 0.3 s.

    Raises:
        EnvironmentFaultError: (when made) the package of the format or of its codec is missing.
        ConvertError: (when made) Avro cannot hold a column; later as `FileWriter`.

    Source: gobblin-core `AvroHdfsDataWriter`, `AvroDataWriterBuilder`.
    """

    packages = ("fastavro",)

    widens: ClassVar[tuple[Widening, ...]] = ("int_to_float", "decimal_scale", "new_fields")

    class Options(FileOptions):
        """Options of `type: avro`."""

        compression: Literal["null", "deflate", "snappy", "zstandard"] | None = "deflate"
        """Compression of the blocks, by Avro's names (`null`, quoted or not: none)."""
        block_bytes: int = Field(default=64 << 10, ge=1 << 10, le=1 << 30)
        """Bytes of a block before compression; readers split files at blocks."""
        record_name: str = Field(default="row", pattern=r"^[A-Za-z_]\w*$")
        """Name of the record in the file's schema."""

    def __init__(self, options: Options, context: ConstructContext, *, writer_context: WriterContext) -> None:
        super().__init__(options, context, writer_context, "avro")
        refuse_deep(self._partitioner.schema, MAX_LEVELS, self._construct, context)
        refuse_negative_scale(self._partitioner.schema, self._construct, context)
        self._avro_options = options
        self._avro_codec = options.compression or "null"
        self._package = _package(self._avro_codec)
        try:
            self._columns = AvroColumns(self._partitioner.schema, options.record_name)
        except ValueError as error:
            raise convert_error(f"{error}", _NAME, context) from error

    def encoder(self, stream: pa.NativeFile, schema: pa.Schema) -> Encoder:
        options = self._avro_options
        writer = self._package.Writer(
            _Appending(stream),
            self._columns.schema,
            codec=self._avro_codec,
            sync_interval=options.block_bytes,
        )
        return _AvroEncoder(writer, self._columns)

    def _why_not_held(self, table: pa.Table, error: Exception) -> str:
        # All types are known since the writer was made: it is a value.
        return f"the format cannot hold the rows: {error}"


class _Appending:
    """A stream for fastavro, which would otherwise check whether the file already has records."""

    def __init__(self, stream: pa.NativeFile) -> None:
        self.write = stream.write
        self.flush = stream.flush

    def seekable(self) -> bool:
        return False


class _AvroEncoder:
    def __init__(self, writer: Any, columns: AvroColumns) -> None:
        self._writer = writer
        self._columns = columns

    def write(self, table: pa.Table) -> None:
        for name, values in zip(table.column_names, table.columns, strict=True):
            for part in leaves(values):
                kind = part.type
                is_aware = pa.types.is_timestamp(kind) and kind.tz is not None
                # Only the zone is another one: Avro has instants.
                refuse_odd_times(name, part.cast(pa.timestamp(kind.unit, "UTC")) if is_aware else part)
        write = self._writer.write
        for batch in self._columns.plain(table).to_batches(max_chunksize=5000):  # bounds the Python objects
            for record in batch.to_pylist():
                write(record)

    def close(self) -> None:
        self._writer.flush()


def _package(codec: str) -> Any:
    """Return fastavro's module for writing; raises EnvironmentFaultError if it or its codec is missing."""
    try:
        # Optional package.
        from fastavro import write  # noqa: PLC0415

        write.writer(io.BytesIO(), "null", [None], codec=codec)
    except (ImportError, ValueError) as error:
        raise EnvironmentFaultError(
            problem=f"{_NAME}, compression {codec!r}: {error}.", hint="pip install 'gobblin-dagster[avro]'"
        ) from error
    return write
