"""Startpoints: where the next run of a dataset shall begin, set by a person; the commit of that run deletes it.

A startpoint is stored under its dataset, beside the dataset's state, and has an id. A commit deletes only the
startpoint with the id that its plan used: a startpoint that is set while a run works is left for the next run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Discriminator

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.ids import new_commit_id
from gobblin_dagster.core.watermark import DateWatermark, HourWatermark, TimestampWatermark, Watermark
from gobblin_dagster.core.watermark.fields import AnyRanges

DEFAULT_EXPIRY = timedelta(days=7)
_FORMS = "Write a watermark, timestamp:2013-01-31T05:00Z, oldest or upcoming."


@dataclass(frozen=True, slots=True)
class Specific:
    """Begin at a watermark, the first position to read, written as for `gobblin state set`.

    Source: samza-api `StartpointSpecific`.
    """

    watermark: str
    kind: Literal["specific"] = "specific"

    def __str__(self) -> str:
        return self.watermark


@dataclass(frozen=True, slots=True)
class Timestamp:
    """Begin at the first position at or after an instant; the source finds this position.

    Source: samza-api `StartpointTimestamp`.
    """

    instant: datetime
    """Aware."""
    kind: Literal["timestamp"] = "timestamp"

    def __str__(self) -> str:
        return f"timestamp {self.instant.astimezone(UTC).isoformat().replace('+00:00', 'Z')}"


@dataclass(frozen=True, slots=True)
class Oldest:
    """Begin at the first position that the source still has.

    Source: samza-api `StartpointOldest`.
    """

    kind: Literal["oldest"] = "oldest"

    def __str__(self) -> str:
        return self.kind


@dataclass(frozen=True, slots=True)
class Upcoming:
    """Begin after the last position that the source has when the startpoint is first applied.

    Source: samza-api `StartpointUpcoming`.
    """

    kind: Literal["upcoming"] = "upcoming"

    def __str__(self) -> str:
        return self.kind


def watermark_at(kind: type[Watermark], instant: datetime) -> Watermark | None:
    """Return the watermark of a type for an instant; None if watermarks of this type are not times.

    Example:
        >>> print(watermark_at(DateWatermark, datetime(2013, 1, 31, 7, tzinfo=UTC)))
        2013-01-31
    """
    utc = instant.astimezone(UTC)
    if issubclass(kind, DateWatermark):
        return kind(utc.date())
    if issubclass(kind, HourWatermark):
        return kind(utc.replace(minute=0, second=0, microsecond=0))
    return kind(utc) if issubclass(kind, TimestampWatermark) else None


StartpointPosition: TypeAlias = Annotated[Specific | Timestamp | Oldest | Upcoming, Discriminator("kind")]


_TIMESTAMP = "timestamp:"


def parse_startpoint_position(text: str) -> StartpointPosition:
    """Parse a position as people write it: a watermark, `timestamp:<ISO 8601 instant>`, `oldest` or `upcoming`.

    An instant without a zone is taken as UTC.

    Raises:
        UsageError: the instant cannot be read, or the text is empty.

    Example:
        >>> str(parse_startpoint_position("timestamp:2013-01-31T05:00")), str(parse_startpoint_position("42"))
        ('timestamp 2013-01-31T05:00:00Z', '42')
    """
    if text == "oldest":
        return Oldest()
    if text == "upcoming":
        return Upcoming()
    if not text.startswith(_TIMESTAMP):
        if not text:
            raise UsageError(problem="The position of the startpoint is empty.", hint=_FORMS)
        return Specific(text)
    try:
        instant = datetime.fromisoformat(text.removeprefix(_TIMESTAMP))
        return Timestamp((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).astimezone(UTC))
    except (ValueError, OverflowError) as error:
        raise UsageError(problem=f"The instant in {text!r} cannot be read: {error}.", hint=_FORMS) from None


@dataclass(frozen=True, slots=True)
class Startpoint:
    """Where the next run of one dataset of one job shall begin.

    Source: samza-api `Startpoint`. Differs: keyed by job and dataset.urn, expires at an instant of its own.
    """

    format_name: ClassVar[str] = "Startpoint/1"

    job: str
    dataset_urn: str
    position: StartpointPosition
    created_at: datetime
    expires_at: datetime
    """From this instant on it is not applied any more, unless it is pinned. The next run or `gobblin clean` deletes
    it."""
    who: str
    """The person who set it."""
    why: str = ""
    """The reason that the person gave."""
    id: str = field(default_factory=new_commit_id)
    pinned: AnyRanges | None = None
    """The ranges that count as read, for positions that move with time (`upcoming`, an instant). The first run stores
    them, so that a run after a crash begins at the same place."""

    def is_expired(self, now: datetime) -> bool:
        """Return whether it is not applied any more."""
        return self.pinned is None and now >= self.expires_at

    def __str__(self) -> str:
        return f"{self.position}" if self.pinned is None else f"{self.position}, pinned at {self.pinned.watermark}"
