"""A watermark type as users bring one: no module of the package knows it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, ClassVar

from gobblin_dagster.core.watermark import Position, SingleWatermark


@dataclass(frozen=True, slots=True)
class WeekWatermark(SingleWatermark):
    """A whole ISO week, held as its Monday."""

    value: date
    type_name: ClassVar[str] = "tests.unit.core.weeks:WeekWatermark"

    @classmethod
    def checked(cls, value: object) -> date:
        if not isinstance(value, date) or value.weekday():
            raise ValueError(f"expected a Monday, got {value}")
        return value

    @classmethod
    def position_to_json(cls, position: Position) -> int | str:
        monday: Any = position
        return f"{monday:%G-W%V}"

    @classmethod
    def position_from_json(cls, raw: int | str) -> Position:
        return date.fromisoformat(str(raw))


WEEK = timedelta(days=7)


class Impostor(WeekWatermark):
    """Bears the name of another class."""
