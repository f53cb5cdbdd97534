"""WorkUnits: what a source asks to be read, and packs of them that one Spark task works through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from gobblin_dagster.core.watermark.fields import AnyWatermark
from gobblin_dagster.core.watermark.ranges import WatermarkInterval


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """A part of one dataset, from a low to an expected high watermark.

    It is small and JSON: it travels to a Spark task, and holds what its extractor needs and nothing of the job.

    Source: gobblin-api `WorkUnit`. Differs: a value with fields, not a bag of properties; the job's settings are not
    copied into it.
    """

    id: str
    """Unique in its run, e.g. `wu-00017`; part of file names."""
    dataset_urn: str
    low: AnyWatermark
    """First position to read, inclusive."""
    expected_high: AnyWatermark
    """End of the positions to read, exclusive."""
    read: Mapping[str, JsonValue] = field(default_factory=dict)
    """What the extractor needs to read it (files, predicates, offsets); its shape belongs to the source."""
    size_bytes: int | None = None
    """Estimate of the input's size, for packing; None where the source does not know."""
    rows: int | None = None
    """Expected rows; None where the source does not know."""
    files: int | None = None
    """Input files; None where the source has none."""
    is_noted: bool = False
    """Whether all that it covers was seen while planning: its commit moves the watermark, no task runs, nothing is read."""

    cost_ms: int | None = None
    """Milliseconds that it will take, judged by what its dataset took lately; the plan sets it for all units or for none."""

    @property
    def interval(self) -> WatermarkInterval:
        """The range `[low, expected_high)`."""
        return WatermarkInterval(self.low, self.expected_high)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read: no position, and no rows without one."""
        if self.is_noted:
            return True
        return self.low == self.expected_high and (self.rows == 0 or (self.rows is None and not self.read))

    @property
    def weight(self) -> int:
        """Relative cost for packing, at least 1: milliseconds, bytes or rows, the first that is known."""
        return max(self.cost_ms or self.size_bytes or self.rows or 0, 1)


@dataclass(frozen=True, slots=True)
class MultiWorkUnit:
    """Work units that one Spark task runs one after the other.

    Source: gobblin-api `MultiWorkUnit`.
    """

    work_units: tuple[WorkUnit, ...]

    @property
    def weight(self) -> int:
        """Sum of the weights of its work units."""
        return sum(unit.weight for unit in self.work_units)
