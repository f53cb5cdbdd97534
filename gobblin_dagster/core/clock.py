"""The clock, passed in as a value, so that tests can set the time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Gives the current time; called on the driver only."""

    def now(self) -> datetime:
        """Return the current instant, aware and in UTC."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the current instant."""
        return datetime.now(UTC)
