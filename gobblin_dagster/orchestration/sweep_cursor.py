"""SweepCursor: how far the sweep of one job has compared commits with what its Dagster instance shows.

Each Dagster instance keeps cursors of its own, so each hears of all commits, also of those that others made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self

_START = datetime(1970, 1, 1, 1, tzinfo=UTC)
OVERLAP = timedelta(hours=1)
"""For so long after the time in a dataset's state a commit is looked for. This time is taken before its files are
published, so the commit may be seen later."""


@dataclass(frozen=True, slots=True)
class SweepCursor:
    """Commits are compared in the order of their times; a new cursor begins with the oldest one."""

    until: datetime = _START
    """Commits up to here were compared; those of the last `OVERLAP` are looked for again."""
    known: Mapping[str, int] = field(default_factory=dict)
    """Versions of datasets that were compared and are newer than `since`, by dataset.urn."""

    @property
    def since(self) -> datetime:
        """Time after which commits are looked for."""
        return self.until - OVERLAP

    def to_document(self) -> dict[str, Any]:
        """Return the cursor as JSON has it."""
        return {"until": self.until.isoformat(), "known": dict(self.known)}

    @classmethod
    def from_document(cls, document: Any) -> Self:
        """Return what `to_document` made; a new cursor for anything else, such as that of an older version."""
        match document:
            case {"until": str(until), "known": dict(known)}:
                try:
                    return cls(max(_START, datetime.fromisoformat(until).astimezone(UTC)), {**known})
                except ValueError:
                    return cls()
            case _:
                return cls()


def load_cursors(text: str | None) -> dict[str, SweepCursor]:
    """Return the cursor of each job from the cursor of a sensor; empty if it is none, so that all is compared."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return {str(job): SweepCursor.from_document(one) for job, one in found.items()} if isinstance(found, dict) else {}


def dump_cursors(cursors: Mapping[str, SweepCursor]) -> str:
    """Return the cursor of a sensor."""
    return json.dumps({job: cursor.to_document() for job, cursor in cursors.items()})
