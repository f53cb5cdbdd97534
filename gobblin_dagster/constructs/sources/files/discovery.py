"""Arrivals: what the three ways to know what is new (by date, by time of change, by name) have in common.

Pure: files found and a stored state in, work units and notes out. What was read is never read again unasked, what was not
read is never left out in silence.
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
"""Returns the path that people and work units know a file by."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one work unit may hold, and one run; files of one position stay together all the same."""

    files: int
    size_bytes: int
    run_files: int | None = None
    """Most files of one dataset in one run; None for no limit."""
    tried_files: int = 1
    """How much one work unit may hold of files that runs have tried, and failed."""
    tried_at: float = -inf
    """Seconds since the epoch; what had come by then and is not read was tried."""

    def after(self, failed: Sequence[datetime]) -> Limits:
        """Return the limits for a dataset of which some runs failed, by the instants at which they began, newest first.

        A bad file holds up those of its work unit. An eighth with each failure: one that passes by itself leaves no swarm of
        small work units behind.
        """
        few = max(1, self.files >> 3 * len(failed))
        return replace(self, tried_files=few, tried_at=failed[0].timestamp())


@dataclass(frozen=True, slots=True)
class Gate:
    """Which of the files that lie there may be read now."""

    start: datetime | None = None
    """Files dated before it are left alone; None for none."""
    ripe_at: datetime | None = None
    """Files whose date began later, or that came later, wait for a later run; None for none."""
    by_date: bool = True
    """Whether files ripen by the dates in their paths, else by their coming."""

    def is_wanted(self, file: FoundFile) -> bool:
        """Tell whether a file is to be read at all."""
        return self.start is None or file.start >= self.start

    def is_ripe(self, file: FoundFile) -> bool:
        """Tell whether a file may be read already."""
        if self.ripe_at is None:
            return True
        return file.start <= self.ripe_at if self.by_date else file.changed_at <= self.ripe_at.timestamp()


OPEN = Gate()


@dataclass(slots=True)
class FilesPlan:
    """What is to be read of one dataset."""

    work_units: list[WorkUnit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left: int = 0
    """New files that the limits of a run leave for later."""
    waiting: int = 0
    """New files that are too young."""
    problem: str = ""
    """Why the dataset cannot be read."""
    low: Watermark | None = None
    expected_high: Watermark | None = None

    def add(
        self, dataset_urn: str, low: Watermark, high: Watermark, files: Sequence[FoundFile], label: Label
    ) -> WorkUnit:
        """Add a work unit that reads some files."""
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
        """Add a work unit that reads nothing: its commit remembers what was found out of files that were read."""
        name = str(len(self.work_units))
        self.work_units.append(WorkUnit(name, dataset_urn, low, high, size_bytes=0, rows=0, files=0, is_noted=True))

    @property
    def files(self) -> int:
        """Files of all work units."""
        return sum(unit.files or 0 for unit in self.work_units)


class Arrivals(Protocol):
    """A way to know what is new."""

    watermark_type: ClassVar[type[Watermark]]

    def plan(self, dataset_urn: str, files: Sequence[FoundFile], state: DatasetState | None, gate: Gate) -> FilesPlan:
        """Plan what is new of a dataset, given all of its files in order of date and path."""

    def was_read(self, ranges: CommittedRanges) -> Callable[[FoundFile], bool | None]:
        """Return a test of whether a file was read as it lies there; None where other content of it was read."""


def described(file: FoundFile, label: Label) -> dict[str, Any]:
    """Return what the extractor is told of a file."""
    start = str(TimestampWatermark(file.start))
    told = {"path": label(file.path), "size": file.size_bytes, "modified": file.modified_us, "date": start}
    return told | {"checksum": file.checksum} if file.checksum else told


def in_units(
    files: Iterable[FoundFile], position: Callable[[FoundFile], Any], limits: Limits, taken: int
) -> Iterator[list[FoundFile]]:
    """Yield the files of one work unit after the other; those of one position are never split over two.

    Args:
        files: in order of their positions.
        position: returns where a file stands.
        limits: size of work units and runs.
        taken: files that the run reads already of the dataset; the last work unit fills up the room that they leave.
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
    """Tell whether a run may read one more work unit; the first one it always may."""
    return limits.run_files is None or not plan.work_units or plan.files + len(unit) <= limits.run_files


def after_plan(plan: FilesPlan, committed: CommittedRanges) -> Watermark | None:
    """Return where a dataset stands once all of a plan is committed."""
    begun = committed.anchored(plan.low) if plan.low is not None else committed
    return begun.add_all(unit.interval for unit in plan.work_units).watermark


def late_note(
    files: Iterable[FoundFile], is_behind: Callable[[FoundFile], bool], state: DatasetState, label: Label, remedy: str
) -> list[str]:
    """Return a note on files that came after the last run had begun, behind positions that are committed."""
    # To the second, as run ids are: what came in the second in which the run began may well have been read by it.
    began = run_began_at(state.run_id)
    since = (state.updated_at if began is None else min(state.updated_at, began + timedelta(seconds=1))).timestamp()
    late, known = Examples(), 0
    for file in files:
        known += 1
        if file.changed_at > since and is_behind(file):
            late.add(label(file.path))
    if not late.count:
        return []
    # A copy keeps the time of change that `ls` shows, and nothing else.
    copied = " All of its files are: a folder that was copied or restored looks so, and nothing is lost then."
    note = f"{late.count} file(s) came or changed after the last run began, {remedy.format(late)}"
    return [note + copied if late.count == known > 1 else note]
