"""Ages in Gobblin's notation: months, days and hours, `1m2d3h`."""

from __future__ import annotations

import calendar
import re
from datetime import datetime, timedelta
from typing import Annotated, TypeAlias

from pydantic import AfterValidator

_AGE = re.compile(r"(?:(\d{1,4})m)?(?:(\d{1,5})d)?(?:(\d{1,6})h)?")


def _parts(age: str) -> tuple[int, int, int]:
    match = _AGE.fullmatch(age)
    if match is None or not age:
        raise ValueError(f"expected months, days and hours, e.g. 1m2d3h or 36h; got {age!r}")
    months, days, hours = (int(part or 0) for part in match.groups())
    return months, days, hours


def _known(age: str) -> str:
    _parts(age)
    return age


Age: TypeAlias = Annotated[str, AfterValidator(_known)]
"""Option type: an age."""


def before(instant: datetime, age: str) -> datetime:
    """Return the instant `age` before `instant`; in a shorter month, the last day.

    Example:
        >>> before(datetime(2013, 3, 31, 12), "1m1h").isoformat()
        '2013-02-28T11:00:00'
    """
    months, days, hours = _parts(age)
    count = instant.year * 12 + instant.month - 1 - months
    year, month = max(1, count // 12), count % 12 + 1
    day = min(instant.day, calendar.monthrange(year, month)[1])
    return instant.replace(year=year, month=month, day=day) - timedelta(days=days, hours=hours)


def age_text(age: str) -> str:
    """Return an age in words, for messages.

    Example:
        >>> age_text("1m36h")
        '1 month 36 hours'
    """
    units = zip(_parts(age), ("month", "day", "hour"), strict=True)
    return " ".join(f"{count} {unit}{'' if count == 1 else 's'}" for count, unit in units if count) or "0 hours"
