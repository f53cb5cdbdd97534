"""AvroFormat: Avro container files, block by block (extra `avro`)."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any, ClassVar
from uuid import UUID

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from gobblin_dagster.constructs.avro_types import arrow_type_of_avro
from gobblin_dagster.constructs.extractors.files import first_line
from gobblin_dagster.constructs.extractors.format import (
    REQUEST_BYTES,
    FileReader,
    FormatError,
    InputFile,
    chosen_columns,
)
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import EnvironmentFaultError
from gobblin_dagster.storage.remote import as_os_error

_BATCH_ROWS = 4096


class AvroOptions(BaseModel):
    """Options of the format `avro`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    include: tuple[str, ...] = ()
    """Columns to read, in this order; default: all."""


class AvroFormat:
    """Reads Avro container files; each record is a row, its fields are the columns.

    Source: gobblin-core `AvroFileSource`, `AvroFileExtractor`. Differs: typed columns; a union of several types is refused.
    """

    Options = AvroOptions
    has_schema: ClassVar[bool] = True

    def __init__(self, options: AvroOptions, context: ConstructContext) -> None:
        self._include = options.include
        try:
            import fastavro  # noqa: PLC0415  # an optional package, asked for where a job uses it
        except ImportError as error:
            problem = "Avro files need the package fastavro, which is not installed."
            raise EnvironmentFaultError(problem=problem, hint="pip install 'gobblin-dagster[avro]'") from error
        self._package = fastavro

    def open(self, file: InputFile, schema: pa.Schema | None) -> FileReader:
        return AvroReader(self._package, file, self._include, schema)

    def count_rows(self, file: InputFile) -> int:
        with closing(AvroReader(self._package, file, (), None)) as reader:
            return reader.count_rows()


class AvroReader:
    """Reads one Avro file."""

    def __init__(self, package: Any, file: InputFile, include: tuple[str, ...], schema: pa.Schema | None) -> None:
        self._raw = file.open_raw()
        # fastavro reads a few bytes at a time, and asks where it is.
        stream: Any = io.BufferedReader(self._raw, REQUEST_BYTES)
        self._rows = 0
        try:
            with self._explained():
                self._blocks = package.block_reader(stream)
            self.schema: pa.Schema = chosen_columns(self._columns(package), include, schema)
        except BaseException:
            self._raw.close()
            raise
        self._has_uuid = "'uuid'" in str(self._blocks.writer_schema)

    @property
    def bytes_read(self) -> int:
        return int(self._raw.tell())

    def batches(self) -> Iterator[pa.RecordBatch]:
        names = self.schema.names
        with self._explained():
            for block in self._blocks:
                records = iter(block)
                while rows := list(islice(records, _BATCH_ROWS)):
                    values = [[self._value(row[name]) for row in rows] for name in names]
                    arrays = [pa.array(one, field.type) for one, field in zip(values, self.schema, strict=True)]
                    self._rows += len(rows)
                    yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def count_rows(self) -> int:
        """Count the file's records from the heads of its blocks."""
        with self._explained():
            return sum(int(block.num_records) for block in self._blocks)

    def close(self) -> None:
        self._raw.close()

    def _columns(self, package: Any) -> pa.Schema:
        named: dict[str, Any] = {}
        try:
            found = package.parse_schema(self._blocks.writer_schema, named)
            kind = arrow_type_of_avro(_uuids_as_texts(found), named)
        except (KeyError, ValueError) as error:
            raise FormatError(f"its schema cannot become columns: {first_line(error)}.") from error
        if not pa.types.is_struct(kind):
            raise FormatError(f"holds values of type {kind}; expected records.")
        return pa.schema(list(kind))

    def _value(self, value: Any) -> Any:
        return _plain(value) if self._has_uuid else value

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what fastavro says of a damaged file into an error with the row, whatever its type."""
        try:
            yield
        except (FormatError, pa.ArrowException):
            raise
        except Exception as error:
            # Damaged bytes make it raise ValueError, EOFError, IndexError, KeyError and the errors of zlib and snappy.
            if as_os_error(error) is not None:
                raise
            problem = f"is no complete Avro file ({first_line(error).rstrip('.')}). Was its upload interrupted?"
            raise FormatError(problem, self._rows + 1 if self._rows else None) from error


def _uuids_as_texts(schema: Any) -> Any:
    """Return a schema whose uuids are plain strings: Arrow has no type for the objects that they are."""
    if isinstance(schema, list):
        return [_uuids_as_texts(one) for one in schema]
    if isinstance(schema, dict):
        return {k: _uuids_as_texts(v) for k, v in schema.items() if not (k == "logicalType" and v == "uuid")}
    return schema


def _plain(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value
