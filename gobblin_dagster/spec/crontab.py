"""Find what is wrong in the five fields of a crontab line, so that `gobblin check` names it before Dagster does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LONGEST_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ITEM = re.compile(r"(?:\*|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\d+))?")


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    first: int
    last: int
    words: tuple[str, ...] = ()
    """Names of the values from `first` on."""
    extra: str = r"(?!)"
    """Pattern of items that are no values or ranges."""

    def problem(self, text: str) -> str:
        """Return what is wrong with a field; empty if nothing is."""
        for item in text.split(","):
            found = _ITEM.fullmatch(item)
            if re.fullmatch(self.extra, item, re.IGNORECASE):
                continue
            if found is None or any(self.value(part) is None for part in found.group("first", "last") if part):
                return f"the {self.name} is from {self.first} to {self.last}, got {item!r}"
            if found["step"] and not int(found["step"]):
                return f"the step of the {self.name} is at least 1, got {item!r}"
        return ""

    def value(self, part: str) -> int | None:
        """Return a number or name as a number; None if the field has no such value."""
        word = part.lower()
        number = self.words.index(word) + self.first if word in self.words else int(part) if part.isdecimal() else -1
        return number if self.first <= number <= self.last else None

    def values(self, text: str) -> Iterator[int]:
        """Yield the values of a field that lists plain values only; nothing if it holds anything else."""
        found = [self.value(item) for item in text.split(",")]
        if None not in found:
            yield from (value for value in found if value is not None)


_MONTH = _Field("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"))
_DAY = _Field("day of month", 1, 31, extra=r"(\d+-)?l(/\d+)?")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _DAY,
    _MONTH,
    _Field("day of week", 0, 7, _WEEKDAYS, extra=rf"([0-7]|{'|'.join(_WEEKDAYS)})#[1-5]|l[0-7]"),
)


def crontab_problem(cron: str) -> str:
    """Return what is wrong in five fields of a crontab line; empty if nothing is.

    Example:
        >>> crontab_problem("0 6 * * 1-5"), crontab_problem("60 * * * *")
        ('', "the minute is from 0 to 59, got '60'")
        >>> crontab_problem("0 0 31 feb,apr *")
        'there is no such day in these months'
    """
    texts = cron.split(" ")
    for field, text in zip(_FIELDS, texts, strict=True):
        if problem := field.problem(text):
            return problem
    days, months = list(_DAY.values(texts[2])), list(_MONTH.values(texts[3]))
    if days and months and texts[4] == "*" and min(days) > max(_LONGEST_MONTHS[month - 1] for month in months):
        return "there is no such day in these months"
    return ""
