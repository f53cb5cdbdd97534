"""Which types hold all values of others exactly, and the type that holds those of two.

Lists, maps and structs are compared part by part; a struct holds the values of one that lacks some of its fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import starmap

import pyarrow as pa

from gobblin_dagster.constructs.types.schema_text import any_type_from_text, type_from_text, type_texts
from gobblin_dagster.core.traits import Widening

_INTEGERS = ("int8", "int16", "int32", "int64")
_WIDER: dict[str, tuple[str, ...]] = {
    "int8": ("int16", "int32", "int64", "double"),
    "int16": ("int32", "int64", "double"),
    "int32": ("int64", "double"),
    "uint8": ("uint16", "uint32", "uint64", "int16", "int32", "int64", "double"),
    "uint16": ("uint32", "uint64", "int32", "int64", "double"),
    "uint32": ("uint64", "int64", "double"),
    "float": ("double",),
    "string": ("large_string",),
    "binary": ("large_binary",),
    "date32[day]": ("date64[ms]",),
}
"""For each type, the types that hold all its values exactly, the narrowest first; by pyarrow's names. Floats of 32 bits
are none: Spark does not read whole numbers of Parquet as such."""
_DIGITS = {"int8": 3, "int16": 5, "int32": 10, "int64": 19, "uint8": 3, "uint16": 5, "uint32": 10, "uint64": 20}
"""Digits of the largest number of each type of whole numbers."""
_UNITS = ("s", "ms", "us", "ns")


def is_wider(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """Return True if `wide` is another type than `narrow`, and holds all its values exactly.

    Example:
        >>> is_wider(pa.int64(), pa.int32()), is_wider(pa.float64(), pa.int64())
        (True, False)
        >>> is_wider(pa.decimal128(20, 1), pa.int64()), is_wider(pa.decimal128(19, 1), pa.int64())
        (True, False)
    """
    return bool(wide != narrow and common_type(wide, narrow) == wide)


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the narrowest type that holds all values of both exactly; None if there is none.

    The fields of structs are in the order of `one`; fields that only `other` has follow them.

    Example:
        >>> common_type(pa.struct({"a": pa.int8()}), pa.struct({"b": pa.int8(), "a": pa.int16()}))
        StructType(struct<a: int16, b: int8>)
        >>> common_type(pa.decimal128(5, 1), pa.decimal128(5, 3))
        Decimal128Type(decimal128(7, 3))
    """
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_nested(one) or pa.types.is_nested(other):
        return _common_nested(one, other)
    if pa.types.is_decimal(one) or pa.types.is_decimal(other):
        return _common_decimal(one, other)
    if _holds_plain(one, other) or _holds_plain(other, one):
        return one if _holds_plain(one, other) else other
    both = [name for name in _WIDER.get(str(one), ()) if name in _WIDER.get(str(other), ())]
    return type_from_text(both[0]) if both else None


def joined_text(one: str, other: str) -> str:
    r"""Return the schema that has the columns of two, all as texts of `schema_text`, each in a type that holds both.

    Where no type does, that of `other` counts.

    Example:
        >>> joined_text("id: int64\nn: int32", "n: int64\nnote: string").splitlines()
        ['id: int64', 'n: int64', 'note: string']
    """
    if one == other:
        return one
    first, second = type_texts(one), type_texts(other)
    kinds = {name: _joined(first.get(name), second.get(name)) for name in {**first, **second}}
    return "\n".join(f"{name}: {kind}" for name, kind in kinds.items())


def _joined(one: str | None, other: str | None) -> str:
    if one is None or other is None:
        return (one or other or "").removesuffix(" not null")  # rows without the column have null there
    before, now = any_type_from_text(one), any_type_from_text(other)
    common = None if one == other or before is None or now is None else common_type(before, now)
    return other if common is None else str(common)


def widenings(wide: pa.DataType, narrow: pa.DataType) -> set[Widening]:
    """Return what makes `wide`, as of `is_wider`, a type that not every format and table takes for `narrow`."""
    return set(_widenings(wide, narrow)) if wide != narrow else set()


