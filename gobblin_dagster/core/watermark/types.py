"""The watermark types that several sources use: numbers, instants, dates, hours, names, and numbers by name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from types import MappingProxyType
from typing import Any, ClassVar, Self

from gobblin_dagster.core.watermark.base import Position, Watermark


class SingleWatermark(Watermark):
    """A watermark of one component; a subclass is a frozen dataclass with the field `value`."""

    __slots__ = ()
    value: Any

    @classmethod
    @abstractmethod
    def checked(cls, value: object) -> Any:
        """Return a position in its normal form; raises TypeError or ValueError if the value is no position."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", self.checked(self.value))

    def components(self) -> Mapping[str, Position]:
        return {"": self.value}

    @classmethod
    def from_components(cls, components: Mapping[str, Position]) -> Self:
        make: Any = cls
        watermark: Self = make(components[""])
        return watermark

    @classmethod
    def position_to_json(cls, position: Position) -> int | str:
        stored: int | str = cls.checked(position)
        return stored

    @classmethod
    def position_from_json(cls, raw: int | str) -> Position:
        position: Position = cls.checked(raw)
        return position

    def __str__(self) -> str:
        return str(self.position_to_json(self.value))


@dataclass(frozen=True, slots=True)
class LongWatermark(SingleWatermark):
    """A whole number: an id, an offset, a version.

    Source: gobblin-core `LongWatermark` ("simple" in the query source).
    """

    value: int
    type_name: ClassVar[str] = "long"

    @classmethod
    def checked(cls, value: object) -> int:
        return _int(value)


@dataclass(frozen=True, slots=True)
class TimestampWatermark(SingleWatermark):
    """An instant, aware and in UTC, to the microsecond.

    Source: gobblin-core `TimestampWatermark`. Differs: an instant in UTC, not a text in a local time zone.
    """

    value: datetime
    type_name: ClassVar[str] = "timestamp"

    @classmethod
    def checked(cls, value: object) -> datetime:
        return _utc(value)

    @classmethod
    def position_to_json(cls, position: Position) -> int | str:
        return _utc(position).isoformat().replace("+00:00", "Z")

    @classmethod
    def position_from_json(cls, raw: int | str) -> Position:
        if not isinstance(raw, str):
            raise TypeError(f"expected an ISO 8601 instant, got {raw!r}")
        return _utc(datetime.fromisoformat(raw))

    def __str__(self) -> str:
        midnight = self.value.hour == self.value.minute == self.value.second == self.value.microsecond == 0
        return self.value.date().isoformat() if midnight else str(self.position_to_json(self.value))


@dataclass(frozen=True, slots=True)
class DateWatermark(SingleWatermark):
    """A calendar day without a time zone, as a column of dates holds it. `[2013-01-01, 2013-01-02)` is one day.

    Source: gobblin-core `DateWatermark`. Differs: a date, not the number yyyyMMdd000000; a time of day is refused.
    """

    value: date
    type_name: ClassVar[str] = "date"

    @classmethod
    def checked(cls, value: object) -> date:
        return _date(value)

    @classmethod
    def position_to_json(cls, position: Position) -> int | str:
        return _date(position).isoformat()

    @classmethod
    def position_from_json(cls, raw: int | str) -> Position:
        if not isinstance(raw, str):
            raise TypeError(f"expected an ISO 8601 date, got {raw!r}")
        return date.fromisoformat(raw)


@dataclass(frozen=True, slots=True)
class HourWatermark(SingleWatermark):
    """The instant at which an hour begins, in UTC. `[2013-01-01T05Z, 2013-01-01T06Z)` is one hour.

    Source: gobblin-core `HourWatermark`. Differs: an instant, not the number yyyyMMddHH0000; minutes are refused.
    """

    value: datetime
    type_name: ClassVar[str] = "hour"

    @classmethod
    def checked(cls, value: object) -> datetime:
        return _hour(value)

    @classmethod
    def position_to_json(cls, position: Position) -> int | str:
        # strftime would write years below 1000 with less than four digits.
        return _hour(position).isoformat(timespec="hours").replace("+00:00", "Z")

    @classmethod
    def position_from_json(cls, raw: int | str) -> Position:
        if not isinstance(raw, str):
            raise TypeError(f"expected an ISO 8601 hour, got {raw!r}")
        return _hour(datetime.fromisoformat(raw))


