"""The clock as a value that is passed in, so that tests own time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the time; called on the driver only."""

    def now(self) -> datetime:
        """Return the current instant, aware and in UTC."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the current instant."""
        return datetime.now(UTC)
