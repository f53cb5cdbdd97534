"""MaskConverter: hide the characters of texts."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from gobblin_dagster.constructs.converters.each_row import ColumnsOnce, EachRowConverter, replaced, retyped
from gobblin_dagster.constructs.types.columns import require_text
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.spec.job import SpecModel

_NAME = "converter 'mask'"
_LONGEST = 1_000_000
"""Characters of one value; a column of more would not fit into memory."""


class MaskConverter(EachRowConverter):
    """Replace each character of a text by a sign, except the first and last few; hide shorter texts completely.

    Shape: all columns in their order, as many rows; masked columns are `string`, null for null.

    Source: none; in Gobblin's documentation of forks, masking is a converter of the user.
    """

    class Options(SpecModel):
        """Options of `type: mask`."""

        columns: ColumnsOnce = Field(min_length=1)
        """Text columns; null stays null."""
        keep_first: int = Field(default=0, ge=0, le=_LONGEST)
        """Characters to keep at the beginning."""
        keep_last: int = Field(default=0, ge=0, le=_LONGEST)
        """Characters to keep at the end."""
        sign: str = Field(default="*", min_length=1, max_length=1)
        """Character that replaces a hidden one."""
        length: int | None = Field(default=None, ge=1, le=_LONGEST)
        """Number of signs to write for each value, so that its length is hidden too. Default: one per hidden
        character."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._options = options
        self._context = context

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        columns = self._options.columns
        require_text(columns, schema, _NAME, self._context, "drop it, or cast it with `columns`")
        return retyped(schema, dict.fromkeys(columns, pa.string()))

    def convert_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        texts = {name: batch.column(name).cast(pa.string()) for name in self._options.columns}
        return replaced(batch, {name: self._masked(values) for name, values in texts.items()})

    def _masked(self, texts: pa.Array) -> pa.Array:
        options, lengths = self._options, pc.utf8_length(texts).cast(pa.int64())
        kept = options.keep_first + options.keep_last
        is_long = pc.greater(lengths, kept)
        hidden = pc.if_else(is_long, pc.subtract(lengths, kept), lengths)
        if options.length is not None:
            hidden = pc.if_else(pc.is_valid(hidden), pa.scalar(options.length, pa.int64()), hidden)
        signs = pc.binary_repeat(pa.scalar(options.sign), hidden)
        if not kept:
            return signs
        first = pc.utf8_slice_codeunits(texts, 0, options.keep_first)
        last = pc.utf8_slice_codeunits(texts, -options.keep_last) if options.keep_last else ""
        return pc.if_else(is_long, pc.binary_join_element_wise(first, signs, last, ""), signs)
