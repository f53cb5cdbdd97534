"""Quartz cron expressions: second, minute, hour, day of month, month, day of week, and optionally the year.

No library at hand knows Quartz' `?`, `L`, `W`, `#` and its years together, and a schedule that fires at other times
than Gobblin's is a fault. Sunday is day 1. Exactly one of the two day fields is `?`.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

YEARS = (1970, 2099)
"""First and last year that an expression can name, as in Quartz."""

NEVER = "0 0 0 ? 1 1 2050"
"""Gobblin's schedule of a flow that was unscheduled."""

_MONTHS = {
    name: number
    for number, name in enumerate(
        ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"], 1
    )
}
_WEEKDAYS = {name: number for number, name in enumerate(["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"], 1)}
_NAMES = ("second", "minute", "hour", "day of month", "month", "day of week", "year")
_BOUNDS = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (1, 7), YEARS)
_WORDS: tuple[dict[str, int], ...] = ({}, {}, {}, {}, _MONTHS, _WEEKDAYS, {})
_DAY, _WEEKDAY = 3, 5
_ITEM = re.compile(r"(?P<first>\*|[A-Z]{3}|\d+)(?:-(?P<last>[A-Z]{3}|\d+))?(?:/(?P<step>\d+))?")


class CronError(ValueError):
    """An expression is not Quartz cron; the message says which field and why."""


@dataclass(frozen=True, slots=True)
class _MonthDays:
    """The field day of month: numbers, and days that depend on the month."""

    days: frozenset[int] = frozenset()
    last_minus: frozenset[int] = frozenset()
    """`L` is 0, `L-3` is 3."""
    nearest_weekdays: frozenset[int] = frozenset()
    """`15W`: the weekday nearest to the 15th, inside of the month."""
    last_weekday: bool = False
    """`LW`"""

    def matches(self, day: date) -> bool:
        end = calendar.monthrange(day.year, day.month)[1]
        if day.day in self.days or end - day.day in self.last_minus:
            return True
        if self.last_weekday and day.day == _nearest_weekday(day.year, day.month, end):
            return True
        return any(day.day == _nearest_weekday(day.year, day.month, near) for near in self.nearest_weekdays)


