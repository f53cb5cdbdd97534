"""Cast one column; raise if Arrow's cast would lose something silently, also inside lists and structs."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_dagster.constructs.types.arrow import exact_cast, is_list, is_text, with_items
from gobblin_dagster.constructs.types.iso_times import refuse_odd_times

_INFINITE = r"(?i)^[+-]?inf(inity)?$"


def strict_cast(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast, and raise ArrowInvalid also where Arrow's cast rounds, overflows, or converts 7 to true.

    Struct fields are matched by name, as Arrow does: missing ones become null, others are dropped. Lists and structs
    are cast part by part: pyarrow (26.0.1) breaks slices of those that have a part of nulls only.
    """
    source = values.type
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        return _struct(values, target)
    if is_list(source) and (pa.types.is_list(target) or pa.types.is_large_list(target)):
        items = strict_cast(pc.list_flatten(values), target.value_type)
        if items.null_count and not target.value_field.nullable:
            raise pa.ArrowInvalid("a list has an item without a value")
        return with_items(values, items, target)
    if isinstance(source, pa.UuidType) and is_text(target):
        # Arrow's cast takes the 16 bytes for a text.
        return pa.array([None if one is None else str(one) for one in values.to_pylist()], target)
    is_number = pa.types.is_integer(source) or pa.types.is_floating(source)
    if is_number and pa.types.is_decimal(target):
        # By text: of a float, the shortest digits; and Arrow casts an integer only to decimals of 19 digits or more.
        values = values.cast(pa.string())
    if is_number and pa.types.is_boolean(target):
        known = pa.array([0, 1, None]).cast(source)
        if not pc.all(pc.is_in(values, value_set=known), min_count=0).as_py():
            raise pa.ArrowInvalid("expected 0 or 1")
    if pa.types.is_temporal(source) and is_text(target):
        refuse_odd_times("value", values)
    done = exact_cast(values, target)
    if pa.types.is_floating(target):
        _refuse_overflow(values, done)
    return done


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
