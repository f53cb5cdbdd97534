"""What a broken invariant of the protocol does to a user."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Harm(StrEnum):
    """The harm that a broken invariant does to a user."""

    LOST = "lost"
    """Records that will never be published (I1)."""
    DUPLICATED = "duplicated"
    """Records published twice (I2)."""
    AHEAD = "ahead"
    """A watermark or manifest that promises missing or incomplete data (I3, I12)."""
    TORN = "torn"
    """A reader saw part of a commit (I4, I9)."""
    REGRESSED = "regressed"
    """A version, snapshot or watermark went down (I5)."""
    ORPHAN = "orphan"
    """A visible file that no snapshot and no unfinished sequence lists (I10)."""
    STUCK = "stuck"
    """Unfinished sequences or staged files after a recovery (I8, I13)."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken invariant."""

    harm: Harm
    detail: str
