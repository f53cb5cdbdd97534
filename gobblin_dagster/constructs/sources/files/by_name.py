"""By name: read files in the order of their names; a new file that sorts before the last name read is late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from gobblin_dagster.constructs.sources.files.discovery import FilesPlan, Gate, Label, Limits
from gobblin_dagster.constructs.sources.files.listing import FoundFile
from gobblin_dagster.constructs.sources.files.ordered import plan_line
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.watermark import NameWatermark, Watermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges


@dataclass(frozen=True, slots=True)
class NameLine:
    """Files in order of their names below the root of the pattern, compared by code points."""

    key: Label
    """Returns a file's name."""
    late: ClassVar[str] = (
        "though they sort before what is committed; they are not read: {}. To load their rows, give the files later "
        "names; `new_files: modified` reads files in any order."
    )

    def position(self, file: FoundFile) -> str:
        """Return the file's name."""
        return self.key(file.path)

    def beginning(self, first: FoundFile) -> str:
        """Return the position before every name."""
        return ""

    def end_of(self, position: str) -> str:
        """Return the position behind a name."""
        return NameWatermark.after(position).value

    def mark(self, position: str) -> Watermark:
        """Return a name as a watermark."""
        return NameWatermark(position)


@dataclass(frozen=True, slots=True)
class ByName:
    """Read files whose names are not committed.

    Source: the name order of `source.filebased.maxFilesPerRun`, `FileBasedSource` of gobblin-core. Differs: the last
    name is the watermark; no list of all files is kept.
    """

    limits: Limits
    label: Label
    key: Label
    watermark_type: ClassVar[type[Watermark]] = NameWatermark

    def plan(self, dataset_urn: str, files: Sequence[FoundFile], state: DatasetState | None, gate: Gate) -> FilesPlan:
        line = NameLine(self.key)
        plan = plan_line(dataset_urn, sorted(files, key=line.position), state, self.limits, line, self.label, gate)
        if plan.work_units:
            plan.low, plan.expected_high = plan.work_units[0].low, plan.work_units[-1].expected_high
        return plan

    def was_read(self, ranges: CommittedRanges) -> Callable[[FoundFile], bool | None]:
        return lambda file: ranges.contains(self.key(file.path))
