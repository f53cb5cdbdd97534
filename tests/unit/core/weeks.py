"""A watermark type as users bring one: no module of the package knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, ClassVar, Self

from gobblin_dagster.core.watermark import Position, Watermark


@dataclass(frozen=True, slots=True)
class WeekWatermark(Watermark):
    """A whole ISO week, held as its Monday."""

    value: date
    type_name: ClassVar[str] = "tests.unit.core.weeks:WeekWatermark"

    def components(self) -> Mapping[str, Position]:
        return {"": self.value}

    @classmethod
    def from_components(cls, components: Mapping[str, Position]) -> Self:
        monday: Any = components[""]
        if monday.weekday():
            raise ValueError(f"expected a Monday, got {monday}")
        return cls(monday)

    @classmethod
    def position_to_json(cls, position: Position) -> int | str:
        monday: Any = position
        return f"{monday:%G-W%V}"

    @classmethod
    def position_from_json(cls, raw: int | str) -> Position:
        return date.fromisoformat(str(raw))

    def __str__(self) -> str:
        return str(self.position_to_json(self.value))


WEEK = timedelta(days=7)


class Impostor(WeekWatermark):
    """Bears the name of another class."""
