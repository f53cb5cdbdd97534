"""Cast one column; raise if Arrow's cast would lose something silently, also inside lists and structs."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_dagster.constructs.types.arrow import exact_cast, is_list, is_text, with_items
from gobblin_dagster.constructs.types.iso_times import refuse_odd_times, refuse_odd_years
from gobblin_dagster.constructs.types.zones import wall_times

_INFINITE = r"(?i)^[+-]?inf(inity)?$"


def strict_cast(values: pa.Array | pa.ChunkedArray, target: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Cast, and raise ArrowInvalid also where Arrow's cast rounds, overflows, or converts 7 to true.

    Struct fields are matched by name, as Arrow does: missing ones become null, others are dropped. Lists, maps and
    structs are cast part by part: pyarrow (26.0.1) breaks slices of those that have a part of nulls only.
    """
    source = values.type
    if source.equals(target):
        return values
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([strict_cast(part, target) for part in values.chunks], target)
    if pa.types.is_nested(source) and pa.types.is_nested(target):
        return _nested(values, target)
    if isinstance(source, pa.UuidType) and is_text(target):
        # Arrow's cast takes the 16 bytes for a text.
        return pa.array([None if one is None else str(one) for one in values.to_pylist()], target)
    is_number = pa.types.is_integer(source) or pa.types.is_floating(source)
    if is_number and pa.types.is_boolean(target):
        known = pa.array([0, 1, None]).cast(source)
        if not pc.all(pc.is_in(values, value_set=known), min_count=0).as_py():
            raise pa.ArrowInvalid("expected 0 or 1")
    if pa.types.is_temporal(source) and is_text(target):
        refuse_odd_times("value", values)
    if pa.types.is_timestamp(source) and (pa.types.is_date(target) or pa.types.is_time(target)):
        values = _on_clocks(values)
    done = exact_cast(values, target)
    if pa.types.is_floating(target):
        _refuse_overflow(values, done)
    if pa.types.is_time(target) or pa.types.is_date64(target):
        done.validate(full=True)
    return done


def _nested(values: pa.Array, target: pa.DataType) -> pa.Array:
    source = values.type
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        return _struct(values, target)
    if pa.types.is_map(source) and pa.types.is_map(target):
        own = pa.concat_arrays([values])  # `keys` and `items` are those of the larger one
        keys, items = strict_cast(own.keys, target.key_type), strict_cast(own.items, target.item_type)
        _require_items(items, target.item_field)
        return pa.MapArray.from_arrays(own.offsets, keys, items, type=target, mask=own.is_null())
    if is_list(source) and is_list(target):
        items = strict_cast(pc.list_flatten(values), target.value_type)
        _require_items(items, target.value_field)
        if pa.types.is_fixed_size_list(target):
            return with_items(values, items, pa.list_(target.value_field)).cast(target)
        return with_items(values, items, target)
    return values.cast(target)


def _require_items(items: pa.Array, field: pa.Field) -> None:
    if items.null_count and not field.nullable:
        raise pa.ArrowInvalid("a list has an item without a value")


def _on_clocks(times: pa.Array) -> pa.Array:
    """Return what clocks show at timestamps, in a unit whose times all have a day; Arrow cuts the days of others."""
    kind = times.type
    times = times.cast(pa.timestamp("us", kind.tz)) if kind.unit in ("s", "ms") else times
    if kind.tz is None:
        return times
    refuse_odd_years("value", times)
    return wall_times(times)


def cast_rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the names and types of a schema, whose columns are in the same order."""
    return pa.Table.from_arrays(list(map(strict_cast, rows.columns, schema.types)), schema=schema)


def _struct(values: pa.StructArray, target: pa.StructType) -> pa.StructArray:
    given = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
    columns = [
        strict_cast(given[field.name], field.type) if field.name in given else pa.nulls(len(values), field.type)
        for field in target
    ]
    if not columns:
        return values.cast(target)
    for field, column in zip(target, columns, strict=True):
        if not field.nullable and pc.and_(column.is_null(), values.is_valid()).true_count:
            raise pa.ArrowInvalid(f"the field {field.name!r} has no value")
    return pa.StructArray.from_arrays(columns, fields=list(target), mask=values.is_null())


def _refuse_overflow(values: pa.Array, done: pa.Array) -> None:
    is_inf = pc.is_inf(done)
    if not is_inf.true_count:
        return
    is_words = is_text(values.type)
    was_inf = pc.match_substring_regex(values, _INFINITE) if is_words else pc.is_inf(values.cast(pa.float64()))
    if not pc.all(pc.equal(is_inf, was_inf)).as_py():
        raise pa.ArrowInvalid(f"a number is too large for {done.type}")
