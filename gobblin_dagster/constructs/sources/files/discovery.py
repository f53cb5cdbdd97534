"""Find new files: what the strategies (by date, by time of change, by name) have in common.

Pure functions: from the files found and the stored state to work units and notes. A file that was read is not read
again unless the options ask for it. A file that is left out is named in a note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby
from math import inf
from typing import Any, ClassVar, Protocol

from gobblin_dagster.constructs.sources.files.listing import Examples, FoundFile
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.ids import run_began_at
from gobblin_dagster.core.watermark import TimestampWatermark, Watermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.core.work_unit import WorkUnit

Label = Callable[[str], str]
"""Returns the path that messages and work units show for a file."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one work unit and of one run; files at one position are never separated, even beyond a limit."""

    files: int
    size_bytes: int
    run_files: int | None = None
    """Most files of one dataset in one run; None for no limit."""
    tried_files: int = 1
    """Most files of a work unit that failed runs already tried."""
    tried_at: float = -inf
    """Seconds since the epoch; a file that came before this and is not committed counts as tried."""

    def after(self, failed: Sequence[datetime]) -> Limits:
        """Return smaller limits for a dataset whose latest runs failed.

        A bad file fails its whole work unit, so each failure divides the size by eight. Not by more: a passing failure
        should not leave many tiny work units.

        Args:
            failed: when these runs began, newest first.
        """
        few = max(1, self.files >> 3 * len(failed))
        return replace(self, tried_files=few, tried_at=failed[0].timestamp())


@dataclass(frozen=True, slots=True)
class Gate:
    """Which of the files found may be read now."""

    start: datetime | None = None
    """Files dated before this are ignored; None ignores none."""
    ripe_at: datetime | None = None
    """Files whose date began, or that came, after this instant wait for a later run; None makes none wait."""
    by_date: bool = True
    """True: age counts from the dates in paths; False: from the time at which files came."""

    def is_wanted(self, file: FoundFile) -> bool:
        """Return True unless the file is dated before `start`."""
        return self.start is None or file.start >= self.start

    def is_ripe(self, file: FoundFile) -> bool:
        """Return True if the file is old enough to be read."""
        if self.ripe_at is None:
            return True
        return file.start <= self.ripe_at if self.by_date else file.changed_at <= self.ripe_at.timestamp()


OPEN = Gate()


@dataclass(slots=True)
class FilesPlan:
    """The work units of one dataset, with notes and counts."""

    work_units: list[WorkUnit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left: int = 0
    """New files that the limits of a run leave for a later one."""
    waiting: int = 0
    """New files that are too young to be read."""
    problem: str = ""
    """Why the dataset cannot be read; empty if it can."""
    low: Watermark | None = None
    expected_high: Watermark | None = None

    def add(
        self, dataset_urn: str, low: Watermark, high: Watermark, files: Sequence[FoundFile], label: Label
    ) -> WorkUnit:
        """Add a work unit that reads `files` and commits the interval from `low` to `high`."""
        unit = WorkUnit(
            id=str(len(self.work_units)),
            dataset_urn=dataset_urn,
            low=low,
            expected_high=high,
            read={"files": [described(file, label) for file in files]},
            size_bytes=sum(file.size_bytes for file in files),
            files=len(files),
        )
        self.work_units.append(unit)
        return unit

    def add_noted(self, dataset_urn: str, low: Watermark, high: Watermark) -> None:
        """Add a work unit that reads no rows; its commit stores facts about files that were read before."""
        name = str(len(self.work_units))
        self.work_units.append(WorkUnit(name, dataset_urn, low, high, size_bytes=0, rows=0, files=0, is_noted=True))

    @property
    def files(self) -> int:
        """Number of files in all work units."""
        return sum(unit.files or 0 for unit in self.work_units)


class Discovery(Protocol):
    """A strategy to find new files."""

    watermark_type: ClassVar[type[Watermark]]

    def plan(self, dataset_urn: str, files: Sequence[FoundFile], state: DatasetState | None, gate: Gate) -> FilesPlan:
        """Plan the new files of a dataset; `files` are all of its files, in order of date and path."""

    def was_read(self, ranges: CommittedRanges) -> Callable[[FoundFile], bool | None]:
        """Return a function: True if a file was read in its present version, None if in another, else False."""


def described(file: FoundFile, label: Label) -> dict[str, Any]:
    """Return the description of a file that the extractor gets."""
    start = str(TimestampWatermark(file.start))
    told = {"path": label(file.path), "size": file.size_bytes, "modified": file.modified_us, "date": start}
    return told | {"checksum": file.checksum} if file.checksum else told


def in_units(
    files: Iterable[FoundFile], position: Callable[[FoundFile], Any], limits: Limits, taken: int
) -> Iterator[list[FoundFile]]:
    """Yield the files of each work unit; files at one position are never separated.

    Args:
        files: in order of their positions.
        position: returns the position of a file.
        limits: limits of work units and runs.
        taken: number of the dataset's files that this run reads already; `limits.run_files` counts them too.
    """
    room = inf if limits.run_files is None else limits.run_files - taken
    unit: list[FoundFile] = []
    unit_bytes, was_tried = 0, False
    for _, group in groupby(files, key=position):
        together = list(group)
        size = sum(file.size_bytes for file in together)
        is_tried = any(file.changed_at <= limits.tried_at for file in together)
        most = min(limits.tried_files if is_tried else limits.files, room)
        is_full = len(unit) + len(together) > most or unit_bytes + size > limits.size_bytes
        if unit and (is_full or is_tried is not was_tried):
            yield unit
            room -= len(unit)
            unit, unit_bytes = [], 0
        unit += together
        unit_bytes += size
        was_tried = is_tried
    if unit:
        yield unit


def has_room(plan: FilesPlan, unit: Sequence[FoundFile], limits: Limits) -> bool:
    """Return True if the run may read one more work unit; always True for the first."""
    return limits.run_files is None or not plan.work_units or plan.files + len(unit) <= limits.run_files


def after_plan(plan: FilesPlan, committed: CommittedRanges) -> Watermark | None:
    """Return the dataset's watermark after all work units of a plan are committed."""
    begun = committed.anchored(plan.low) if plan.low is not None else committed
    return begun.add_all(unit.interval for unit in plan.work_units).watermark


def late_note(
    files: Iterable[FoundFile], is_behind: Callable[[FoundFile], bool], state: DatasetState, label: Label, remedy: str
) -> list[str]:
    """Return a note on files that came, at committed positions, after the last run began."""
    # Run ids have whole seconds. A file of the second in which the run began may have been read by it.
    began = run_began_at(state.run_id)
    since = (state.updated_at if began is None else min(state.updated_at, began + timedelta(seconds=1))).timestamp()
    late, known = Examples(), 0
    for file in files:
        known += 1
        if file.changed_at > since and is_behind(file):
            late.add(label(file.path))
    if not late.count:
        return []
    # A copied file keeps its mtime, but its ctime is new, so it looks changed.
    copied = " All of its files are: this is so after a folder was copied or restored, and then nothing is lost."
    note = f"{late.count} file(s) came or changed after the last run began, {remedy.format(late)}"
    return [note + copied if late.count == known > 1 else note]
