"""Find the ranges of a table to read, and cut them into work units. Pure functions on steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gobblin_dagster.constructs.sources.incremental.cursor import Cursor
from gobblin_dagster.core.watermark.ranges import CommittedRanges

Range = tuple[int, int]
"""Half-open range, in steps."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How to cut a range into work units."""

    interval: int | None
    """Steps of one work unit; None: cut by rows."""
    points: tuple[int, ...]
    """Steps at which work units end, sorted; empty: cut by interval or rows."""
    max_partitions: int
    rows_per_unit: int

    def ranges(self, low: int, high: int, rows: int | None) -> list[Range]:
        """Return ranges that cover `[low, high)`; `rows` is the number of rows in it, None if they were not counted."""
        if self.points:
            inside = [point for point in self.points if low < point < high]
            # If there are more points than allowed, take every n-th.
            skip = -(-(len(inside) + 1) // self.max_partitions)
            return list(pairwise([low, *inside[skip - 1 :: skip], high]))
        if self.interval is not None:
            width = max(self.interval, -(-(high - low) // self.max_partitions))
        else:
            parts = min(max(-(-(rows or 0) // self.rows_per_unit), 1), self.max_partitions)
            width = -(-(high - low) // parts)
        return list(pairwise([*range(low, high, width), high]))


def committed_steps(ranges: CommittedRanges, cursor: Cursor) -> list[Range]:
    """Return committed ranges as steps of the cursor."""
    return [(cursor.step(low), cursor.step(high)) for low, high in ranges.ranges.get("", ())]


def open_ranges(committed: Sequence[Range], lowest: int, high: int, start: int | None) -> Iterator[Range]:
    """Yield the parts of `[lowest, high)` that are not committed, in order.

    Args:
        committed: committed ranges, sorted and disjoint; an empty range marks where an earlier plan began.
        lowest: lowest position of a row.
        high: end (exclusive).
        start: positions before it are ignored; None: no position is.
    """
    first = lowest if start is None else max(lowest, start)
    if not committed:
        if first < high:
            yield (start if start is not None else lowest), high
        return
    if first < committed[0][0] <= high:
        yield first, committed[0][0]
    for (_, low), (end, _) in pairwise(committed):
        yield low, end
    if committed[-1][1] < high:
        # From the last committed position, not from the first new row: the part without rows is committed too.
        yield committed[-1][1], high


def start_notes(cursor: Cursor, committed: Sequence[Range], after: int, start: int | None) -> Iterator[str]:
    """Yield why nothing is read of a dataset that was never committed: all its rows lie before `start`.

    Args:
        cursor: the watermark column.
        committed: committed ranges.
        after: the step after the highest value.
        start: as for `open_ranges`.
    """
    if start is not None and not committed and after <= start:
        yield f"its last row is at {cursor.mark(after - 1)}, before `start` ({cursor.mark(start)}): nothing is read."
