"""Ranges of the source `query`: what is open, and how it is cut, as laws."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gobblin_dagster.constructs.sources.incremental.ranges import Cut, open_ranges

steps = st.integers(0, 60)


@st.composite
def committed_ranges(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Return ranges that are sorted, disjoint and do not touch."""
    ends = sorted(draw(st.sets(steps, max_size=8)))
    return list(zip(ends[::2], ends[1::2], strict=False))


@given(committed_ranges(), steps, steps, st.none() | steps)
def test_open_ranges_and_committed_ones_tile_what_is_there(
    committed: list[tuple[int, int]], lowest: int, high: int, start: int | None
) -> None:
    opened = list(open_ranges(committed, lowest, high, start))
    assert opened == sorted(opened)
    positions = [position for low, end in opened for position in range(low, end)]
    assert len(positions) == len(set(positions))
    done = {position for low, end in committed for position in range(low, end)}
    assert done.isdisjoint(positions)
    wanted = set(range(lowest if start is None else max(lowest, start), high)) - done
    held_back = set(range(lowest, committed[0][0])) if committed and high < committed[0][0] else set()
    assert wanted - held_back <= set(positions)


@given(
    steps, st.integers(1, 60), st.none() | st.integers(1, 20), st.lists(steps), st.integers(1, 9), st.integers(0, 99)
)
def test_cut_ranges_tile_the_whole_and_are_no_more_than_allowed(
    low: int, width: int, interval: int | None, points: list[int], most: int, rows: int
) -> None:
    ranges = Cut(interval, tuple(sorted(set(points))), most, 10).ranges(low, low + width, rows)
    assert (ranges[0][0], ranges[-1][1]) == (low, low + width)
    assert all(one[1] == two[0] for one, two in pairwise(ranges))
    assert all(start < end for start, end in ranges)
    assert len(ranges) <= most


def test_nothing_before_the_beginning_is_read_while_writers_are_open() -> None:
    assert list(open_ranges([(5, 9)], 2, -1, None)) == []
    assert list(open_ranges([(5, 9)], 2, 9, None)) == [(2, 5)]
