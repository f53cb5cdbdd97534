"""Startpoints that were set: each waits whole, or is consumed by exactly one commit, which begins where it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gobblin_dagster.core.commit import CommitSequence
from gobblin_dagster.core.startpoint import Oldest, Specific, Startpoint, StartpointPosition
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.state import StateStore


@dataclass
class Wish:
    """One startpoint and what became of it."""

    startpoint: Startpoint
    rows: int
    """That there were when it was set."""
    pinned: int | None = None
    """Where `upcoming` was found to be, once a run that may have died since had stored it."""
    commits: list[str] = field(default_factory=list)
    """That say that they consumed it."""


@dataclass
class Wishes:
    """All that were set, by id."""

    by_id: dict[str, Wish] = field(default_factory=dict)

    def save(
        self, store: StateStore, job: str, urn: str, position: StartpointPosition, rows: int, now: datetime
    ) -> None:
        """Set a startpoint, unless one waits already."""
        if not store.load_startpoints(job, [urn]):
            startpoint = Startpoint(job, urn, position, now, now + timedelta(days=10_000), "anna@host", "snow")
            self.by_id[startpoint.id] = Wish(startpoint, rows)
            store.save_startpoint(startpoint)

    def begin_of(self, commit: CommitSequence, rows: int) -> int | None:
        """Return where a commit had to begin by the startpoint that it consumed; None where it consumed none."""
        if not commit.startpoints:
            return None
        wish = self.by_id[commit.startpoints[0]]
        wish.commits.append(commit.id)
        match wish.startpoint.position:
            case Specific(watermark):
                return int(watermark)
            case Oldest():
                return 0
        applied = commit.report.startpoint
        assert applied is not None, "a commit does not name the startpoint that it consumed"
        self._note_pin(wish, _end(applied.pinned), rows)
        return wish.pinned

    def check(self, waiting: Mapping[str, Startpoint], rows: Mapping[str, int]) -> None:
        """Require that the store holds just those that no commit consumed."""
        for urn, startpoint in waiting.items():
            if startpoint.pinned is not None:
                self._note_pin(self.by_id[startpoint.id], _end(startpoint.pinned), rows[urn])
        unspent = {name for name, wish in self.by_id.items() if not wish.commits}
        assert {startpoint.id for startpoint in waiting.values()} == unspent, "a startpoint is lost, or still waits"
        assert all(len(wish.commits) <= 1 for wish in self.by_id.values()), "a startpoint was honoured twice"

    def _note_pin(self, wish: Wish, position: int, rows: int) -> None:
        assert wish.rows <= position <= rows, "upcoming is what comes after it was set"
        assert wish.pinned in (None, position), "upcoming was found elsewhere the second time"
        wish.pinned = position


def _end(ranges: CommittedRanges | None) -> int:
    return max((int(str(high)) for _, high in ranges.ranges.get("", ())), default=0) if ranges else 0
