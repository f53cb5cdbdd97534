"""CsvTextConverter: split a text column of delimited values into columns."""

from __future__ import annotations

import csv
import functools
import itertools
from collections.abc import Iterator
from typing import Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from gobblin_dagster.constructs.converters.each_row import EachRowConverter, splice, spliced
from gobblin_dagster.constructs.types.columns import convert_error, refuse_twice, require_text
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.utils.text import lift_limit_of_csv, shown
from gobblin_dagster.spec.job import SpecModel

_NAME = "converter 'csv_text'"
_LINE_BREAKS = ("\n", "\r")


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
        """Text column with one CSV row in each value. Line breaks at its end are dropped; others outside quotes are an
        error."""
        columns: tuple[str, ...] = Field(min_length=1)
        """Names of the values, in order."""
        delimiter: str = Field(default=",", min_length=1, max_length=1)
        """Character between the values."""
        quote: str | None = Field(default='"', min_length=1, max_length=1)
        """Character around values that contain the delimiter; it is doubled inside them. null: there is none, and each
        `"` is text, as with Gobblin's class."""
        nulls: tuple[str, ...] = ("",)
        """Values that mean null, in quotes too. (In Gobblin: `""`, and `null` in small or capital letters.)"""
        short: bool = False
        """Whether a row may have too few values; the missing ones are null."""
        long: bool = False
        """Whether a row may have too many values; the last ones are dropped."""

        @model_validator(mode="after")
        def _characters_differ(self) -> Self:
            if self.delimiter in _LINE_BREAKS or self.quote in _LINE_BREAKS:
                raise ValueError("a line break ends a row, it is no delimiter or quote")
            if self.delimiter == self.quote:
                raise ValueError(f"delimiter and quote are both {self.quote!r}")
            return self

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
        return splice(batch, self._options.column, self._fields, self._columns(texts, self._lists(texts)))

    def _lists(self, texts: pa.Array) -> pa.Array:
        """Return the values of each text; null for null."""
        # Each text is read alone, whatever others are beside it: Arrow splits those in which only delimiters count.
        signs = [sign for sign in (self._options.quote, *_LINE_BREAKS) if sign is not None]
        masks = (pc.fill_null(pc.match_substring(texts, sign), False) for sign in signs)
        is_csv = functools.reduce(pc.or_, masks)
        if not is_csv.true_count:
            return pc.split_pattern(texts, self._options.delimiter)
        parsed = self._parsed(texts.filter(is_csv).to_pylist())
        if len(parsed) == len(texts):
            return parsed
        split = pc.split_pattern(texts.filter(pc.invert(is_csv)), self._options.delimiter)
        mask = is_csv.to_numpy(zero_copy_only=False)
        places = np.where(mask, len(split) - 1 + np.cumsum(mask), np.cumsum(~mask) - 1)
        return pa.concat_arrays([split, parsed]).take(pa.array(places))

    def _parsed(self, texts: list[str]) -> pa.Array:
        try:
            rows = list(self._reader(texts))
        except csv.Error:
            rows = []
        if len(rows) != len(texts):  # an open quote takes the next text for its own
            rows = [self._row(text) for text in texts]
        values = pa.array(itertools.chain.from_iterable(row or ("",) for row in rows), pa.string())
        return pa.ListArray.from_arrays(np.cumsum([0, *(len(row) or 1 for row in rows)], dtype=np.int32), values)

    def _reader(self, texts: list[str]) -> Iterator[list[str]]:
        lift_limit_of_csv()
        quote = self._options.quote
        quoting: Literal[0, 3] = csv.QUOTE_NONE if quote is None else csv.QUOTE_MINIMAL
        return csv.reader(texts, delimiter=self._options.delimiter, quotechar=quote, quoting=quoting, strict=True)

    def _row(self, text: str) -> list[str]:
        try:
            return next(self._reader([text]))
        except csv.Error as error:
            problem = str(error).partition(" - ")[0]
            raise self._error(f"expected a row of CSV, got {shown(text)}: {problem}") from error

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
