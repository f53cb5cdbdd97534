"""TableSnapshotWatermark: up to which snapshot a table was read, for tables whose snapshot ids have no order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from gobblin_dagster.core.watermark import Position, Watermark, register_watermark_type


@dataclass(frozen=True, slots=True)
class TableSnapshotWatermark(Watermark):
    """The position after a snapshot: everything that the table held in this snapshot was read.

    `number` counts the snapshots along the table's history and gives the order; `snapshot_id` identifies the snapshot.
    Both are 0 before the first snapshot. Written as `3@8723`.

    Source: none; Iceberg's snapshot ids are random numbers.

    Example:
        >>> low, high = TableSnapshotWatermark(0, 0), TableSnapshotWatermark(3, 8723)
        >>> print(high, low <= high, TableSnapshotWatermark.position_from_json("3@8723"))
        3@8723 True (3, 8723)
    """

    number: int
    snapshot_id: int
    type_name: ClassVar[str] = "table_snapshot"

    def components(self) -> Mapping[str, Position]:
        return {"": (self.number, self.snapshot_id)}

    @classmethod
    def from_components(cls, components: Mapping[str, Position]) -> Self:
        return cls(*_pair(components[""]))

    @classmethod
    def position_to_json(cls, position: Position) -> int | str:
        return "{}@{}".format(*_pair(position))

    @classmethod
    def position_from_json(cls, raw: int | str) -> Position:
        number, at, snapshot_id = str(raw).partition("@")
        if not at:
            raise ValueError(f"expected number@snapshot, got {raw!r}")
        return int(number), int(snapshot_id)

    def __str__(self) -> str:
        return f"{self.number}@{self.snapshot_id}"


def _pair(position: Any) -> tuple[int, int]:
    if not isinstance(position, tuple) or len(position) != 2 or not all(isinstance(part, int) for part in position):
        raise TypeError(f"expected a number and a snapshot id, got {position!r}")
    return position


register_watermark_type(TableSnapshotWatermark)
