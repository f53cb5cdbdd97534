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
    time_ms: int = -1
    """When it was written, as the server tells it, in milliseconds since 1970; -1 if unknown."""


def newest_marks(marks: Iterable[Mapping[str, RowMark]]) -> dict[str, RowMark]:
    """Return the mark with the highest position of each component.

    Example:
        >>> marks = newest_marks([{"t-0": RowMark(9, "a")}, {"t-0": RowMark(4, "b"), "t-1": RowMark(2, "c")}])
        >>> {name: mark.digest for name, mark in marks.items()}
        {'t-0': 'a', 't-1': 'c'}
    """
    newest: dict[str, RowMark] = {}
    for each in marks:
        for name, mark in each.items():
            if name not in newest or newest[name].position < mark.position:
                newest[name] = mark
    return newest
