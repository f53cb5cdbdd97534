"""Values of a watermark column as whole numbers ("steps"), so that planning is arithmetic on integers.

One step is the smallest distance between two positions: 1, a microsecond, an hour or a day. Instants are counted from
1970-01-01 UTC. A column without a time zone is read as if it were UTC; only its order matters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

from gobblin_dagster.constructs.options.durations import parse_duration
from gobblin_dagster.core.utils.text import shown
from gobblin_dagster.core.watermark import DateWatermark, HourWatermark, LongWatermark, TimestampWatermark, Watermark

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXACT = 2**53
"""Floats from here on are not compared exactly with the end of a range: their rows would be left out."""
_LIMIT = re.compile(r"CURRENT(DATE|HOUR|MINUTE|SECOND)(?:\s*-\s*(\d+))?")
_LIMIT_UNITS = {"HOUR": timedelta(hours=1), "MINUTE": timedelta(minutes=1), "SECOND": timedelta(seconds=1)}


class CursorType(StrEnum):
    """Type of the values of the watermark column.

    Source: `source.querybased.watermark.type` (`simple`, `timestamp`, `date`, `hour`).
    """

    LONG = "long"
    """Whole numbers that grow, e.g. an id or a version."""
    TIMESTAMP = "timestamp"
    """Instants, to the microsecond."""
    DATE = "date"
    """Days; a day is read after its end."""
    HOUR = "hour"
    """Instants, counted in hours; an hour is read after its end."""


_MARKS: dict[CursorType, type[Watermark]] = {
    CursorType.LONG: LongWatermark,
    CursorType.TIMESTAMP: TimestampWatermark,
    CursorType.DATE: DateWatermark,
    CursorType.HOUR: HourWatermark,
}
_STEPS = {
    CursorType.TIMESTAMP: timedelta(microseconds=1),
    CursorType.HOUR: timedelta(hours=1),
    CursorType.DATE: timedelta(days=1),
}


@dataclass(frozen=True, slots=True)
class Cursor:
    """Convert values of the watermark column to steps, and steps to watermarks."""

    kind: CursorType

    @property
    def watermark_type(self) -> type[Watermark]:
        """Class of the dataset's watermarks."""
        return _MARKS[self.kind]

    @property
    def is_time(self) -> bool:
        """Whether the column holds times."""
        return self.kind is not CursorType.LONG

    def step(self, value: Any) -> int:
        """Return the step of a value of the column or of a position.

        Raises ValueError if the value is of another type.
        """
        if self.kind is CursorType.LONG:
            if isinstance(value, float) and not abs(value) < _EXACT:
                raise ValueError(f"expected numbers that a float holds exactly (below 2^53), got {shown(value)}")
            if isinstance(value, Decimal) and not value.is_finite():
                raise ValueError(f"expected whole numbers, got {value}")
            if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)) or value != int(value):
                raise ValueError(f"expected whole numbers, got {shown(value)}")
            return int(value)
        if isinstance(value, str):  # SQLite returns times as text if a query's columns have no types
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                raise ValueError(f"expected times like 2013-01-31 06:00:00, got {shown(value)}") from None
        if self.kind is CursorType.DATE:
            if not isinstance(value, date):
                raise ValueError(f"expected dates, got {shown(value)}")
            return value.toordinal()
        if not isinstance(value, datetime):
            raise ValueError(f"expected timestamps, got {shown(value)}")
        since = (value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH
        return since // _STEPS[self.kind]

    def position(self, step: int) -> int | date | datetime:
        """Return the position of a step: a number, a date, or an aware instant in UTC."""
        match self.kind:
            case CursorType.LONG:
                return step
            case CursorType.DATE:
                return date.fromordinal(step)
            case _:
                return _EPOCH + step * _STEPS[self.kind]

    def mark(self, step: int) -> Watermark:
        """Return the watermark at a step."""
        return self.watermark_type.from_components({"": self.position(step)})

    def parse(self, value: Any) -> int:
        """Return the step of a value in a job file: a number, a date or an ISO 8601 instant; raises ValueError."""
        if self.kind is CursorType.LONG:
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueError(f"expected a whole number, got {value!r}")
            return value
        try:
            parsed = datetime.fromisoformat(value) if isinstance(value, str) else value
        except ValueError:
            raise ValueError(f"expected a date or an instant like 2013-01-31T05:00:00Z, got {value!r}") from None
        if isinstance(parsed, date) and not isinstance(parsed, datetime):
            parsed = datetime(parsed.year, parsed.month, parsed.day)
        if not isinstance(parsed, datetime):
            raise ValueError(f"expected a date or an instant, got {value!r}")
        step = self.step(parsed)
        position = self.position(step)
        whole = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
        if isinstance(position, datetime) and position != whole:
            raise ValueError(f"expected a whole hour, got {value!r}")
        if self.kind is CursorType.DATE and (parsed.hour, parsed.minute, parsed.second, parsed.microsecond) != (0,) * 4:
            raise ValueError(f"expected a date without a time of day, got {value!r}")
        return step

    def span(self, value: int | str) -> int:
        """Return a distance in steps: from `6h`, `30m`, `2d`, `90s` for times, a number for `long`.

        Raises ValueError.
        """
        if self.kind is CursorType.LONG:
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"expected a number of positions, e.g. 100000, got {value!r}")
            return value
        steps, rest = divmod(parse_duration(value), _STEPS[self.kind])
        if rest:
            raise ValueError(f"expected whole {self.kind}s, got {value!r}")
        return steps

    def floor(self, instant: datetime, zone: ZoneInfo, has_zone: bool) -> int:
        """Return the step of an instant; in a column without a time zone, by the wall clock of `zone`."""
        if has_zone:
            return self.step(instant)
        return self.step(instant.astimezone(zone).replace(tzinfo=None))

    def lowest_from(self, instant: datetime, zone: ZoneInfo, has_zone: bool) -> int:
        """Return the lowest step of times at or after an instant.

        In the night when clocks go back, a column without a time zone shows the times of an hour for the second time:
        from the instant in the first hour on, all of them may come.
        """
        local = instant.astimezone(zone)
        if has_zone or not _is_first_of_two(local):
            return self.floor(instant, zone, has_zone)
        wall = local.replace(second=0, microsecond=0)
        while _is_first_of_two(wall - timedelta(minutes=1)):
            wall -= timedelta(minutes=1)
        return self.step(wall.replace(tzinfo=None))

    def limit(self, text: str, now: datetime, zone: ZoneInfo, has_zone: bool) -> int:
        """Return the upper bound (exclusive) of `CURRENTDATE-1` and the like: the end of that day, hour or minute.

        Raises:
            ValueError: the text has another form.

        Source: `source.querybased.append.max.watermark.limit`.
        """
        match = _LIMIT.fullmatch(text.strip())
        if match is None:
            raise ValueError(
                f"expected CURRENTDATE, CURRENTHOUR, CURRENTMINUTE or CURRENTSECOND, with -n for earlier, got {text!r}"
            )
        unit, back = match[1], int(match[2] or 0)
        local = now.astimezone(zone)
        if unit == "DATE":
            # Count days on the calendar: a day may have 23 or 25 hours.
            day = local.date() + timedelta(days=1 - back)
            end = datetime(day.year, day.month, day.day, tzinfo=zone)
        else:
            width = _LIMIT_UNITS[unit]
            # By the zone's own clock: in Kolkata, hours begin at half past in UTC.
            since_hour = timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
            end = now - since_hour % width + width * (1 - back)
        return self.floor(end, zone, has_zone)


