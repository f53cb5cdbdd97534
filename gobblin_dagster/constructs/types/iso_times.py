"""Refuse times that Arrow writes wrong: years beyond four digits, times of day from 24:00 on, offsets with seconds."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_dagster.constructs.types.arrow import used

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Arrow's units of time per second."""
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
"""First second of the year 1 and last second of the year 9999, since 1970."""
_DAY = 86_400


def refuse_odd_times(column: str, values: pa.Array) -> None:
    """Raise ArrowInvalid, with the column, if Arrow would write a time as another one or as invalid text."""
    if pa.types.is_dictionary(values.type):
        values = used(values)
    refuse_odd_years(column, values)
    kind = values.type
    if pa.types.is_time(kind):
        _refuse_outside_day(column, values)
    if not pa.types.is_timestamp(kind) or kind.tz in (None, "UTC"):
        return
    local = pc.local_timestamp(values)
    refuse_odd_years(column, local)
    offsets = pc.subtract(local.cast(pa.int64()), values.cast(pa.int64()))
    if (offsets.drop_null().to_numpy() % (60 * PER_SECOND[kind.unit])).any():
        raise pa.ArrowInvalid(f"column {column!r} has times whose offset in {kind.tz} has seconds; cast them to UTC")


def refuse_odd_years(column: str, values: pa.Array) -> None:
    """Raise ArrowInvalid for days and times outside the years 1 to 9999, or that a zone's offset moves out of range."""
    kind = values.type
    if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)) or values.null_count == len(values):
        return
    if pa.types.is_date(kind):
        days = values.cast(pa.date32()).cast(pa.int32())
        _refuse_outside(column, days, _FIRST_SECOND // _DAY, _LAST_SECOND // _DAY)
        return
    unit = PER_SECOND[kind.unit]
    edge = 0 if kind.tz in (None, "UTC") else _DAY * unit
    low, high = max(_FIRST_SECOND * unit, -(2**63) + edge), min((_LAST_SECOND + 1) * unit - 1, 2**63 - 1 - edge)
    _refuse_outside(column, values.cast(pa.int64()), low, high)


def _refuse_outside_day(column: str, values: pa.Array) -> None:
    found = pc.min_max(values.cast(pa.int32() if pa.types.is_time32(values.type) else pa.int64()))
    low, high = found["min"].as_py(), found["max"].as_py()
    if low is not None and (low < 0 or high >= _DAY * PER_SECOND[values.type.unit]):
        raise pa.ArrowInvalid(f"column {column!r} has times of day before 00:00 or from 24:00 on")


def _refuse_outside(column: str, numbers: pa.Array, low: int, high: int) -> None:
    found = pc.min_max(numbers)
    if found["min"].as_py() < low or found["max"].as_py() > high:
        raise pa.ArrowInvalid(f"column {column!r} has times before the year 1 or after 9999")
