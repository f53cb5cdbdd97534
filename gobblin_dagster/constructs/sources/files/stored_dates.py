"""StoredDates: notice that stored positions are no dates of `path` any more, or those of other files.

A position is the instant at which a date begins or ends. With another `timezone`, or with longer dates, files would be
left out, or read twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from gobblin_dagster.constructs.sources.files.pattern import PathPattern
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.watermark import TimestampWatermark
from gobblin_dagster.core.watermark.file_set import LINE

_ZONE = "zone of the dates in paths"
_MEND = (
    "Or let `gobblin state reset` forget the positions, and say by `gobblin startpoint set` after it where the dataset "
    "goes on."
)


class StoredDates:
    """Compares stored positions with the dates of a pattern; remembers answers, as datasets share most positions."""

    def __init__(self, pattern: PathPattern) -> None:
        self._pattern = pattern
        self._inside: dict[datetime, bool] = {}

    @property
    def origin(self) -> Mapping[str, str]:
        """The `DatasetOffer.origin` of datasets whose positions are dates."""
        return {_ZONE: self._pattern.timezone.key}

    def problem(self, state: DatasetState | None) -> str:
        """Return why files cannot be read on from the stored positions; empty if they can, or if nobody knows.

        States of earlier versions do not say in which zone dates were read; then it is seen only if a position lies
        inside of a date.
        """
        if state is None:
            return ""
        stored: Any = state.committed.ranges.get(LINE, ())
        positions = [position for bounds in stored for position in bounds]
        now = self._pattern.timezone
        if state.is_other(_ZONE, now.key) and (before := _known_zone(state.origin[_ZONE])) is not None:
            for position in positions:
                if _clock(position, before) != _clock(position, now):
                    return (
                        f"its stored position {TimestampWatermark(position)} is {_clock(position, before)} in the "
                        f"`timezone` {before.key}, in which it was read, and {_clock(position, now)} in {now.key}: "
                        f"files between would be left out or read twice. Give the source the `timezone` {before.key} "
                        f"again. {_MEND}"
                    )
        # A date that began before the first position would be published a second time, one that holds another position
        # would never be read.
        for position in positions:
            if self._is_inside(position):
                return (
                    f"its stored position {TimestampWatermark(position)} is inside of a {self._pattern.granularity} of "
                    f"`path`, in `timezone` {now.key}: rows would be lost or published twice. Give the "
                    f"source the `timezone` and the `path` that it had. {_MEND}"
                )
        return ""

    def _is_inside(self, position: datetime) -> bool:
        """Return True if a position is neither the beginning nor the end of a date."""
        if position not in self._inside:
            try:
                self._inside[position] = self._pattern.dates_around(position) is not None
            except (ValueError, OverflowError):  # before all dates of the calendar, so no file lies there
                self._inside[position] = False
        return self._inside[position]


def _known_zone(key: str) -> ZoneInfo | None:
    """Return a zone; None if this machine has it no more, as `US/Eastern` and other former names."""
    try:
        return ZoneInfo(key)
    except ZoneInfoNotFoundError:
        return None


def _clock(position: datetime, zone: ZoneInfo) -> str:
    """Return what clocks of a zone show at a position; the second time of two differs from the first one."""
    try:
        local = position.astimezone(zone)
    except OverflowError:
        return str(TimestampWatermark(position))
    return f"{local.replace(tzinfo=None)}{' (second time)' if local.fold else ''}"
