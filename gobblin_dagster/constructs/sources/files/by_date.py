"""By date: read files in the order of the dates in their paths; committed dates are never read again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import ClassVar

from gobblin_dagster.constructs.sources.files.discovery import FilesPlan, Gate, Label, Limits
from gobblin_dagster.constructs.sources.files.listing import FoundFile
from gobblin_dagster.constructs.sources.files.ordered import plan_line
from gobblin_dagster.constructs.sources.files.pattern import PathPattern
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.watermark import TimestampWatermark, Watermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges


@dataclass(frozen=True, slots=True)
class DateLine:
    """Files in order of the dates in their paths; a position is the instant at which a date begins."""

    pattern: PathPattern
    late: ClassVar[str] = (
        "though their dates are committed; they are not read: {}. To load their rows, add the files under a date that "
        "is not committed yet; `lookback` reads such files of the latest dates."
    )

    position = staticmethod(attrgetter("start"))

    def beginning(self, first: FoundFile) -> datetime:
        """Return the date of the first file."""
        return first.start

    def end_of(self, position: datetime) -> datetime:
        """Return the beginning of the next date."""
        return self.pattern.end_of(position)

    def mark(self, position: datetime) -> Watermark:
        """Return the date as a timestamp."""
        return TimestampWatermark(position)


@dataclass(frozen=True, slots=True)
class ByDate:
    """Read dates that are not committed.

    Source: `PartitionedFileSourceBase` of gobblin-core. Differs: dates that failed are read again alone.
    """

    pattern: PathPattern
    limits: Limits
    label: Label
    watermark_type: ClassVar[type[Watermark]] = TimestampWatermark

    def plan(self, dataset_urn: str, files: Sequence[FoundFile], state: DatasetState | None, gate: Gate) -> FilesPlan:
        plan = plan_line(dataset_urn, files, state, self.limits, DateLine(self.pattern), self.label, gate)
        if plan.work_units:
            plan.low, plan.expected_high = plan.work_units[0].low, plan.work_units[-1].expected_high
        return plan

    def was_read(self, ranges: CommittedRanges) -> Callable[[FoundFile], bool | None]:
        return lambda file: ranges.contains(file.start)
