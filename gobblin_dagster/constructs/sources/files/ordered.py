"""Plan files in the order of their dates or names: read the ranges of positions that are not committed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Protocol

from gobblin_dagster.constructs.sources.files.discovery import (
    OPEN,
    FilesPlan,
    Gate,
    Label,
    Limits,
    has_room,
    in_units,
    late_note,
)
from gobblin_dagster.constructs.sources.files.listing import Examples, FoundFile
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.watermark import Watermark


class Line(Protocol):
    """An order of files by position."""

    late: ClassVar[str]
    """Note on files that came at committed positions; `{}` is replaced by their paths."""

    def position(self, file: FoundFile) -> Any:
        """Return the position of a file."""

    def beginning(self, first: FoundFile) -> Any:
        """Return the first position of a dataset, given its first file."""

    def end_of(self, position: Any) -> Any:
        """Return the next position after `position`."""

    def mark(self, position: Any) -> Watermark:
        """Return a position as a watermark."""


def plan_line(
    dataset_urn: str,
    files: Sequence[FoundFile],
    state: DatasetState | None,
    limits: Limits,
    line: Line,
    label: Label,
    gate: Gate = OPEN,
) -> FilesPlan:
    """Plan the new files of a dataset.

    Work units come in order; inside a range, each begins at the end of the one before.

    Args:
        dataset_urn: the dataset of the files.
        files: all files of the dataset, in order of their positions.
        state: what is committed of the dataset; its component `""` has the committed positions. None if nothing is.
        limits: limits of work units and runs.
        line: the order of the files.
        label: returns the path of a file for messages and work units.
        gate: which files may be read now.
    """
    plan = FilesPlan()
    committed: Any = state.committed.ranges.get("", ()) if state is not None else ()
    files, plan.waiting = _through(gate, files, lambda file: is_in(line.position(file), committed))
    for low, high in _open_ranges(files, committed, line):
        inside = files[bisect_left(files, low, key=line.position) : bisect_left(files, high, key=line.position)]
        if not inside:
            plan.notes.append(
                f"[{line.mark(low)}, {line.mark(high)}) was never committed, and its files are gone; it stays open."
            )
        units = list(in_units(inside, line.position, limits, plan.files))
        ends = [*(line.position(unit[0]) for unit in units[1:]), high][: len(units)]
        begin = low
        for unit, end in zip(units, ends, strict=True):
            # Nothing behind a unit that is left out: ranges are committed in order, so that the watermark can follow.
            if plan.left or not has_room(plan, unit, limits):
                plan.left += len(unit)
                continue
            plan.add(dataset_urn, line.mark(begin), line.mark(end), unit, label)
            begin = end
    if state is not None and committed:
        plan.notes += _before_note(files, committed, line, label)
        plan.notes += late_note(files, lambda file: is_in(line.position(file), committed), state, label, line.late)
    return plan


def _through(
    gate: Gate, files: Sequence[FoundFile], is_committed: Callable[[FoundFile], bool]
) -> tuple[Sequence[FoundFile], int]:
    """Return the files that are committed or before the first one that is too young; and how many wait."""
    wanted = [file for file in files if gate.is_wanted(file)] if gate.start is not None else files
    first = next((n for n, file in enumerate(wanted) if not gate.is_ripe(file) and not is_committed(file)), None)
    if first is None:
        return wanted, 0
    behind = [file for file in wanted[first:] if is_committed(file)]
    return [*wanted[:first], *behind], len(wanted) - first - len(behind)


def is_in(position: Any, ranges: Sequence[tuple[Any, Any]]) -> bool:
    """Return True if a position is inside one of the ranges."""
    return any(low <= position < high for low, high in ranges)


def _open_ranges(
    files: Sequence[FoundFile], committed: Sequence[tuple[Any, Any]], line: Line
) -> Iterator[tuple[Any, Any]]:
    """Yield the ranges that are not committed, in order: before the first committed one, between, after the last."""
    if not committed:
        if files:
            yield line.beginning(files[0]), line.end_of(line.position(files[-1]))
        return
    if files and line.position(files[0]) < committed[0][0]:
        yield line.position(files[0]), committed[0][0]
    for (_, low), (high, _) in pairwise(committed):
        yield low, high
    low = committed[-1][1]
    if files and line.position(files[-1]) >= low:
        # From the last committed position, not from the first new file: days without files must leave no gaps.
        yield low, line.end_of(line.position(files[-1]))


def _before_note(
    files: Sequence[FoundFile], committed: Sequence[tuple[Any, Any]], line: Line, label: Label
) -> Iterator[str]:
    before = Examples()
    for file in files:
        if line.position(file) >= committed[0][0]:
            break
        before.add(label(file.path))
    if before.count:
        yield (
            f"{before.count} file(s) dated before all that is committed are read now, in work units of their own: "
            f"{before}. To ignore old files, set `start`."
        )
