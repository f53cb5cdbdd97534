"""WorkUnits: the parts of a dataset that a source offers to be read, and packs of them for one Spark task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from gobblin_dagster.core.watermark.fields import AnyWatermark
from gobblin_dagster.core.watermark.ranges import WatermarkInterval


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """A part of one dataset, from a low to an expected high watermark.

    It is stored and sent to Spark tasks as JSON: keep it small. It holds what its extractor needs, and no setting of
    the job.

    Source: gobblin-api `WorkUnit`. Differs: has fields instead of arbitrary properties; the job's settings are not
    copied into it.
    """

    id: str
    """Unique in its run, e.g. `wu-00017`; part of the names of files."""
    dataset_urn: str
    low: AnyWatermark
    """First position to read, inclusive."""
    expected_high: AnyWatermark
    """End of the positions to read, exclusive."""
    read: Mapping[str, JsonValue] = field(default_factory=dict)
    """What the extractor needs to read it (files, predicates, offsets); each source chooses its keys."""
    size_bytes: int | None = None
    """Estimated size of the input, for packing; None if the source does not know it."""
    rows: int | None = None
    """Expected number of rows; None if the source does not know it."""
    files: int | None = None
    """Number of input files; None if the source has none."""
    is_noted: bool = False
    """Whether planning has already seen that there is nothing to read: no task runs, and the commit only moves the
    watermark. For example, only the time of change of a file is new."""

    cost_ms: int | None = None
    """Estimated milliseconds, by what the dataset's work units took lately. The planner sets it for all units or for
    none."""

    @property
    def interval(self) -> WatermarkInterval:
        """The range `[low, expected_high)`."""
        return WatermarkInterval(self.low, self.expected_high)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read: the range is empty, and the source expects no rows."""
        if self.is_noted:
            return True
        return self.low == self.expected_high and (self.rows == 0 or (self.rows is None and not self.read))

    @property
    def weight(self) -> int:
        """Relative cost for packing, at least 1: the first of milliseconds, bytes and rows that is known."""
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
