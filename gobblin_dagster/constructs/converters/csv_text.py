"""CsvTextConverter: split a text column of delimited values into columns."""

from __future__ import annotations

import csv
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from gobblin_dagster.constructs.converters.each_row import EachRowConverter, shown, splice, spliced
from gobblin_dagster.constructs.types.columns import convert_error, refuse_twice, require_text
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.spec.job import SpecModel

_NAME = "converter 'csv_text'"


class CsvTextConverter(EachRowConverter):
    """Split the texts of a column at a delimiter into text columns, which replace the column; a null text gives nulls.

    To give the columns types, add a `columns` converter after it.

    Shape: as many rows; the new `string` columns are in the place of the text column.

    Source: gobblin-core `CsvToJsonConverter`, `CsvToJsonConverterV2`. Differs: too few or too many values are an error
    unless `short` or `long` allows them.
    """

    class Options(SpecModel):
        """Options of `type: csv_text`."""

        column: str
        """Text column with one CSV row in each value, without line breaks outside quotes."""
        columns: tuple[str, ...] = Field(min_length=1)
        """Names of the values, in order."""
        delimiter: str = Field(default=",", min_length=1, max_length=1)
        """Character between the values."""
        quote: str | None = Field(default='"', min_length=1, max_length=1)
        """Character around values that contain the delimiter; it is doubled inside them. null: there is none, and each
        `"` is text, as with Gobblin's class."""
        nulls: tuple[str, ...] = ("",)
        """Values that mean null. (In Gobblin: `""`, and `null` in small or capital letters.)"""
        short: bool = False
        """Whether a row may have too few values; the missing ones are null."""
        long: bool = False
        """Whether a row may have too many values; the last ones are dropped."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._options = options
        self._context = context
        self._fields = [pa.field(name, pa.string()) for name in options.columns]

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        column = self._options.column
        require_text([column], schema, _NAME, self._context)
        result = spliced(schema, column, self._fields)
        refuse_twice(result.names, _NAME, self._context)
        return result

    def convert_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        texts = batch.column(self._options.column).cast(pa.string())
        quote = self._options.quote
        # Without any quote, all texts are split at once.
        has_quotes = quote is not None and pc.any(pc.match_substring(texts, quote)).as_py()
        lists = self._parsed(texts) if has_quotes else pc.split_pattern(texts, self._options.delimiter)
        return splice(batch, self._options.column, self._fields, self._columns(texts, lists))

    def _parsed(self, texts: pa.Array) -> pa.Array:
        return pa.array(
            [None if text is None else self._parse(text) for text in texts.to_pylist()], pa.list_(pa.string())
        )

    def _parse(self, text: str) -> Sequence[str]:
        reader = csv.reader([text], delimiter=self._options.delimiter, quotechar=self._options.quote, strict=True)
        try:
            return next(reader, [""])
        except csv.Error as error:
            raise self._error(f"expected a row of CSV, got {shown(text)}: {error}") from error

    def _columns(self, texts: pa.Array, lists: pa.Array) -> list[pa.Array]:
        counts = pc.list_value_length(lists)
        wanted = len(self._fields)
        for test, is_allowed in ((pc.less, self._options.short), (pc.greater, self._options.long)):
            wrong = pc.fill_null(test(counts, wanted), False)
            if not is_allowed and wrong.true_count:
                position = pc.index(wrong, True).as_py()
                got = f"{counts[position].as_py()} in {shown(texts[position].as_py())}"
                raise self._error(f"expected {wanted} values, got {got}")
        lengths = pc.fill_null(counts, 0).to_numpy(zero_copy_only=False)
        begins = np.cumsum(lengths) - lengths
        values = pc.list_flatten(lists).cast(pa.string())
        nulls = pa.array(self._options.nulls, pa.string())
        values = pc.if_else(pc.is_in(values, value_set=nulls), pa.scalar(None, pa.string()), values)
        return [values.take(pa.array(begins + at, pa.int64(), mask=lengths <= at)) for at in range(wanted)]

    def _error(self, problem: str) -> Exception:
        return convert_error(f"column {self._options.column!r}: {problem}", _NAME, self._context)
