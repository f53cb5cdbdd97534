"""AvroFormat: read Avro container files, block by block (extra `avro`)."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa

from gobblin_dagster.constructs.formats.base import REQUEST_BYTES, FormatError
from gobblin_dagster.constructs.formats.published import PublishedFormat
from gobblin_dagster.constructs.formats.typed_files import (
    TypedFileFormat,
    TypedFileOptions,
    TypedFileReader,
    incomplete,
)
from gobblin_dagster.constructs.types.avro import TOO_DEEP, arrow_type_of_avro, uuids_as_texts
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.utils.optional_packages import optional_package
from gobblin_dagster.core.utils.text import first_line
from gobblin_dagster.storage.os_errors import as_os_error

if TYPE_CHECKING:
    import pyarrow.fs as pafs

_BATCH_ROWS = 4096
_MOST_EMPTY_ROWS = 1 << 24
"""Rows of a block that may be longer than its bytes: a record whose fields are all null has none."""


class AvroReader(TypedFileReader):
    """Reads one Avro file."""

    declares_rows = False

    @property
    def bytes_read(self) -> int:
        return int(self._raw.tell())

    def count_rows(self) -> int:
        """Add up the record counts in the heads of the file's blocks."""
        with self._explained():
            return sum(int(block.num_records) for block in self._blocks)

    def _open(self) -> pa.Schema:
        # fastavro reads a few bytes at a time, and asks for the position.
        stream: Any = io.BufferedReader(self._raw, REQUEST_BYTES)
        with self._explained():
            self._blocks = _fastavro().block_reader(stream)
        named: dict[str, Any] = {}
        try:
            self._has_uuid = "'uuid'" in str(self._blocks.writer_schema)
            found = _fastavro().parse_schema(uuids_as_texts(self._blocks.writer_schema), named)
            kind = arrow_type_of_avro(found, named)
        except (KeyError, ValueError) as error:
            raise FormatError(f"its schema cannot become columns: {first_line(error)}.") from error
        except RecursionError:
            raise FormatError(f"its schema cannot become columns: {TOO_DEEP}.") from None
        if not pa.types.is_struct(kind):
            raise FormatError(f"has values of type {kind}; expected records.")
        self._found = pa.schema(list(kind))
        return self._found

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        found = pa.schema([self._found.field(name) for name in names])
        with self._explained():
            for block in self._blocks:
                _require_possible(block.num_records, block.bytes_)
                records = iter(block)
                while rows := list(islice(records, _BATCH_ROWS)):
                    values = [[self._value(row[name]) for row in rows] for name in names]
                    arrays = [pa.array(one, kind) for one, kind in zip(values, found.types, strict=True)]
                    yield pa.RecordBatch.from_arrays(arrays, schema=found)
                _require_whole(block.num_records, block.bytes_)

    def _value(self, value: Any) -> Any:
        return _plain(value) if self._has_uuid else value

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise fastavro's errors for a damaged file as FormatError, with the row."""
        try:
            yield
        except (FormatError, MemoryError, pa.ArrowException):
            raise
        except RecursionError:
            raise FormatError(f"its schema cannot become columns: {TOO_DEEP}.") from None
        except Exception as error:
            # For damaged bytes it raises ValueError, EOFError, IndexError, KeyError and the errors of zlib and snappy.
            if as_os_error(error) is not None:
                raise
            row = self._rows_read + 1 if self._rows_read else None
            if isinstance(error, OverflowError) or "out of range" in str(error):
                problem = f"has a date or time outside the years 1 to 9999, or is damaged ({first_line(error)})."
                raise FormatError(problem, row) from error
            raise incomplete("Avro", error, row) from error


class PublishedAvro(PublishedFormat):
    """Avro files of the writer `avro`: counted, but never merged; pyarrow does not read them."""

    def count_rows(self, filesystem: pafs.FileSystem, paths: Sequence[str]) -> int:
        """Add up the record counts in the heads of blocks.

        Raises EnvironmentFaultError if fastavro is not installed.
        """
        return sum(self._count(filesystem.open_input_file(path)) for path in paths)

    @staticmethod
    def _count(file: pa.NativeFile) -> int:
        with file:
            return sum(int(block.num_records) for block in _fastavro().block_reader(file))


class AvroFormat(TypedFileFormat):
    """Reads Avro container files; each record is a row, its fields are the columns.

    Source: gobblin-core `AvroFileSource`, `AvroFileExtractor`. Differs: typed columns; a union of several types is
    refused.
    """

    packages = ("fastavro",)

    reader = AvroReader
    Published = PublishedAvro

    def __init__(self, options: TypedFileOptions, context: ConstructContext) -> None:
        super().__init__(options, context)
        _fastavro()  # so that a missing package is reported when the job is read


def _require_possible(rows: int, content: io.BytesIO) -> None:
    """Raise FormatError for a block that claims so many rows without bytes that reading would not end."""
    size = content.getbuffer().nbytes
    if not 0 <= rows <= max(size, _MOST_EMPTY_ROWS):
        raise FormatError(f"is damaged: a block of {size:,} bytes claims {rows:,} rows.")


def _require_whole(rows: int, content: io.BytesIO) -> None:
    """Raise FormatError for a block with more bytes than its rows have: fastavro would leave out what follows."""
    size = content.getbuffer().nbytes
    if content.tell() != size:
        raise FormatError(f"is damaged: a block of {size:,} bytes claims {rows:,} rows, which take {content.tell():,}.")


def _plain(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _fastavro() -> Any:
    """Return the library; raises EnvironmentFaultError if it is not installed."""
    with optional_package("fastavro"):
        import fastavro  # noqa: PLC0415  # optional package
    return fastavro
