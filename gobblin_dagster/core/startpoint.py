"""Startpoints: where the next run of a dataset shall begin, set by a person; the commit of that run deletes it.

A startpoint is stored under its key: one job or all jobs, a dataset, and the whole dataset or one partition of it. It
has an id. A commit deletes only the startpoints with the ids that its plan used: a startpoint that is set while a run
works is left for the next run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Discriminator, PlainSerializer, PlainValidator, TypeAdapter

from gobblin_dagster.core.errors import CorruptRecordError, UsageError
from gobblin_dagster.core.ids import new_commit_id
from gobblin_dagster.core.startpoint_types import (
    BUILT_IN,
    CustomPosition,
    custom_from_json,
    custom_to_json,
    startpoint_type,
)
from gobblin_dagster.core.watermark import DateWatermark, HourWatermark, TimestampWatermark, Watermark
from gobblin_dagster.core.watermark.fields import AnyRanges

DEFAULT_EXPIRY = timedelta(days=7)
CLOCK_TOLERANCE = timedelta(minutes=5)
"""How far the creation time of a startpoint may lie ahead of the clock that judges it; the newest startpoint wins, so
one of a wrong clock would win for long."""
ALL_JOBS = "*"
"""In place of a job's name: every job that reads the dataset from the same source."""
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


OnRewind: TypeAlias = Literal["refuse", "append", "replace", "upsert"]
"""What a run does if its startpoint goes back into published data: `refuse` it, if readers would see rows twice;
`append` the rows once more; `replace` the files that hold them; `upsert`, if the output merges rows by a key."""
_BUILT_IN: TypeAdapter[Specific | Timestamp | Oldest | Upcoming] = TypeAdapter(
    Annotated[Specific | Timestamp | Oldest | Upcoming, Discriminator("kind")]
)


def _load_position(raw: Any) -> Any:
    if not isinstance(raw, dict):
        return raw
    return _BUILT_IN.validate_python(raw) if raw.get("kind") in BUILT_IN else custom_from_json(raw)


def _dump_position(position: Any) -> dict[str, Any]:
    if isinstance(position, CustomPosition):
        return custom_to_json(position)
    dumped: dict[str, Any] = _BUILT_IN.dump_python(position, mode="json")
    return dumped


StartpointPosition: TypeAlias = Annotated[
    Specific | Timestamp | Oldest | Upcoming | CustomPosition,
    PlainValidator(_load_position),
    PlainSerializer(_dump_position, return_type=dict),
]
"""A built-in position, or one of a type that users add."""


_TIMESTAMP = "timestamp:"


def parse_startpoint_position(text: str) -> StartpointPosition:
    """Parse a position as people write it: a watermark, `timestamp:<ISO 8601 instant>`, `oldest` or `upcoming`.

    An instant without a zone is taken as UTC. A position of a registered type is written `<kind>:<JSON>`.

    Raises:
        UsageError: the instant or the JSON cannot be read, or the text is empty.

    Example:
        >>> str(parse_startpoint_position("timestamp:2013-01-31T05:00")), str(parse_startpoint_position("42"))
        ('timestamp 2013-01-31T05:00:00Z', '42')
    """
    if text == "oldest":
        return Oldest()
    if text == "upcoming":
        return Upcoming()
    name, _, value = text.partition(":")
    if (custom := startpoint_type(name)) is not None:
        try:
            return custom.from_json(json.loads(value), custom.version)
        except (ValueError, TypeError, KeyError) as error:
            problem = f"The startpoint {text!r} is none of type {name!r}: {error}."
            raise UsageError(problem=problem, hint=f"Write {name}:<JSON>, as the type stores it.") from None
    if not text.startswith(_TIMESTAMP):
        if not text:
            raise UsageError(problem="The position of the startpoint is empty.", hint=_FORMS)
        return Specific(text)
    try:
        instant = datetime.fromisoformat(text.removeprefix(_TIMESTAMP))
        return Timestamp((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).astimezone(UTC))
    except (ValueError, OverflowError) as error:
        raise UsageError(problem=f"The instant in {text!r} cannot be read: {error}.", hint=_FORMS) from None


@dataclass(frozen=True, slots=True, order=True)
class StartpointKey:
    """What a startpoint is for. A store holds at most one startpoint per key.

    Source: samza-core `StartpointKey` (partition, or partition and task). Differs: the task is a job; a key may also
    stand for all partitions of a dataset.

    Example:
        >>> str(StartpointKey("clicks")), str(StartpointKey("clicks", "clicks-0", job="hourly"))
        ('clicks in all jobs', 'clicks-0 of clicks in job hourly')
    """

    dataset_urn: str
    partition: str = ""
    """A component of the dataset's watermark, such as the Kafka partition `clicks-0`; empty for the whole dataset."""
    job: str = ALL_JOBS
    """Name of the job, or `ALL_JOBS`."""

    @property
    def width(self) -> int:
        """How many keys it covers, as a rank: 0 for one partition in one job, 3 for a whole dataset in all jobs."""
        return 2 * (self.job == ALL_JOBS) + (not self.partition)

    def __str__(self) -> str:
        what = f"{self.partition} of {self.dataset_urn}" if self.partition else self.dataset_urn
        return f"{what} in all jobs" if self.job == ALL_JOBS else f"{what} in job {self.job}"


