"""By date with a lookback: commit dates before the window by date, and files inside the window one by one.

A file that comes late, but inside the window, is read once, and only the files of the window have to be remembered. The
window moves on with the newest date; files dated before it are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, ClassVar

from gobblin_dagster.constructs.sources.files.by_date import DateLine
from gobblin_dagster.constructs.sources.files.by_modified_time import Memory, add_file_units, known_files
from gobblin_dagster.constructs.sources.files.discovery import FilesPlan, Gate, Limits, after_plan
from gobblin_dagster.constructs.sources.files.listing import FoundFile
from gobblin_dagster.constructs.sources.files.ordered import is_in, plan_line
from gobblin_dagster.constructs.sources.files.pattern import NO_DATE, PathPattern
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.watermark import Watermark
from gobblin_dagster.core.watermark.file_set import LINE, FileSetSummary, FileSetWatermark, FileVersion
from gobblin_dagster.core.watermark.ranges import CommittedRanges


@dataclass(frozen=True, slots=True)
class _WindowLine(DateLine):
    """The dates before the window."""

    first: datetime
    """First date, if no date is committed yet."""

    def beginning(self, first: FoundFile) -> datetime:
        return min(self.first, first.start)

    def mark(self, position: datetime) -> Watermark:
        return FileSetWatermark({}, position)


@dataclass(frozen=True, slots=True)
class ByDateWindow:
    """Read dates that are not committed, and late files of the latest dates.

    Source: `date.partitioned.source.lookback.time`, `PartitionedFileSourceBase` of gobblin-core. Differs: files inside
    the window are remembered, so none is read twice.
    """

    pattern: PathPattern
    lookback: int
    """Number of dates before the newest one that still take late files."""
    memory: Memory
    limits: Limits
    watermark_type: ClassVar[type[Watermark]] = FileSetWatermark

    def plan(self, dataset_urn: str, files: Sequence[FoundFile], state: DatasetState | None, gate: Gate) -> FilesPlan:
        committed = state.committed if state is not None else CommittedRanges(FileSetWatermark, {})
        line: Any = committed.ranges.get(LINE, ())
        known = known_files(committed)
        judged = FilesPlan()
        passed = [file for file in files if is_in(file.start, line)]
        found = self.memory.compare((file for file in files if not is_in(file.start, line)), known)
        to_read = self.memory.judge(found, known, judged, gate)
        target = self._window_start(files, gate) if to_read else NO_DATE
        # Never a date inside the window: once committed by date, it takes no late files.
        starts = [target, *(file.start for file in to_read), *(_date(version.date_s) for version in known.values())]
        begin = line[-1][1] if line else min(starts)
        old: list[FoundFile] = []
        inside: list[FoundFile] = []
        for file in to_read:
            is_inside = file.start >= max(target, begin) or self.memory.key(file.path) in known
            (inside if is_inside else old).append(file)
        dates = _WindowLine(self.pattern, begin)
        plan = plan_line(dataset_urn, sorted([*passed, *old]), state, self.limits, dates, self.memory.label, gate)
        plan.notes += judged.notes
        plan.waiting += judged.waiting
        plan.problem = judged.problem
        self._add_window(plan, dataset_urn, inside, known, begin, target)
        self.memory.add_noted(plan, dataset_urn, found, known)
        if plan.work_units:
            summary = FileSetWatermark(known).summarised()
            plan.low = FileSetSummary(summary.count, summary.newest_us, begin)
            plan.expected_high = after_plan(plan, committed)
        return plan

    def _add_window(
        self,
        plan: FilesPlan,
        dataset_urn: str,
        files: Sequence[FoundFile],
        known: Mapping[str, FileVersion],
        begin: datetime,
        target: datetime,
    ) -> None:
        """Add work units for files of the window; the first one also commits all dates before the window."""
        number = len(plan.work_units)
        reached = max([begin, *(_before(unit.expected_high) for unit in plan.work_units)])
        add_file_units(plan, dataset_urn, files, known, self.memory, self.limits)
        if len(plan.work_units) > number and reached < target:
            # All files dated in between were read, one by one.
            unit = plan.work_units[number]
            low, high = _with_line(unit.low, reached), _with_line(unit.expected_high, target)
            plan.work_units[number] = replace(unit, low=low, expected_high=high)

    def _window_start(self, files: Sequence[FoundFile], gate: Gate) -> datetime:
        """Return the first date of the window: `lookback` dates before the newest date that may be read."""
        newest = max(file.start for file in files if gate.is_ripe(file))
        try:
            return self.pattern.shift(newest, -self.lookback)
        except OverflowError:
            return files[0].start

    def was_read(self, ranges: CommittedRanges) -> Callable[[FoundFile], bool | None]:
        known = known_files(ranges)
        return lambda file: ranges.contains(file.start) or self.memory.was_read(file, known)


def _date(date_s: int) -> datetime:
    return datetime.fromtimestamp(date_s, UTC)


def _before(mark: Any) -> datetime:
    found: datetime = mark.before
    return found


def _with_line(mark: Any, before: datetime) -> Watermark:
    return FileSetWatermark(mark.files, before)
