"""Durations in job files: `90s`, `30m`, `6h`, `2d`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, PlainSerializer

_SPAN = re.compile(r"(\d+)\s*([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_duration(value: object) -> timedelta:
    """Parse a duration; raises ValueError.

    Example:
        >>> parse_duration("6h")
        datetime.timedelta(seconds=21600)
    """
    if isinstance(value, timedelta):
        return value
    match = _SPAN.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"expected a duration like 90s, 30m, 6h or 2d, got {value!r}")
    try:
        return timedelta(**{_UNITS[match[2]]: int(match[1])})
    except OverflowError:
        raise ValueError(f"{value!r} is longer than any calendar") from None


def _to_text(value: timedelta) -> str:
    return f"{int(value.total_seconds())}s"


def _parse_signed(value: object) -> timedelta:
    if isinstance(value, str) and value.startswith("-"):
        return -parse_duration(value[1:])
    return parse_duration(value)


Duration: TypeAlias = Annotated[
    timedelta,
    BeforeValidator(parse_duration, json_schema_input_type=str),
    PlainSerializer(_to_text, return_type=str),
]
"""Option type: a duration."""
SignedDuration: TypeAlias = Annotated[
    timedelta,
    BeforeValidator(_parse_signed, json_schema_input_type=str),
    PlainSerializer(_to_text, return_type=str),
]
"""Option type: a duration that may be negative, e.g. `-30d`."""