def _widenings(wide: pa.DataType, narrow: pa.DataType) -> Iterator[Widening]:
    if pa.types.is_struct(wide) and pa.types.is_struct(narrow):
        known = {field.name: field.type for field in narrow}
        if not known.keys() >= {field.name for field in wide}:
            yield "new_fields"
        for field in wide:
            yield from _widenings(field.type, known.get(field.name, field.type))
    elif pa.types.is_nested(wide) and pa.types.is_nested(narrow):
        for pair in zip(_parts(wide), _parts(narrow), strict=True):
            yield from _widenings(*pair)
    elif pa.types.is_integer(narrow) and pa.types.is_floating(wide):
        yield "int_to_float"
    elif pa.types.is_integer(narrow) and pa.types.is_decimal(wide):
        yield "int_to_decimal"
    elif pa.types.is_decimal(narrow) and pa.types.is_decimal(wide) and narrow.scale != wide.scale:
        yield "decimal_scale"
    elif pa.types.is_date(narrow) and pa.types.is_timestamp(wide):
        yield "date_to_timestamp"


def _holds_plain(wide: pa.DataType, narrow: pa.DataType) -> bool:
    if pa.types.is_timestamp(wide):
        if pa.types.is_timestamp(narrow):
            return bool(wide.tz == narrow.tz and _UNITS.index(wide.unit) > _UNITS.index(narrow.unit))
        # Nanoseconds end in the year 2262; a day of a table may be later.
        return bool(pa.types.is_date(narrow) and wide.tz is None and wide.unit != "ns")
    return str(wide) in _WIDER.get(str(narrow), ())


def _common_decimal(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    first, second = _digits(one), _digits(other)
    if first is None or second is None:
        return None
    whole, scale = map(max, first, second)
    decimals = [kind for kind in (one, other) if pa.types.is_decimal(kind)]
    if found := next((kind for kind in decimals if (kind.precision, kind.scale) == (whole + scale, scale)), None):
        return found
    is_256 = any(map(pa.types.is_decimal256, decimals))
    if whole + scale > (76 if is_256 else 38):
        return None
    return (pa.decimal256 if is_256 else pa.decimal128)(whole + scale, scale)


def _digits(kind: pa.DataType) -> tuple[int, int] | None:
    """Return how many digits a number has before and behind the point, at most; None if it is no exact number."""
    if pa.types.is_decimal(kind):
        return kind.precision - kind.scale, kind.scale
    return (_DIGITS[str(kind)], 0) if pa.types.is_integer(kind) else None


def _common_nested(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return _common_struct(one, other)
    if one.id != other.id or not _parts(one):
        return None
    parts = list(starmap(common_type, zip(_parts(one), _parts(other), strict=True)))
    if any(part is None for part in parts):
        return None
    if pa.types.is_map(one):
        return pa.map_(parts[0], parts[1])
    field = one.value_field.with_type(parts[0])
    return pa.large_list(field) if pa.types.is_large_list(one) else pa.list_(field)


def _common_struct(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    theirs = {field.name: field for field in other}
    if len(theirs) < other.num_fields or len({field.name for field in one}) < one.num_fields:
        return None  # of two fields of one name nobody knows which is meant
    fields = []
    for field in one:
        known = theirs.pop(field.name, None)
        kind = field.type if known is None else common_type(field.type, known.type)
        if kind is None:
            return None
        fields.append(pa.field(field.name, kind))
    return pa.struct([*fields, *(pa.field(field.name, field.type) for field in theirs.values())])


def _parts(kind: pa.DataType) -> list[pa.DataType]:
    """Return the types inside of a list or map; none for others."""
    if pa.types.is_map(kind):
        return [kind.key_type, kind.item_type]
    return [kind.value_type] if pa.types.is_list(kind) or pa.types.is_large_list(kind) else []
