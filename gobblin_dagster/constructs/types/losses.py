"""Find parts of Python values that Arrow would drop silently: fractions, struct fields, times of day, zones, digits."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import pyarrow as pa

from gobblin_dagster.constructs.types.arrow import MOST_DIGITS, fits_decimal

_MICROS = {"s": 10**6, "ms": 10**3, "us": 1, "ns": 1}
"""Microseconds per unit; 1 for nanoseconds too."""
_UTC = ("UTC", "Etc/UTC", "+00:00")
_INSTANTS = (pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC"))
"""Types that hold every datetime without loss."""
_WHOLE = {type(None), int, date}
"""Classes of values that Arrow either keeps exactly or refuses."""


def first_loss(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> tuple[int, str] | None:
    """Return the index of the first row with a value that its column would cut, and what it would lose; None if none.

    Values that Arrow refuses are not reported. A datetime without a zone counts as UTC in a column of instants in UTC.
    """
    for field in schema:
        if not (pa.types.is_nested(field.type) or _judge(field.type)):
            continue
        whole = _WHOLE | {datetime} if field.type in _INSTANTS else _WHOLE
        for index, row in enumerate(rows):
            value = row.get(field.name)
            if value.__class__ not in whole and (problem := _loss(value, field.type, field.name)):
                return index, problem
    return None


def _loss(value: Any, kind: pa.DataType, name: str) -> str:
    if value is None:
        return ""
    if judge := _judge(kind):
        reason = judge(value, kind)
        return f"{value} in the column {name}, which holds {reason}" if reason else ""
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        known = {field.name for field in kind}
        if new := sorted(str(one) for one in value.keys() - known):
            return f"the field(s) {', '.join(f'{name}.{one}' for one in new)}, which its columns lack"
    return next(filter(None, (_loss(*part) for part in _parts(value, kind, name))), "")


def _judge(kind: pa.DataType) -> Callable[[Any, pa.DataType], str] | None:
    """Return a function that says why a value of this type would be cut (empty: it is not).

    Return None if Arrow cuts nothing of this type.
    """
    if pa.types.is_integer(kind):
        return _number
    if pa.types.is_date(kind):
        return _day
    if pa.types.is_timestamp(kind):
        return _instant
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return _span
    if pa.types.is_decimal(kind):
        return _decimal
    return _float if pa.types.is_floating(kind) and kind.bit_width < 64 else None


def _number(value: Any, kind: pa.DataType) -> str:
    return "whole numbers" if isinstance(value, Real | Decimal) and value % 1 != 0 else ""


def _decimal(value: Any, kind: pa.DataType) -> str:
    """Judge all decimals: pyarrow (26.0.1) lets some wrap around, so that 0.000...1 of 60 digits becomes 0."""
    if not isinstance(value, Decimal) or not value.is_finite():
        return ""
    is_kept = len(value.as_tuple().digits) <= MOST_DIGITS[kind.bit_width] and fits_decimal(value, kind)
    return "" if is_kept else f"numbers that fit {kind}"


def _float(value: Any, kind: pa.DataType) -> str:
    try:
        struct.pack("<f" if kind.bit_width == 32 else "<e", value)
    except OverflowError:
        return f"numbers that fit {kind}"
    except struct.error:
        pass  # no number: Arrow refuses it
    return ""


def _day(value: Any, kind: pa.DataType) -> str:
    if isinstance(value, datetime):
        return "days" if value.time() != time() else ""
    return "days" if _number(value, kind) else ""


def _instant(value: Any, kind: pa.DataType) -> str:
    if not isinstance(value, datetime):
        return _count(value, kind)
    if value.tzinfo is not None and kind.tz is None:
        return "times without a zone"
    if value.tzinfo is None and kind.tz is not None and kind.tz not in _UTC:
        return f"times in the zone {kind.tz}"
    return _fraction(value.microsecond, value, kind)


def _span(value: Any, kind: pa.DataType) -> str:
    if isinstance(value, time) and value.tzinfo is not None:
        return "times without a zone"
    if isinstance(value, time):
        return _fraction(value.microsecond, value, kind)
    return _fraction(value.microseconds, value, kind) if isinstance(value, timedelta) else _count(value, kind)


def _count(value: Any, kind: pa.DataType) -> str:
    """Judge a number, and a value of an array of numpy: Arrow takes the number in it, whatever its unit is."""
    if value.__class__.__name__ in ("datetime64", "timedelta64"):
        return "" if str(value.dtype).endswith(f"[{kind.unit}]") else f"times in {kind.unit}"
    return f"whole numbers of {kind.unit}" if _number(value, kind) else ""


def _fraction(micros: int, value: Any, kind: pa.DataType) -> str:
    """Return the column's unit if a value has parts below it, else an empty text; values of pandas have nanoseconds."""
    finer = 0 if kind.unit == "ns" else getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)
    return f"times in {kind.unit}" if finer or micros % _MICROS[kind.unit] else ""


def _parts(value: Any, kind: pa.DataType, name: str) -> Iterator[tuple[Any, pa.DataType, str]]:
    """Yield the values inside a value, each with its type and its path."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return
    if pa.types.is_struct(kind):
        fields = dict(value)
        yield from ((fields.get(field.name), field.type, f"{name}.{field.name}") for field in kind)
    elif pa.types.is_map(kind):
        yield from ((one, kind.item_type, f"{name}.{key}") for key, one in dict(value).items())
    elif pa.types.is_nested(kind):
        yield from ((one, kind.value_type, name) for one in value)
