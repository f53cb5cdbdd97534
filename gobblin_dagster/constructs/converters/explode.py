"""Converters that make several rows of one: one per item of a list, or per part of a text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from gobblin_dagster.constructs.types.arrow import is_list
from gobblin_dagster.constructs.types.columns import convert_error, refuse_twice, require_columns, require_text
from gobblin_dagster.core.constructs import Chunk, ConstructContext
from gobblin_dagster.spec.job import SpecModel


@dataclass(frozen=True, slots=True)
class Items:
    """The items of lists, one after the other."""

    items: pa.Array
    """The items; null for a list that is kept without items."""
    positions: pa.Array
    """int32: index of each item in its list, from 0; null without an item."""
    parents: npt.NDArray[np.int64]
    """Index of the list of each item."""


def items_of(lists: pa.Array, *, keep_empty: bool = False) -> Items:
    """Return the items of lists, in their order; `keep_empty` gives one null for an empty or null list."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    counts = np.maximum(lengths, 1) if keep_empty else lengths
    parents = np.repeat(np.arange(len(counts)), counts)
    places = np.arange(len(parents)) - _begins(counts)[parents]
    is_item = lengths[parents] > 0
    # `list_flatten` skips null lists, even if they have items behind them.
    items = _take(pc.list_flatten(lists), _begins(lengths)[parents] + places, is_item)
    return Items(items, pa.array(places, pa.int32(), mask=~is_item), parents)


class ExplodeConverter:
    """Make one row of each item of a list column; each keeps the row number of its row in the source.

    Shape: all columns; the list column has the type of its items; `position`, if set, is added at the end. A row's
    items follow each other, in their order.

    Source: none; in Gobblin this needs a class for each schema.
    """

    class Options(SpecModel):
        """Options of `type: explode`."""

        column: str
        """List column; the items replace the lists."""
        keep_empty: bool = False
        """Whether a row with an empty or null list stays, as one row with null. Default: it is filtered."""
        position: str | None = None
        """Name of an int32 column with the item's index in its list, from 0, null without an item; default: no such
        column."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._options = options
        self._name = "converter 'explode'"
        self._context = context

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        column, position = self._options.column, self._options.position
        require_columns([column], schema, self._name, self._context)
        kind = schema.field(column).type
        if not is_list(kind):
            raise convert_error(f"column {column!r}: expected a list, got {kind}", self._name, self._context)
        exploded = schema.set(schema.get_field_index(column), pa.field(column, kind.value_type))
        if position is not None:
            exploded = exploded.append(pa.field(position, pa.int32()))
            refuse_twice(exploded.names, self._name, self._context)
        return exploded

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        schema = self.convert_schema(chunk.batch.schema)
        lists = chunk.batch.column(self._options.column)
        exploded = items_of(lists, keep_empty=self._options.keep_empty)
        if not len(exploded.parents):
            return
        parents = pa.array(exploded.parents)
        # Not the lists themselves: a list of n items would be repeated n times.
        columns = [
            exploded.items if name == self._options.column else column.take(parents)
            for name, column in zip(chunk.batch.schema.names, chunk.batch.columns, strict=True)
        ]
        if self._options.position is not None:
            columns.append(exploded.positions)
        yield Chunk(pa.RecordBatch.from_arrays(columns, schema=schema), chunk.file, chunk.rows.take(parents))


class SplitConverter:
    """Make one row of each part of a text column between delimiters; drop empty parts; null has no part.

    Shape: all columns; the split column is `string`. A row's parts follow each other, in their order.

    Source: gobblin-core `StringSplitterConverter`.
    """

    class Options(SpecModel):
        """Options of `type: split`."""

        column: str
        """Text column; the parts replace the texts."""
        delimiter: str = Field(min_length=1)
        """Text between the parts; not a regular expression."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._options = options
        self._name = "converter 'split'"
        self._context = context

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        column = self._options.column
        require_text([column], schema, self._name, self._context)
        return schema.set(schema.get_field_index(column), pa.field(column, pa.string()))

    def convert(self, chunk: Chunk) -> Iterator[Chunk]:
        batch, at = chunk.batch, chunk.batch.schema.get_field_index(self._options.column)
        lists = pc.split_pattern(batch.column(at).cast(pa.string()), self._options.delimiter)
        parts, parents = pc.list_flatten(lists), pc.list_parent_indices(lists)
        has_text = pc.not_equal(parts, "")
        parts, parents = parts.filter(has_text), parents.filter(has_text)
        if len(parts):
            yield Chunk(
                batch.take(parents).set_column(at, pa.field(self._options.column, pa.string()), parts),
                chunk.file,
                chunk.rows.take(parents),
            )


def _begins(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.cumsum(counts) - counts


def _take(values: pa.Array, positions: npt.NDArray[np.int64], is_there: npt.NDArray[np.bool_]) -> pa.Array:
    return values.take(pa.array(positions, mask=~is_there))
