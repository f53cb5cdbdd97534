"""Arrow columns that DuckDB would change silently: refuse them, or give the result its type back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from duckdb.sqltypes import DuckDBPyType

from gobblin_dagster.core.utils.duplicates import alike


def refuse_same_names(schema: pa.Schema) -> None:
    """Raise ArrowInvalid if two names differ in case only: DuckDB would read one for the other."""
    # Lower case of bytes, because DuckDB folds ASCII letters only.
    if pair := alike(schema.names, lambda name: name.encode().lower()):
        raise pa.ArrowInvalid(
            "columns {!r} and {!r} differ in case only, which SQL does not see; `rename` one".format(*pair)
        )


_WITHOUT_ARROW = frozenset({"uhugeint", "time with time zone", "bit", "bignum", "variant"})
"""Types of DuckDB that become other values in Arrow: 2^127 is -1, 12:00+02 is 12:00, others are bytes of DuckDB's."""
_TIMES = frozenset({"timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamp with time zone", "date"})
_WIDER = frozenset({"hugeint", "time"}) | _TIMES
"""Types of DuckDB with values that their Arrow type has not: more than 38 digits, 24:00, infinity."""
_INFINITY = {32: 2**31 - 1, 64: 2**63 - 1}
"""How DuckDB writes `infinity` in so many bits; `-infinity` is its negative."""
_NESTED = frozenset({"list", "array", "struct", "map", "union"})


def refuse_types(description: list[tuple[Any, ...]]) -> None:
    """Raise ArrowInvalid if a column of a result has a type that Arrow has not.

    Args:
        description: DuckDB's, of the result.
    """
    for name, kind, *_ in description:
        for part in _parts(kind):
            if part.id in _WITHOUT_ARROW:
                text = str(part)
                raise pa.ArrowInvalid(f"column {name!r}: no format has a type for {text}; cast it, e.g. to VARCHAR")


def wider_columns(description: list[tuple[Any, ...]]) -> list[int]:
    """Return the positions of columns whose values `refuse_wide` must look at."""
    return [at for at, (_, kind, *_) in enumerate(description) if any(part.id in _WIDER for part in _parts(kind))]


def refuse_wide(columns: pa.Table) -> None:
    """Raise ArrowInvalid if a value does not fit its type: DuckDB does not look."""
    for name, column in zip(columns.column_names, columns.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            reason = str(error).rpartition("Invalid: ")[2]
            raise pa.ArrowInvalid(f"column {name!r}: {reason}; cast it, e.g. to VARCHAR") from error
        if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
            bits = column.type.bit_width
            least, most = pc.min_max(column.cast(pa.int32() if bits == 32 else pa.int64())).as_py().values()
            if least is not None and max(-least, most) >= _INFINITY[bits]:
                raise pa.ArrowInvalid(f"column {name!r}: infinity is no time in Arrow; NULLIF takes it away")


def _parts(kind: DuckDBPyType) -> Iterator[DuckDBPyType]:
    """Yield a type and all types inside of it."""
    yield kind
    if kind.id in _NESTED:
        for _, inner in kind.children:
            if isinstance(inner, DuckDBPyType):  # the size of an array is a number
                yield from _parts(inner)


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
