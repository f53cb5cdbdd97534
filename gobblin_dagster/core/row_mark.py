"""RowMark: by what a row is known again, if its source can lose rows and write others at their positions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RowMark:
    """One row of one component of a watermark, as it was when it was read."""

    position: int
    """Its position, for example a message's offset."""
    digest: str
    """Hex digest of the row, with its time."""
    epoch: int = -1
    """Number of the server's term in which the row was written; -1 if unknown."""


def newest_marks(marks: Iterable[Mapping[str, RowMark]]) -> dict[str, RowMark]:
    """Return the mark with the highest position of each component.

    Example:
        >>> newest_marks([{"t-0": RowMark(9, "a")}, {"t-0": RowMark(4, "b"), "t-1": RowMark(2, "c")}])
        {'t-0': RowMark(position=9, digest='a', epoch=-1), 't-1': RowMark(position=2, digest='c', epoch=-1)}
    """
    newest: dict[str, RowMark] = {}
    for each in marks:
        for name, mark in each.items():
            if name not in newest or newest[name].position < mark.position:
                newest[name] = mark
    return newest
