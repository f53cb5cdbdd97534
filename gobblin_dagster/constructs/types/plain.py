"""Bring rows into the one form that constructs work on: columns whose layout follows from the type of their values.

Arrow has several layouts for the same values. Libraries use them unasked: a column of categories in pandas is a
dictionary, texts in Polars are views, and a Parquet file written from either is read as such again. The type of a
dictionary even changes with the number of its values. pyarrow 26.0.1 cannot filter, sort or take texts in views,
cannot write run-end encoding, and its cast from list views to lists loses items; DuckDB mixes up dictionaries inside
of lists.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gobblin_dagster.constructs.types.arrow import has_part, with_items, with_parts


class PlainForm:
    """Brings batches into the plain form; remembers the last schema, which most batches share."""

    def __init__(self) -> None:
        self._seen = self._plain = pa.schema([])

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows in the types of `plain_schema`; the batch itself if it has them."""
        if not batch.schema.equals(self._seen):
            self._seen, self._plain = batch.schema, plain_schema(batch.schema)
        if self._plain is self._seen:
            return batch
        columns = map(_plain_values, batch.columns, self._plain.types)
        return pa.RecordBatch.from_arrays(list(columns), schema=self._plain)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema that rows have in the plain form; the schema itself if that is the same.

    Example:
        >>> plain_schema(pa.schema({"name": pa.string_view(), "tags": pa.list_view(pa.int8())}))
        name: string
        tags: list<item: int8>
    """
    if not any(has_part(kind, _is_odd) for kind in schema.types):
        return schema
    return pa.schema(with_parts(schema, _plain_part), schema.metadata)


def _is_odd(kind: pa.DataType) -> bool:
    return _is_view(kind) or _is_list_view(kind) or _is_coded(kind)


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _is_coded(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind))


def _is_list_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _plain_part(kind: pa.DataType) -> pa.DataType:
    if _is_coded(kind):
        (values,) = with_parts([pa.field("values", kind.value_type)], _plain_part)
        return values.type
    if _is_list_view(kind):
        make = pa.large_list if pa.types.is_large_list_view(kind) else pa.list_
        return make(*with_parts([kind.value_field], _plain_part))
    if _is_view(kind):
        return pa.string() if pa.types.is_string_view(kind) else pa.binary()
    return kind


def _plain_values(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values in the plain form of their type, which is `kind`."""
    if pa.types.is_run_end_encoded(values.type):
        return _plain_values(values.values, kind).take(_runs(values))
    if pa.types.is_dictionary(values.type):
        known = _plain_values(values.dictionary, kind)
        # Null lists may have indices beyond the end of a dictionary without values.
        values = known.take(values.indices) if len(known) else pa.nulls(len(values), kind)
    if values.type.equals(kind):
        return values
    if pa.types.is_struct(kind):
        columns = map(_plain_values, values.flatten(), (field.type for field in kind))
        return pa.StructArray.from_arrays(list(columns), fields=list(kind), mask=values.is_null())
    if pa.types.is_map(kind) or pa.types.is_fixed_size_list(kind):
        return _plain_own(pa.concat_arrays([values]), kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return with_items(values, _plain_values(pc.list_flatten(values), kind.value_type), kind)
    return values.cast(kind)


def _runs(values: pa.RunEndEncodedArray) -> pa.Array:
    """Return the number of the run that each row is in; `run_end_decode` takes neither views nor dictionaries."""
    rows = np.arange(values.offset, values.offset + len(values))
    return pa.array(np.searchsorted(values.run_ends.to_numpy(), rows, side="right"))


def _plain_own(values: pa.MapArray | pa.FixedSizeListArray, kind: pa.DataType) -> pa.Array:
    """Return maps or lists of a fixed size in their plain form; `values` is no part of a larger array."""
    if pa.types.is_map(kind):
        parts = _plain_values(values.keys, kind.key_type), _plain_values(values.items, kind.item_type)
        return pa.MapArray.from_arrays(values.offsets, *parts, type=kind, mask=values.is_null())
    items = _plain_values(values.values, kind.value_type)
    return pa.FixedSizeListArray.from_arrays(items, type=kind, mask=values.is_null())