@dataclass(frozen=True, slots=True)
class NameWatermark(SingleWatermark):
    """A position in the order of names (by code points): `NameWatermark("x")` is just before the name x.

    `NameWatermark.after("x")` is just after it.

    Source: the order of `source.filebased.maxFilesPerRun`, gobblin-core. Differs: is a watermark.
    """

    value: str
    type_name: ClassVar[str] = "name"

    @classmethod
    def after(cls, name: str) -> Self:
        """Return the first position after a name.

        Example:
            >>> print(NameWatermark.after("b.csv"), NameWatermark("b.csv") <= NameWatermark.after("b.csv"))
            after b.csv True
        """
        return cls(name + _NEXT)

    @classmethod
    def checked(cls, value: object) -> str:
        return _name(value)

    def __str__(self) -> str:
        return f"after {self.value[:-1]}" if self.value.endswith(_NEXT) else self.value


_NEXT = "\x01"
"""Added to a name, it gives the next possible name: no name holds the only smaller character, NUL."""


@dataclass(frozen=True, slots=True)
class CompositeWatermark(Watermark):
    """Whole numbers by name, e.g. one offset per Kafka partition.

    Source: gobblin-kafka-common `MultiLongWatermark`. Differs: numbers have names, so that partitions may be added or
    removed.
    """

    values: Mapping[str, int]
    type_name: ClassVar[str] = "composite"

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", MappingProxyType({str(k): _int(v) for k, v in self.values.items()}))

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.values.items())))

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapping proxy cannot be pickled, and plans travel to Spark tasks.
        return (type(self), (dict(self.values),))

    def components(self) -> Mapping[str, Position]:
        return self.values

    @classmethod
    def from_components(cls, components: Mapping[str, Position]) -> Self:
        return cls({name: _int(value) for name, value in components.items()})

    @classmethod
    def position_to_json(cls, position: Position) -> int | str:
        return _int(position)

    @classmethod
    def position_from_json(cls, raw: int | str) -> Position:
        return _int(raw)

    def __str__(self) -> str:
        return "{" + ", ".join(f"{name}:{value}" for name, value in sorted(self.values.items())) + "}"


def seconds_to(watermark: Watermark | None, now: datetime) -> int | None:
    """Return the seconds from a watermark that is a time to an instant, at least 0; None if it is none.

    Example:
        >>> seconds_to(DateWatermark(date(2013, 1, 2)), datetime(2013, 1, 2, 1, tzinfo=UTC))
        3600
    """
    match watermark:
        case DateWatermark(value=day):
            reached = datetime.combine(day, time(), UTC)
        case HourWatermark(value=instant) | TimestampWatermark(value=instant):
            reached = instant
        case _:
            return None
    return max(0, int((now - reached).total_seconds()))


def positions_between(low: Watermark | None, high: Watermark | None) -> int | None:
    """Return how many whole numbers lie from one watermark to another, summed over components that both have.

    None if a watermark is missing, or if both are not of one type of numbers. A component that has gone back counts
    as 0.

    Example:
        >>> positions_between(CompositeWatermark({"0": 5, "1": 9}), CompositeWatermark({"0": 8, "1": 9, "2": 4}))
        3
    """
    if not isinstance(low, LongWatermark | CompositeWatermark) or type(low) is not type(high):
        return None
    reached, there = low.components(), high.components()
    return sum(max(0, _int(there[name]) - _int(value)) for name, value in reached.items() if name in there)


def _int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"expected a whole number, got {value!r}")
    return value


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a name, got {value!r}")
    return value


def _date(value: object) -> date:
    if isinstance(value, datetime) or not isinstance(value, date):
        raise TypeError(f"expected a date, got {value!r}")
    return value


def _hour(value: object) -> datetime:
    instant = _utc(value)
    if instant.minute or instant.second or instant.microsecond:
        raise ValueError(f"expected a whole hour, got {instant.isoformat()!r}")
    return instant


def _utc(value: object) -> datetime:
    if not isinstance(value, datetime):
        raise TypeError(f"expected an instant, got {value!r}")
    if value.tzinfo is None:
        raise ValueError(f"expected an instant with a time zone, got {value.isoformat()!r}")
    return value.astimezone(UTC)
