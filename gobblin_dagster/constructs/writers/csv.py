"""CsvWriter: delimited text files."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
import pyarrow.csv as pc
from pydantic import StringConstraints

from gobblin_dagster.constructs.writers.files import Encoder, FileOptions, FileWriter
from gobblin_dagster.constructs.writers.output import Codec
from gobblin_dagster.core.constructs import ConstructContext, WriterContext


class CsvWriter(FileWriter):
    """Writes delimited text in UTF-8. Null is an empty field, empty text is `""`.

    Nested values have no form in CSV and are refused.

    Source: gobblin-core `SimpleDataWriterBuilder` behind a CSV converter.
    """

    class Options(FileOptions):
        """Options of `type: csv`."""

        header: bool = True
        """Whether each file begins with the column names."""
        delimiter: Annotated[str, StringConstraints(min_length=1, max_length=1)] = ","
        """One character between fields."""
        compression: Codec = "none"
        """Codec of the whole file; shows in the file's name."""

    def __init__(self, options: Options, context: ConstructContext, *, writer_context: WriterContext) -> None:
        super().__init__(options, context, writer_context, "csv", options.compression)
        self._write_options = pc.WriteOptions(include_header=options.header, delimiter=options.delimiter)

    def encoder(self, stream: pa.NativeFile, schema: pa.Schema) -> Encoder:
        return _CsvEncoder(stream, schema, self._write_options)


class _CsvEncoder:
    def __init__(self, stream: pa.NativeFile, schema: pa.Schema, options: pc.WriteOptions) -> None:
        self._writer = pc.CSVWriter(stream, schema, write_options=options)

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()