@dataclass(frozen=True, slots=True)
class Present:
    """Where a column of times is now."""

    step: int
    """The step of now: a day or an hour that is not over, or this microsecond."""
    lag: int
    """Steps that a run waits for late rows."""

    @property
    def settled(self) -> int:
        """The step before which no row comes any more."""
        return self.step - self.lag


def require_reached(
    cursor: Cursor, mark: Watermark, after: int | None, present: Present | None, caps: Callable[[], Iterable[int]]
) -> None:
    """Raise ValueError, with the end, for a position beyond it: rows before it that come later would never be read.

    Args:
        cursor: the cursor of the column.
        mark: the position, of the cursor's type.
        after: the step after the highest value; None if there are no rows.
        present: None for numbers.
        caps: returns the steps at which a run ends now at the latest; called only if rows are at `present` or later.
    """
    end = after
    if present is not None and (after is None or after <= present.step):
        end = max(present.settled, after or present.settled)
    elif present is not None and after is not None:
        # One row with a year mistyped must not make the future the end, nor a row of today the end of the day: what a
        # run leaves for later counts.
        end = max(present.settled, min([after, *caps()]))
    if end is None:
        raise ValueError("the table has no rows, and so no end yet; `oldest` reads all rows that come")
    if cursor.step(mark.components()[""]) > end:
        raise ValueError(
            f"it lies beyond the end, {cursor.mark(end)}: rows before it that come later would never be read; "
            "`upcoming` begins at the end"
        )


def _is_first_of_two(local: datetime) -> bool:
    """Return whether clocks show a time twice, and this is the first one."""
    return not local.fold and (local.utcoffset() or timedelta()) > (local.replace(fold=1).utcoffset() or timedelta())
