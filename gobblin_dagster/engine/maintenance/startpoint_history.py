"""List what happened to startpoints: the events that the store holds, and the commits that applied startpoints.

A commit leaves no event: its sequence holds the ids of the startpoints that it deleted. So commits are told as long as
the store holds their sequences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from gobblin_dagster.core.commit import SequenceState
from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.core.startpoint import ALL_JOBS, Startpoint, StartpointChange, StartpointEvent
from gobblin_dagster.core.watermark import Watermark
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.state.store import StateStore


@dataclass(frozen=True, slots=True)
class StartpointHistoryEntry:
    """One thing that happened to a startpoint: it was set, replaced, fanned out, applied, removed, or it expired."""

    startpoint: Startpoint
    """For a commit, as the newest event tells it; `startpoint.job` is the job that applied it."""
    change: StartpointChange | Literal["applied"]
    at: datetime
    """For a commit, when its run had read everything, but not before its fan-out, which another clock may have told."""
    who: str
    """The person, or the id of the run."""
    commit_id: str = ""
    """Id of the commit that applied it; empty for other changes."""
    watermark: Watermark | None = None
    """The dataset's watermark after the commit; None for other changes, and if the commit moved none."""


def startpoint_history(store: StateStore, jobs: Sequence[str]) -> list[StartpointHistoryEntry]:
    """Return what happened to the startpoints of jobs, and to those for all jobs, oldest first.

    A commit applies all startpoints that its plan took, those too that lost to a newer one. A commit that cannot be
    read is left out; the history of its dataset shows its error.

    Args:
        store: the state store.
        jobs: names of the jobs.
    """
    wide = store.load_startpoint_events(ALL_JOBS)
    entries = [*_told(wide)]
    for job in jobs:
        own = store.load_startpoint_events(job)
        entries += [*_told(own), *_applied(store, job, [*wide, *own])]
    return sorted(entries, key=lambda entry: entry.at)


def _told(events: Iterable[StartpointEvent]) -> Iterator[StartpointHistoryEntry]:
    return (StartpointHistoryEntry(one.startpoint, one.change, one.at, one.who) for one in events)


def _applied(store: StateStore, job: str, events: Iterable[StartpointEvent]) -> Iterator[StartpointHistoryEntry]:
    """Yield the startpoints of events that commits of a job applied."""
    known: dict[str, dict[str, StartpointEvent]] = {}
    """By dataset and id; the newest event of the job tells most: what a run pinned."""
    for event in events:
        known.setdefault(event.startpoint.dataset_urn, {})[event.startpoint.id] = event
    found = store.load_sequences(job, [SequenceState.COMMITTED], list(known)) if known else []
    for stored in reversed(found):
        told = known[stored.dataset_urn]
        # Most commits applied none: a look into the text costs less than to decode it.
        if not any(one in stored.body for one in told):
            continue
        try:
            sequence = decode_sequence(stored, store.places, skip_unknown_steps=True)
        except CorruptRecordError:
            continue
        for event in (told[one] for one in sequence.startpoints if one in told):
            is_own = event.startpoint.job == job
            yield StartpointHistoryEntry(
                replace(event.startpoint, job=job),
                "applied",
                max(stored.created_at, event.at) if is_own else stored.created_at,
                stored.run_id,
                stored.id,
                sequence.after.watermark,
            )
