"""What of a dataset's dated files is to be read: the ranges that were not committed, cut into work units.

Pure: files found and a stored state in, work units and notes out. What is committed is never read again, what is not
committed is never left out in silence.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any

from gobblin_dagster.constructs.sources.listing import Examples, FoundFile
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.watermark import TimestampWatermark, WatermarkInterval
from gobblin_dagster.core.work_unit import WorkUnit

_start = attrgetter("start")


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one work unit may hold; files of one date stay together all the same."""

    files: int
    size_bytes: int


@dataclass(slots=True)
class DatedPlan:
    """What is to be read of one dataset."""

    work_units: list[WorkUnit] = field(default_factory=list)
    """In order of their dates; inside a range each begins where the one before ends."""
    notes: list[str] = field(default_factory=list)


def plan_dated_files(
    dataset_urn: str,
    files: Sequence[FoundFile],
    state: DatasetState | None,
    limits: Limits,
    end_of: Callable[[datetime], datetime],
    label: Callable[[str], str],
) -> DatedPlan:
    """Plan what is new of a dataset.

    Args:
        dataset_urn: whose files they are.
        files: all files of the dataset, in order of their dates.
        state: what was committed of it; its watermarks are timestamps. None where nothing ever was.
        limits: size of work units.
        end_of: returns the end of the date that begins at an instant.
        label: returns the path that people and work units know a file by.
    """
    plan = DatedPlan()
    committed: Any = state.committed.ranges.get("", ()) if state is not None else ()
    for low, high in _open_ranges(files, committed, end_of):
        inside = files[bisect_left(files, low, key=_start) : bisect_left(files, high, key=_start)]
        if not inside:
            interval = WatermarkInterval(TimestampWatermark(low), TimestampWatermark(high))
            plan.notes.append(f"{interval} was never committed and holds no file any more; it stays open.")
        for unit_low, unit_high, unit_files in _cut(inside, low, high, limits):
            plan.work_units.append(
                WorkUnit(
                    id=str(len(plan.work_units)),
                    dataset_urn=dataset_urn,
                    low=TimestampWatermark(unit_low),
                    expected_high=TimestampWatermark(unit_high),
                    read={"files": [_described(file, label) for file in unit_files]},
                    size_bytes=sum(file.size_bytes for file in unit_files),
                    files=len(unit_files),
                )
            )
    if state is not None and committed:
        plan.notes += _late(files, committed, state.updated_at, label)
    return plan


def _open_ranges(
    files: Sequence[FoundFile], committed: Sequence[tuple[datetime, datetime]], end_of: Callable[[datetime], datetime]
) -> Iterator[tuple[datetime, datetime]]:
    """Yield the ranges that are not committed, in order: before the first, between, and after the last."""
    if not committed:
        if files:
            yield files[0].start, end_of(files[-1].start)
        return
    if files and files[0].start < committed[0][0]:
        yield files[0].start, committed[0][0]
    for (_, low), (high, _) in pairwise(committed):
        yield low, high
    low = committed[-1][1]
    if files and files[-1].start >= low:
        # From the last committed position, not from the first new file: days without files leave no gaps behind.
        yield low, end_of(files[-1].start)


def _cut(
    files: Sequence[FoundFile], low: datetime, high: datetime, limits: Limits
) -> Iterator[tuple[datetime, datetime, list[FoundFile]]]:
    """Yield (low, high, files) of work units that tile `[low, high)`; a date is never split over two."""
    unit: list[FoundFile] = []
    unit_bytes = 0
    for start, group in groupby(files, key=_start):
        day = list(group)
        day_bytes = sum(file.size_bytes for file in day)
        if unit and (len(unit) + len(day) > limits.files or unit_bytes + day_bytes > limits.size_bytes):
            yield low, start, unit
            low, unit, unit_bytes = start, [], 0
        unit += day
        unit_bytes += day_bytes
    if unit:
        yield low, high, unit


def _described(file: FoundFile, label: Callable[[str], str]) -> dict[str, Any]:
    return {"path": label(file.path), "size": file.size_bytes, "date": str(TimestampWatermark(file.start))}


def _late(
    files: Sequence[FoundFile],
    committed: Sequence[tuple[datetime, datetime]],
    updated_at: datetime,
    label: Callable[[str], str],
) -> Iterator[str]:
    """Yield notes on files that came later than their dates were committed."""
    before, changed = Examples(), Examples()
    since = updated_at.timestamp()
    for file in files:
        if file.start < committed[0][0]:
            before.add(label(file.path))
        elif file.changed_at > since and any(low <= file.start < high for low, high in committed):
            changed.add(label(file.path))
    if before.count:
        yield (
            f"{before.count} file(s) dated before all that is committed are read now, in work units of their own: "
            f"{before}. To leave old files out, set `start`."
        )
    if changed.count:
        yield (
            f"{changed.count} file(s) came or changed after the last commit, though their dates are committed; they are "
            f"not read: {changed}. To bring their rows in, add them under a date that is not committed yet."
        )
