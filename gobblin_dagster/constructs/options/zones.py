"""Option type for time zones, checked when the job file is read."""

from __future__ import annotations

from typing import Annotated, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator


def _known(zone: str) -> str:
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"expected an IANA zone, e.g. Europe/Berlin; got {zone!r}") from None
    return zone


ZoneName: TypeAlias = Annotated[str, AfterValidator(_known)]
"""Option type: name of an IANA time zone."""
