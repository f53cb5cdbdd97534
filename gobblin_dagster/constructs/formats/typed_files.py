"""Base of formats whose files contain the names and types of their columns: Avro, ORC and Parquet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_dagster.constructs.formats.base import FileReader, FormatError, InputFile, chosen_columns
from gobblin_dagster.constructs.types.plain import PlainForm, plain_schema
from gobblin_dagster.constructs.types.strict_cast import strict_cast
from gobblin_dagster.constructs.types.utf8 import is_utf8
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.utils.text import first_line
from gobblin_dagster.spec.job import SpecModel


class TypedFileOptions(SpecModel):
    """Options of the formats `avro`, `orc` and `parquet`."""

    include: tuple[str, ...] = ()
    """Columns to read, in this order; default: all. In ORC and Parquet, other columns are not even read from disk."""


class TypedFileReader(ABC):
    """Reads one file from beginning to end; the file stays open until `close`."""

    declares_rows: ClassVar[bool] = True
    """Whether a place of its own in the file says how many rows it has."""
    schema: pa.Schema

    def __init__(self, file: InputFile, include: tuple[str, ...], block_bytes: int, first: pa.Schema | None) -> None:
        self._raw = file.open_raw()
        self._block_bytes = block_bytes
        self._rows_read = 0
        try:
            self._size = int(self._raw.size())
            self.schema = chosen_columns(plain_schema(self._open().remove_metadata()), include, first)
        except BaseException:
            self._raw.close()
            raise

    @property
    def bytes_read(self) -> int:
        # Estimated by the share of rows, because columns are read from all over the file.
        return self._size * self._rows_read // max(self.count_rows(), 1)

    def batches(self) -> Iterator[pa.RecordBatch]:
        names, form = self.schema.names, PlainForm()
        for read in self._batches(names):
            batch = form.rows(read)
            for name in names:
                self._require_text(name, batch.column(name))
            yield self._as_in_first(batch.select(names))
            self._rows_read += batch.num_rows
        if self.declares_rows and (declared := self.count_rows()) != self._rows_read:
            # The library believes the parts of the file, of which a damaged one may have any number of rows.
            raise FormatError(f"is damaged: it declares {declared:,} rows, and its parts have {self._rows_read:,}.")

    def _require_text(self, name: str, values: pa.Array) -> None:
        """Raise FormatError for a text that is not UTF-8: it would be published, and no reader could read its file."""
        if is_utf8(values):
            return
        good, bad = 0, len(values)
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if is_utf8(values.slice(good, middle - good)) else (good, middle)
        raise FormatError(
            f"column {name!r} holds a text that is not UTF-8. Have the file written with a binary column, or leave the "
            "column out with `include`.",
            self._rows_read + good + 1,
        )

    def _as_in_first(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with the schema of the work unit's first file, which holds their values: see `chosen_columns`.

        Raises FormatError if it allows no null, and a row has one.
        """
        for values, field in zip(batch.columns, self.schema, strict=True):
            if not field.nullable and values.null_count:
                raise FormatError(
                    f"column {field.name!r} has no value here, but in the first file of its work unit it always has "
                    "one; "
                    "set `files_per_work_unit: 1` so that every file (or date) has its own schema.",
                    self._rows_read + pc.index(values.is_null(), pa.scalar(value=True)).as_py() + 1,
                )
        columns = map(self._cast, batch.columns, self.schema)
        return pa.RecordBatch.from_arrays(list(columns), schema=self.schema)

    def _cast(self, values: pa.Array, field: pa.Field) -> pa.Array:
        if values.type == field.type:
            return values
        try:
            return strict_cast(values, field.type)
        except pa.ArrowInvalid as error:  # nanoseconds end in the year 2262
            raise FormatError(
                f"column {field.name!r} is of type {values.type}, in the first file of its work unit it is "
                f"{field.type}, which cannot hold one of the {len(values)} values from here ({first_line(error)}); "
                "set `files_per_work_unit: 1`.",
                self._rows_read + 1,
            ) from error

    def close(self) -> None:
        self._raw.close()

    @abstractmethod
    def count_rows(self) -> int:
        """Return the number of rows that the file declares; raises FormatError."""

    @abstractmethod
    def _open(self) -> pa.Schema:
        """Open `_raw` and return the file's columns; raises FormatError if it is not in this format."""

    @abstractmethod
    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield all rows with these columns, in any column order; no batch may be much larger than a block."""

    def _rows_a_block(self, rows: int, unpacked_bytes: int) -> int:
        """Return the number of rows in about one block, if `rows` rows have `unpacked_bytes` bytes."""
        return max(1, min(1 << 15, self._block_bytes * rows // max(unpacked_bytes, 1)))


class TypedFileFormat:
    """Base of formats with typed files."""

    Options = TypedFileOptions
    has_schema: ClassVar[bool] = True
    reader: ClassVar[type[TypedFileReader]]

    def __init__(self, options: TypedFileOptions, context: ConstructContext) -> None:
        self._include = options.include
        self._block_bytes = context.block_bytes

    def open(self, file: InputFile, schema: pa.Schema | None) -> FileReader:
        return self.reader(file, self._include, self._block_bytes, schema)

    def count_rows(self, file: InputFile) -> int:
        with closing(self.reader(file, (), self._block_bytes, None)) as reader:
            return reader.count_rows()


def incomplete(kind: str, error: Exception, row: int | None = None) -> FormatError:
    """Return the error for a file that its library cannot read, with the library's message."""
    return FormatError(
        f"is no complete {kind} file ({first_line(error).rstrip('.')}). Was its upload interrupted?", row
    )
