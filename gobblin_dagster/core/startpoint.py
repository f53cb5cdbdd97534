"""Startpoints: stored wishes where the next run of a dataset begins, each consumed by the commit that honours it.

A startpoint is kept under a dataset beside its state and is known by its id: a commit consumes the very one that its plan
saw, so that one set while a run works is left for the next run.
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
    """A watermark, as people write it for `gobblin state set`: the first position to read.

    Source: samza-api `StartpointSpecific`.
    """

    watermark: str
    kind: Literal["specific"] = "specific"

    def __str__(self) -> str:
        return self.watermark


@dataclass(frozen=True, slots=True)
class Timestamp:
    """The first position at or after an instant; the source finds it.

    Source: samza-api `StartpointTimestamp`.
    """

    instant: datetime
    """Aware."""
    kind: Literal["timestamp"] = "timestamp"

    def __str__(self) -> str:
        return f"timestamp {self.instant.astimezone(UTC).isoformat().replace('+00:00', 'Z')}"


@dataclass(frozen=True, slots=True)
class Oldest:
    """The first position that the source still has.

    Source: samza-api `StartpointOldest`.
    """

    kind: Literal["oldest"] = "oldest"

    def __str__(self) -> str:
        return self.kind


@dataclass(frozen=True, slots=True)
class Upcoming:
    """Behind the last position that the source has when the startpoint is first applied: only what comes then is read.

    Source: samza-api `StartpointUpcoming`.
    """

    kind: Literal["upcoming"] = "upcoming"

    def __str__(self) -> str:
        return self.kind


def watermark_at(kind: type[Watermark], instant: datetime) -> Watermark | None:
    """Return the position of an instant where watermarks of a type tell time, else None.

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


Position: TypeAlias = Annotated[Specific | Timestamp | Oldest | Upcoming, Discriminator("kind")]


_TIMESTAMP = "timestamp:"


def parse_position(text: str) -> Position:
    """Read a position as people write it: a watermark, `timestamp:<ISO 8601 instant>`, `oldest` or `upcoming`.

    An instant without a zone is UTC.

    Raises:
        UsageError: the instant cannot be read, or the text is empty.

    Example:
        >>> str(parse_position("timestamp:2013-01-31T05:00")), str(parse_position("42"))
        ('timestamp 2013-01-31T05:00:00Z', '42')
    """
    if text == "oldest":
        return Oldest()
    if text == "upcoming":
        return Upcoming()
    if not text.startswith(_TIMESTAMP):
        if not text:
            raise UsageError(problem="A startpoint needs a position.", hint=_FORMS)
        return Specific(text)
    try:
        instant = datetime.fromisoformat(text.removeprefix(_TIMESTAMP))
        return Timestamp((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).astimezone(UTC))
    except (ValueError, OverflowError) as error:
        raise UsageError(problem=f"{text!r} holds no instant: {error}.", hint=_FORMS) from None


@dataclass(frozen=True, slots=True)
class Startpoint:
    """The wish for one dataset of one job.

    Source: samza-api `Startpoint`. Differs: keyed by job and dataset.urn, expires at an instant of its own.
    """

    format_name: ClassVar[str] = "Startpoint/1"

    job: str
    dataset_urn: str
    position: Position
    created_at: datetime
    expires_at: datetime
    """From then on it is not applied any more, unless it was pinned before; the next run, or `gobblin clean`, deletes it."""
    who: str
    why: str = ""
    id: str = field(default_factory=new_commit_id)
    pinned: AnyRanges | None = None
    """What counts as read, of a position that would be another one later: a run after a crash begins there too."""

    def is_expired(self, now: datetime) -> bool:
        """Tell whether it is not applied any more."""
        return self.pinned is None and now >= self.expires_at

    def __str__(self) -> str:
        return f"{self.position}" if self.pinned is None else f"{self.position}, pinned at {self.pinned.watermark}"