@dataclass(frozen=True, slots=True)
class _WeekDays:
    """The field day of week; Sunday is 1."""

    days: frozenset[int] = frozenset()
    last: frozenset[int] = frozenset()
    """`6L`: the last Friday of the month."""
    nth: frozenset[tuple[int, int]] = frozenset()
    """`6#3`: the third Friday."""

    def matches(self, day: date) -> bool:
        weekday = day.isoweekday() % 7 + 1
        if weekday in self.days or (weekday, (day.day - 1) // 7 + 1) in self.nth:
            return True
        return weekday in self.last and day.day + 7 > calendar.monthrange(day.year, day.month)[1]


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression.

    Source: Quartz `CronExpression`. Differs: at the change to summer time, a time that does not exist becomes the first
    instant after the gap, once; at the change back, a time that comes twice fires the first time, and both times only
    if the hour field begins with `*`.
    """

    text: str
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    months: frozenset[int]
    days: _MonthDays | _WeekDays
    years: tuple[int, ...]
    is_hourly: bool
    """Whether the hour field begins with `*`: the schedule counts hours, not times of the clock."""

    @classmethod
    @lru_cache(maxsize=4_096)  # many flows share a schedule; at each fire it is read again
    def parse(cls, text: str) -> Cron:
        """Parse an expression.

        Raises:
            CronError: it has not 6 or 7 fields, or a field cannot be read.
        """
        fields = text.upper().split()
        if not 6 <= len(fields) <= 7:
            hint = "; put the second before a cron of 5 fields, and `?` for one of the days" if len(fields) == 5 else ""
            raise CronError(f"expected 6 or 7 fields, got {len(fields)}{hint}")
        if (fields[_DAY] == "?") == (fields[_WEEKDAY] == "?"):
            raise CronError("exactly one of day of month and day of week must be `?`")
        fields.extend(["*"] * (7 - len(fields)))
        numbers = {at: _numbers(field, at) for at, field in enumerate(fields) if at not in (_DAY, _WEEKDAY)}
        days = _month_days(fields[_DAY]) if fields[_WEEKDAY] == "?" else _week_days(fields[_WEEKDAY])
        second, minute, hour, month, year = (numbers[at] for at in (0, 1, 2, 4, 6))
        clock = tuple(sorted(second)), tuple(sorted(minute)), tuple(sorted(hour))
        return cls(text, *clock, frozenset(month), days, tuple(sorted(year)), fields[2].startswith("*"))

    def next_after(self, instant: datetime, zone: ZoneInfo) -> datetime | None:
        """Return the first fire time after an instant, in UTC; None if there is none before the year 2100.

        Args:
            instant: aware.
            zone: the time zone in which the expression is meant.
        """
        # One day back: if the clock is changed at midnight, instants of the next date can be before some of this one.
        after = instant.astimezone(UTC)
        for day in self._days_from(instant.astimezone(zone).date() - timedelta(days=1)):
            found = self._first_on(day, after, zone)
            if found is not None:
                return found
        return None

    def fire_times(self, instant: datetime, zone: ZoneInfo) -> Iterator[datetime]:
        """Yield the fire times after an instant, in UTC and in order."""
        found = self.next_after(instant, zone)
        while found is not None:
            yield found
            found = self.next_after(found, zone)

    def least_interval_s(self) -> int:
        """Return the smallest distance between two fire times that the fields allow, in seconds; at most one hour."""
        if len(self.seconds) > 1:
            gaps = [later - earlier for earlier, later in pairwise(self.seconds)]
            return min([*gaps, 60 - self.seconds[-1] + self.seconds[0]])
        if len(self.minutes) > 1:
            gaps = [later - earlier for earlier, later in pairwise(self.minutes)]
            return 60 * min([*gaps, 60 - self.minutes[-1] + self.minutes[0]])
        return 3600

    def can_fire(self) -> bool:
        """Return whether any day matches, in the past too; the 31st of February does not."""
        return next(self._days_from(date(YEARS[0], 1, 1)), None) is not None

    def _days_from(self, first: date) -> Iterator[date]:
        for year in self.years:
            if year < first.year:
                continue
            for month in sorted(self.months):
                if (year, month) < (first.year, first.month):
                    continue
                for number in range(1, calendar.monthrange(year, month)[1] + 1):
                    day = date(year, month, number)
                    if day >= first and self.days.matches(day):
                        yield day

    def _first_on(self, day: date, after: datetime, zone: ZoneInfo) -> datetime | None:
        """Return the first fire time of a date that is after an instant."""
        midnight = datetime.combine(day, time(), zone)
        marks = (midnight, midnight.replace(hour=23, minute=59, second=59), midnight + timedelta(days=1))
        offsets = {mark.utcoffset() for mark in marks}
        if len(offsets) > 1:
            return next((found for found in _instants_at_change(self, day, zone) if found > after), None)
        (offset,) = offsets
        clock = _next_time(self, (after + (offset or timedelta())).replace(tzinfo=None), day)
        return None if clock is None else datetime.combine(day, clock, zone).astimezone(UTC)


def _next_time(cron: Cron, after: datetime, day: date) -> time | None:
    """Return the first time of a date that is later than a local one."""
    if after.date() > day:
        return None
    least = after.time() if after.date() == day else None
    for hour in cron.hours:
        if least is not None and hour < least.hour:
            continue
        for minute in cron.minutes:
            if least is not None and (hour, minute) < (least.hour, least.minute):
                continue
            for second in cron.seconds:
                found = time(hour, minute, second)
                if least is None or found > least:
                    return found
    return None


@lru_cache(maxsize=64)
def _instants_at_change(cron: Cron, day: date, zone: ZoneInfo) -> tuple[datetime, ...]:
    """Return the fire times of a date on which the clock is changed."""
    found: set[datetime] = set()
    for hour in cron.hours:
        for minute in cron.minutes:
            for second in cron.seconds:
                found.update(_instants(datetime(day.year, day.month, day.day, hour, minute, second), zone, cron))
    return tuple(sorted(found))


def _instants(wall: datetime, zone: ZoneInfo, cron: Cron) -> list[datetime]:
    """Return the instants of a local time: one; at the change back two if the schedule counts hours."""
    first, second = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first == second:
        return [first]
    if first < second:
        return [first, second] if cron.is_hourly else [first]
    # A gap. With fold=0 the offset before the change counts, so `first` lies after the change, `second` before it.
    return [_change_between(second, first, zone)]


def _change_between(low: datetime, high: datetime, zone: ZoneInfo) -> datetime:
    """Return the first instant with the UTC offset of `high`, to the second."""
    offset = high.astimezone(zone).utcoffset()
    while high - low > timedelta(seconds=1):
        middle = (low + (high - low) / 2).replace(microsecond=0)
        if middle.astimezone(zone).utcoffset() == offset:
            high = middle
        else:
            low = middle
    return high


def _nearest_weekday(year: int, month: int, day: int) -> int:
    """Return the weekday nearest to a day, without leaving the month."""
    end = calendar.monthrange(year, month)[1]
    day = min(day, end)
    weekday = date(year, month, day).weekday()
    if weekday == 5:  # Saturday
        return day - 1 if day > 1 else day + 2
    if weekday == 6:  # Sunday
        return day + 1 if day < end else day - 2
    return day


def _numbers(field: str, at: int) -> set[int]:
    """Return the numbers of a field: `*`, `5`, `MON-FRI`, `0/15`, `22-4`, and lists of these."""
    return {number for item in field.split(",") for number in _item(item, at)}


def _item(item: str, at: int) -> Iterator[int]:
    least, most = _BOUNDS[at]
    found = _ITEM.fullmatch(item)
    if found is None:
        raise _fault(at, item)
    step = int(found["step"]) if found["step"] else 1
    if not 1 <= step <= most - (least if at == 6 else 0):
        raise _fault(at, item, f"the step must be from 1 to {most}")
    if found["first"] == "*":
        if found["last"]:
            raise _fault(at, item)
        return iter(range(least, most + 1, step))
    first = _number(found["first"], at, item)
    open_end = most if found["step"] else first
    last = _number(found["last"], at, item) if found["last"] else open_end
    if last >= first:
        return iter(range(first, last + 1, step))
    if at == 6:
        raise _fault(at, item, "the first year must not be after the last")
    # Quartz lets a range wrap: 22-4 are the hours of the night.
    size = most - least + 1
    return (least + (number - least) % size for number in range(first, last + size + 1, step))


def _number(text: str, at: int, item: str) -> int:
    least, most = _BOUNDS[at]
    number = int(text) if text.isdigit() and len(text) <= 4 else _WORDS[at].get(text)
    if number is None or not least <= number <= most:
        raise _fault(at, item, f"values are from {least} to {most}")
    return number


def _month_days(field: str) -> _MonthDays:
    days: set[int] = set()
    last_minus: set[int] = set()
    nearest: set[int] = set()
    last_weekday = False
    for item in field.split(","):
        if item == "LW":
            last_weekday = True
        elif found := re.fullmatch(r"L(?:-(\d{1,2}))?", item):
            minus = int(found[1] or 0)
            if minus > 30:
                raise _fault(_DAY, item, "at most 30 days before the last")
            last_minus.add(minus)
        elif found := re.fullmatch(r"(\d{1,2})W", item):
            nearest.add(_number(found[1], _DAY, item))
        else:
            days.update(_item(item, _DAY))
    return _MonthDays(frozenset(days), frozenset(last_minus), frozenset(nearest), last_weekday)


def _week_days(field: str) -> _WeekDays:
    days: set[int] = set()
    last: set[int] = set()
    nth: set[tuple[int, int]] = set()
    for item in field.split(","):
        if item == "L":
            days.add(7)
        elif found := re.fullmatch(r"([A-Z]{3}|\d)L", item):
            last.add(_number(found[1], _WEEKDAY, item))
        elif found := re.fullmatch(r"([A-Z]{3}|\d)#(\d)", item):
            number = int(found[2])
            if not 1 <= number <= 5:
                raise _fault(_WEEKDAY, item, "a month has at most 5 of a weekday")
            nth.add((_number(found[1], _WEEKDAY, item), number))
        else:
            days.update(_item(item, _WEEKDAY))
    return _WeekDays(frozenset(days), frozenset(last), frozenset(nth))


def _fault(at: int, item: str, why: str = "") -> CronError:
    return CronError(f"the {_NAMES[at]} cannot be {item[:20]!r}" + (f": {why}" if why else ""))
