"""CsvWriter: delimited text files."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from pydantic import AfterValidator, StringConstraints

from gobblin_dagster.constructs.writers.files import Encoder, FileOptions, FileWriter
from gobblin_dagster.constructs.writers.output import Codec
from gobblin_dagster.core.constructs import ConstructContext, WriterContext

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
"""Of the years 1 and 9999."""
_DAY = 86_400


def _separates(delimiter: str) -> str:
    if delimiter.isalnum() or not delimiter.isascii() or delimiter in '"\r\n\0.:+- ':
        raise ValueError(
            f"expected a character that is in no number, time or quote, e.g. `,` `;` `|`; got {delimiter!r}"
        )
    return delimiter


class CsvWriter(FileWriter):
    """Writes delimited text in UTF-8. Null is an empty field, empty text is `""`.

    Nested values have no form in CSV and are refused, as are nulls where there is one column only (readers pass over empty
    lines) and times that ISO 8601 cannot write: years before 1 or after 9999, offsets with seconds (local mean times).

    Source: gobblin-core `SimpleDataWriterBuilder` behind a CSV converter.
    """

    class Options(FileOptions):
        """Options of `type: csv`."""

        header: bool = True
        """Whether each file begins with the column names."""
        delimiter: Annotated[str, StringConstraints(min_length=1, max_length=1), AfterValidator(_separates)] = ","
        """One character between fields, none that stands inside of numbers, times or quotes."""
        compression: Codec = "none"
        """Codec of the whole file; shows in the file's name."""

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
            problem = f"column {table.column_names[0]!r}, the only one, has nulls; readers pass over an empty line"
            raise pa.ArrowInvalid(problem)
        for field, values in zip(table.schema, table.columns, strict=True):
            for part in values.chunks:
                _refuse_odd_times(field.name, part)
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()


def _refuse_odd_times(column: str, values: pa.Array) -> None:
    """Refuse times that Arrow would write as another time, or as none."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary
    kind = values.type
    if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)) or values.null_count == len(values):
        return
    if pa.types.is_date(kind):
        days = values.cast(pa.date32()).cast(pa.int32())
        _refuse_outside(column, days, _FIRST_SECOND // _DAY, _LAST_SECOND // _DAY)
        return
    unit, numbers = _PER_SECOND[kind.unit], values.cast(pa.int64())
    low, high = _FIRST_SECOND * unit, (_LAST_SECOND + 1) * unit - 1
    if kind.tz in (None, "UTC"):
        _refuse_outside(column, numbers, low, high)
        return
    # An offset must not leave 64 bits either.
    _refuse_outside(column, numbers, max(low, -(2**63) + _DAY * unit), min(high, 2**63 - _DAY * unit))
    local = pc.local_timestamp(values).cast(pa.int64())
    _refuse_outside(column, local, low, high)
    if (pc.subtract(local, numbers).drop_null().to_numpy() % (60 * unit)).any():
        raise pa.ArrowInvalid(f"column {column!r} has times whose offset in {kind.tz} has seconds; cast them to UTC")


def _refuse_outside(column: str, numbers: pa.Array, low: int, high: int) -> None:
    found = pc.min_max(numbers)
    if found["min"].as_py() < low or found["max"].as_py() > high:
        raise pa.ArrowInvalid(f"column {column!r} has times before the year 1 or after 9999")
