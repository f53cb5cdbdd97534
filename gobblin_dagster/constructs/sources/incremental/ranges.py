"""Which ranges of a table are to be read, and how they are cut into work units. Pure: steps in, ranges out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gobblin_dagster.constructs.sources.incremental.cursor import Cursor
from gobblin_dagster.core.watermark.ranges import CommittedRanges

Range = tuple[int, int]
"""Half-open, in steps."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How a range becomes work units."""

    interval: int | None
    """Steps of one work unit; None: by rows."""
    points: tuple[int, ...]
    """Where work units end; sorted. Empty: by interval or rows."""
    max_partitions: int
    rows_per_unit: int

    def ranges(self, low: int, high: int, rows: int | None) -> list[Range]:
        """Return ranges that tile `[low, high)`; `rows` is how many it holds, None where nobody counted."""
        if self.points:
            inside = [point for point in self.points if low < point < high]
            # Where there are more than allowed, every n-th counts.
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
    """Yield what was not committed of `[lowest, high)`, in order.

    Args:
        committed: sorted, disjoint; one that is empty marks where an earlier plan began.
        lowest: the lowest position that a row has.
        high: where to stop, exclusive.
        start: positions before it are left alone; None: none are.
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
        # From the last committed position, not from the first new row: what lies between is committed as empty.
        yield committed[-1][1], high