@dataclass(frozen=True, slots=True)
class Startpoint:
    """Where the next run of one dataset shall begin, in one job or in all jobs.

    Source: samza-api `Startpoint`. Differs: has its key, expires at an instant of its own.
    """

    format_name: ClassVar[str] = "Startpoint/2"
    older_formats: ClassVar[tuple[str, ...]] = ("Startpoint/1",)
    """Version 1 knew only keys of a job and a whole dataset."""

    job: str
    """Name of the job, or `ALL_JOBS`."""
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
    origin: Mapping[str, str] = field(default_factory=dict)
    """Ids of the topics or tables that its position lies in, as `DatasetState.origin`: of a watermark since it was set
    or fanned out, of other positions since they were pinned. Empty if they are not known."""
    partition: str = ""
    """As `StartpointKey.partition`."""
    source: str = ""
    """The source that it is for (`source_identity`), if it is for all jobs: other sources may have datasets of the same
    name. Empty for any source."""
    until: StartpointPosition | None = None
    """End of a bounded re-read, exclusive: the run reads up to there, and the watermark stays where it is. None to read
    on to the end of the data."""
    on_rewind: OnRewind = "append"
    """The default is what programs did that did not know this field; `gobblin startpoint set` stores `refuse`."""
    is_copy: bool = False
    """Whether it is the copy, for one job, of the startpoint for all jobs that has the same id."""
    generation: int = 0
    """0 until a run has fanned it out for its job; then the version of the dataset's state that the run's commit would
    write. A startpoint that was fanned out does not expire as long as the source has its dataset and partition; it
    stays until a commit applies it."""

    @property
    def key(self) -> StartpointKey:
        """The key that it is stored under."""
        return StartpointKey(self.dataset_urn, self.partition, self.job)

    @property
    def is_specific(self) -> bool:
        """Whether a watermark is its position or its end: this means nothing in another topic or table."""
        return isinstance(self.position, Specific) or isinstance(self.until, Specific)

    def is_expired(self, now: datetime) -> bool:
        """Return whether it is not applied any more."""
        return self.is_stale(now) and not self.generation

    def is_stale(self, now: datetime) -> bool:
        """Return whether it is not applied any more, or would not be if the source did not have its dataset."""
        return self.pinned is None and now >= self.expires_at

    def replaces(self, other: Startpoint) -> bool:
        """Return whether it takes the place of a startpoint of the same key: its own older form, or an older one."""
        return self.id == other.id or self.created_at > other.created_at

    def is_from_the_future(self, now: datetime) -> bool:
        """Return whether the clock that it was created by was ahead by more than `CLOCK_TOLERANCE`."""
        return self.created_at > now + CLOCK_TOLERANCE

    def __str__(self) -> str:
        where = f"{self.partition} at {self.position}" if self.partition else f"{self.position}"
        where += f" up to {self.until}" if self.until is not None else ""
        return where if self.pinned is None else f"{where}, pinned at {self.pinned.watermark}"


@dataclass(frozen=True, slots=True)
class DamagedStartpoint(Startpoint):
    """A startpoint whose record cannot be read: runs leave its dataset alone until a person has removed it.

    `why` tells what is wrong with the record.
    """

    @classmethod
    def of(cls, key: StartpointKey, startpoint_id: str, problem: str) -> DamagedStartpoint:
        """Return the damaged startpoint of a key. It never expires: only a person knows what it was for."""
        first, last = (datetime(year, 1, 1, tzinfo=UTC) for year in (1970, 9999))
        position = Specific("(damaged)")
        return cls(
            key.job, key.dataset_urn, position, first, last, "-", problem, startpoint_id, partition=key.partition
        )

    @property
    def error(self) -> CorruptRecordError:
        """The error for whoever wants to apply it."""
        where = " --all-jobs" if self.is_copy or self.job == ALL_JOBS else ""
        return CorruptRecordError(
            what=f"The startpoint of {self.key}",
            problem=f"{self.why}. `gobblin startpoint remove{where}` removes it, `gobblin startpoint set` replaces it",
        )


def by_precedence(startpoints: Iterable[Startpoint]) -> list[Startpoint]:
    """Return startpoints of one dataset in the order in which they are applied: a later one wins.

    The newer one wins, whatever its key; of two that were created at the same time, the one with the narrower key.

    Source: samza-core `StartpointManager.resolveStartpointPrecendence`.
    """
    return sorted(startpoints, key=lambda one: (one.created_at, -one.key.width, one.id))


StartpointChange: TypeAlias = Literal["set", "replaced", "fanned out", "removed", "expired"]


@dataclass(frozen=True, slots=True)
class StartpointEvent:
    """What happened to a startpoint, for the history. That a commit consumed it, the commit's own report says."""

    format_name: ClassVar[str] = "StartpointEvent/1"

    startpoint: Startpoint
    change: StartpointChange
    at: datetime
    who: str
    """The person, or the id of the run."""

    def may_delete(self, stored: Startpoint) -> bool:
        """Return whether it deletes what its key holds: the same startpoint, not fanned out since it expired."""
        is_saved = self.change == "expired" and stored.generation > 0 and not self.startpoint.generation
        return stored.id == self.startpoint.id and not is_saved


def events_of(
    change: StartpointChange, after: Startpoint, before: Startpoint | None, at: datetime, who: str
) -> list[StartpointEvent]:
    """Return the events of a change that stores a startpoint; none if it was stored or fanned out already.

    Args:
        change: what the change does to the startpoint, `set` or `fanned out`.
        after: the startpoint that the key holds after the change.
        before: the one that the key held before it; None if it held none.
        at: the instant of the change.
        who: the person, or the id of the run.
    """
    is_new = before is None or before.id != after.id
    replaced = [StartpointEvent(before, "replaced", at, who)] if before is not None and is_new else []
    is_told = is_new or (change == "fanned out" and before is not None and not before.generation)
    return [*replaced, *([StartpointEvent(after, change, at, who)] if is_told else [])]
