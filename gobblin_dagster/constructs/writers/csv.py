"""CsvWriter: write delimited text files."""

from __future__ import annotations

from typing import Annotated, ClassVar

import pyarrow as pa
import pyarrow.csv as pacsv
from pydantic import AfterValidator, StringConstraints

from gobblin_dagster.constructs.types.iso_times import refuse_odd_times
from gobblin_dagster.constructs.types.utf8 import refuse_bad_bytes
from gobblin_dagster.constructs.writers.files import Encoder, FileOptions, FileWriter
from gobblin_dagster.constructs.writers.output import Codec
from gobblin_dagster.core.constructs import ConstructContext, WriterContext
from gobblin_dagster.core.traits import ALL_WIDENINGS


def _separates(delimiter: str) -> str:
    if delimiter.isalnum() or not delimiter.isascii() or delimiter in '"\r\n\0.:+- ':
        raise ValueError(
            f"expected a character that is in no number, time or quote, e.g. `,` `;` `|`; got {delimiter!r}"
        )
    return delimiter


class CsvWriter(FileWriter):
    """Write delimited text in UTF-8. Null is an empty field, empty text is `""`.

    Refuses nested values, which CSV cannot hold; nulls in a single column, because readers skip empty lines; and times
    that ISO 8601 cannot write: years before 1 or after 9999, offsets with seconds (local mean times); and bytes that
    are not UTF-8.

    Source: gobblin-core `SimpleDataWriterBuilder` after a CSV converter.
    """

    widens: ClassVar = ALL_WIDENINGS

    class Options(FileOptions):
        """Options of `type: csv`."""

        header: bool = True
        """Whether each file begins with the column names."""
        delimiter: Annotated[str, StringConstraints(min_length=1, max_length=1), AfterValidator(_separates)] = ","
        """Character between fields; none that occurs in numbers, times or quotes."""
        compression: Codec = "none"
        """Compression of the whole file: `none`, `gzip` or `zstd`; the file's name ends accordingly."""

    def __init__(self, options: Options, context: ConstructContext, *, writer_context: WriterContext) -> None:
        super().__init__(options, context, writer_context, "csv", options.compression)
        self._write_options = pacsv.WriteOptions(include_header=options.header, delimiter=options.delimiter)

    def encoder(self, stream: pa.NativeFile, schema: pa.Schema) -> Encoder:
        return _CsvEncoder(stream, schema, self._write_options)


class _CsvEncoder:
    def __init__(self, stream: pa.NativeFile, schema: pa.Schema, options: pacsv.WriteOptions) -> None:
        self._writer = pacsv.CSVWriter(stream, schema, write_options=options)

    def write(self, table: pa.Table) -> None:
        if table.num_columns == 1 and table.column(0).null_count:
            problem = f"column {table.column_names[0]!r}, the only one, has nulls; readers skip empty lines"
            raise pa.ArrowInvalid(problem)
        for field, values in zip(table.schema, table.columns, strict=True):
            for part in values.chunks:
                refuse_odd_times(field.name, part)
                refuse_bad_bytes(field.name, part)
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()
