"""Arrow columns that DuckDB would change silently: refuse them, or give the result its type back."""

from __future__ import annotations

import pyarrow as pa

from gobblin_dagster.core.utils.duplicates import alike


def refuse_same_names(schema: pa.Schema) -> None:
    """Raise ArrowInvalid if two names differ in case only: DuckDB would read one for the other."""
    # Lower case of bytes, because DuckDB folds ASCII letters only.
    if pair := alike(schema.names, lambda name: name.encode().lower()):
        raise pa.ArrowInvalid(
            "columns {!r} and {!r} differ in case only, which SQL does not see; `rename` one".format(*pair)
        )


def refuse_nanoseconds(batch: pa.RecordBatch) -> None:
    """Raise ArrowInvalid if a duration or an interval has nanoseconds, which DuckDB would cut to microseconds."""
    for field, values in zip(batch.schema, batch.columns, strict=True):
        if field.type == pa.duration("ns"):
            values.cast(pa.duration("us"))
        elif pa.types.is_interval(field.type) and any(one.nanoseconds % 1000 for one in values.drop_null().to_pylist()):
            raise pa.ArrowInvalid(
                f"column {field.name!r}: an interval in SQL has microseconds, the rows have nanoseconds"
            )


def stable_schema(got: pa.Schema, given: pa.Schema) -> pa.Schema:
    """Return the result's schema; a column named as an input column gets that input's time zone and large type.

    DuckDB loses both.
    """
    fields = []
    for field in got:
        index = given.get_field_index(field.name)
        before = given.field(index).type if index >= 0 else None
        fields.append(pa.field(field.name, _stable_type(field.type, before)))
    return pa.schema(fields)


def _stable_type(got: pa.DataType, before: pa.DataType | None) -> pa.DataType:
    if before is None or got == before:
        return got
    if pa.types.is_timestamp(got) and pa.types.is_timestamp(before) and got.tz and before.tz:
        return pa.timestamp(got.unit, before.tz)
    if pa.types.is_string(got) and pa.types.is_large_string(before):
        return before
    if pa.types.is_binary(got) and pa.types.is_large_binary(before):
        return before
    return got
