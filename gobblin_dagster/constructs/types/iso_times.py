"""Times that ISO 8601 writes with four digits of the year and an offset of whole minutes; Arrow writes others as it can."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Of Arrow's units of time."""
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
"""Of the years 1 and 9999."""
_DAY = 86_400


def refuse_odd_times(column: str, values: pa.Array) -> None:
    """Raise ArrowInvalid naming the column where Arrow would write a time as another one, or as none."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary
    refuse_odd_years(column, values)
    kind = values.type
    if not pa.types.is_timestamp(kind) or kind.tz in (None, "UTC"):
        return
    local = pc.local_timestamp(values)
    refuse_odd_years(column, local)
    offsets = pc.subtract(local.cast(pa.int64()), values.cast(pa.int64()))
    if (offsets.drop_null().to_numpy() % (60 * PER_SECOND[kind.unit])).any():
        raise pa.ArrowInvalid(f"column {column!r} has times whose offset in {kind.tz} has seconds; cast them to UTC")


def refuse_odd_years(column: str, values: pa.Array) -> None:
    """Raise ArrowInvalid for days and times, in UTC, of years beyond 1 to 9999, or that an offset moves beyond their unit."""
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


def _refuse_outside(column: str, numbers: pa.Array, low: int, high: int) -> None:
    found = pc.min_max(numbers)
    if found["min"].as_py() < low or found["max"].as_py() > high:
        raise pa.ArrowInvalid(f"column {column!r} has times before the year 1 or after 9999")
