"""Tests that every format of the source `files` must pass."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, nullcontext, suppress
from pathlib import Path

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.formats.base import FileFormat, FormatError, InputFile
from gobblin_dagster.constructs.registry import ConstructKind
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.testing.conformance.construct import ConstructConformance


class FileFormatConformance(ConstructConformance):
    r"""Tests of a format of files.

    Example:
        ::

            class TestFixedWidth(FileFormatConformance):
                spec = {"type": "my_parts:FixedWidthFormat", "columns": {"id": 3, "name": 5}}
                file_name = "orders.txt"
                content = b"  1anna \n  2bert \n"
                rows = pa.table({"id": ["1", "2"], "name": ["anna", "bert"]})
                broken = [b"  1"]
    """

    protocol = "gobblin_dagster.constructs.formats.base.FileFormat"
    kind = ConstructKind.FORMAT
    file_name: str
    """Name of the file, with its ending."""
    content: bytes
    """A file of at least one row."""
    rows: pa.Table
    """Its rows, with their types."""
    broken: Sequence[bytes] = ()
    """Files that are none of this format, or damaged."""
    requires_columns: bool = True
    """Whether a file is refused that lacks a column of its work unit's first file; False where what a row leaves out is
    null, or where all files have the same columns."""

    @pytest.fixture
    def file(self, tmp_path: Path) -> InputFile:
        """Return the file, written to a folder."""
        (tmp_path / self.file_name).write_bytes(self.content)
        return InputFile(str(tmp_path / self.file_name))

    def read(self, context: ConstructContext, file: InputFile, schema: pa.Schema | None = None) -> pa.Table:
        """Read a file whole by a fresh format, and check every batch against the reader's schema."""
        made: FileFormat = self.make(context)
        with closing(made.open(file, schema)) as reader:
            batches = list(reader.batches())
            assert [batch.schema for batch in batches if not batch.schema.equals(reader.schema)] == []
            return pa.Table.from_batches(batches, reader.schema)

    def test_rows_are_read_in_order(self, context: ConstructContext, file: InputFile) -> None:
        """`batches` yields all rows in order of the file, each batch of exactly `FileReader.schema`."""
        found = self.read(context, file)
        assert found.to_pylist() == self.rows.to_pylist()
        assert found.schema.types == self.rows.schema.types

    def test_rows_are_counted(self, context: ConstructContext, file: InputFile) -> None:
        """`count_rows` returns as many rows as `batches` yields."""
        made: FileFormat = self.make(context)
        assert made.count_rows(file) == self.rows.num_rows

    def test_bytes_read_grow_to_what_was_taken(self, context: ConstructContext, file: InputFile) -> None:
        """`bytes_read` never falls, and ends above zero and not above the file's size."""
        made: FileFormat = self.make(context)
        with closing(made.open(file, None)) as reader:
            taken = [reader.bytes_read, *(reader.bytes_read for _ in reader.batches()), reader.bytes_read]
        assert taken == sorted(taken)
        assert 0 < taken[-1] <= len(self.content)

    def test_later_file_of_the_same_columns_is_read_by_the_first_ones_schema(
        self, context: ConstructContext, file: InputFile
    ) -> None:
        """`open` with the schema of the work unit's first file delivers exactly that schema."""
        first = self.read(context, file)
        assert self.read(context, file, first.schema).equals(first)

    def test_later_file_that_lacks_a_column_is_refused(self, context: ConstructContext, file: InputFile) -> None:
        """A file that lacks a column of the work unit's first file raises FormatError, unless null is what it means."""
        wanted = self.read(context, file).schema.append(pa.field("conformance_missing", pa.string()))
        with pytest.raises(FormatError) if self.requires_columns else nullcontext():
            self.read(context, file, wanted)

    def test_file_that_is_not_there_is_an_oserror(self, context: ConstructContext, tmp_path: Path) -> None:
        """A file that is not there raises OSError, which is tried again."""
        with pytest.raises(OSError, match="none"):
            self.read(context, InputFile(str(tmp_path / f"none-{self.file_name}")))

    def test_damaged_file_is_refused(self, context: ConstructContext, tmp_path: Path) -> None:
        """A damaged file, or one of another format, raises FormatError, OSError or ArrowInvalid, and gives no rows."""
        for number, content in enumerate(self.broken):
            path = tmp_path / f"{number}-{self.file_name}"
            path.write_bytes(content)
            with pytest.raises((FormatError, OSError, pa.ArrowInvalid)):
                self.read(context, InputFile(str(path)))

    def test_close_releases_a_reader_in_mid_file(self, context: ConstructContext, file: InputFile) -> None:
        """`close` may be called after a part was read, and before anything was."""
        for begins in (False, True):
            made: FileFormat = self.make(context)
            reader = made.open(file, None)
            if begins:
                with suppress(StopIteration):
                    next(reader.batches())
            reader.close()
