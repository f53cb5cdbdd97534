"""Convert between instants and wall clock times as Arrow does, also for times to come.

Arrow knows no summer time after 2037: it reads the transitions of a zone that are listed, and not the rule for all
years after them. Python's `zoneinfo` knows this rule.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gobblin_dagster.constructs.types.iso_times import PER_SECOND

_FAR, _END = 2_145_830_400, 253_402_128_000
"""Seconds since 1970: 2037-12-31, from which on Arrow is not trusted, and 9999-12-30, where Python's calendar ends."""
_QUARTER = 900
"""Seconds: offsets of zones change at quarters of an hour only."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_Offset = Callable[[int, ZoneInfo], timedelta]


def wall_times(times: pa.Array) -> pa.Array:
    """Return what clocks in their zone show at timestamps with a zone."""
    return _exact(pc.local_timestamp(times), times.cast(pa.int64()), times.type.tz, _offset_at, 1)


def instants(walls: pa.Array, zone: str) -> pa.Array:
    """Return the instants at which clocks in a zone show times.

    Raises:
        pa.ArrowInvalid: clocks never show a time, or show it twice.
    """
    return _exact(pc.assume_timezone(walls, zone), walls.cast(pa.int64()), zone, _offset_of_wall, -1)


def _exact(found: pa.Array, given: pa.Array, zone: str, offset: _Offset, sign: int) -> pa.Array:
    """Return what Arrow found, with times after 2037 calculated from their offsets."""
    unit = PER_SECOND[found.type.unit]
    is_far = pc.and_(pc.greater_equal(given, _FAR * unit), pc.less(given, min(_END * unit, 2**63 - 1)))
    is_far = pc.fill_null(is_far, False)
    if not is_far.true_count or zone == "UTC" or zone[0] in "+-":
        return found
    far = given.filter(is_far).to_numpy()
    quarters, places = np.unique(far // (_QUARTER * unit), return_inverse=True)
    key = ZoneInfo(zone)
    seconds = [offset(int(quarter) * _QUARTER, key).total_seconds() for quarter in quarters]
    offsets = np.array(seconds, dtype=np.int64)[places] * unit
    return pc.replace_with_mask(found, is_far, pa.array(far + sign * offsets).cast(found.type))


def _offset_at(second: int, zone: ZoneInfo) -> timedelta:
    return (_EPOCH + timedelta(seconds=second)).astimezone(zone).utcoffset() or timedelta()


def _offset_of_wall(second: int, zone: ZoneInfo) -> timedelta:
    wall = (_EPOCH + timedelta(seconds=second)).replace(tzinfo=zone)
    before, after = wall.utcoffset() or timedelta(), wall.replace(fold=1).utcoffset() or timedelta()
    if before != after:
        what = "is ambiguous" if before > after else "doesn't exist"
        quarter = f"in the quarter of an hour from {wall.replace(tzinfo=None)} on"
        raise pa.ArrowInvalid(f"Timestamp {what} in timezone '{zone.key}': {quarter}")
    return before
