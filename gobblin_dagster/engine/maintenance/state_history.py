"""List the changes of a dataset's watermark, by commits and by people, from the commit sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from gobblin_dagster.core.commit import (
    NO_REPORT,
    CommitReport,
    SequenceState,
    StoredSequence,
)
from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.core.watermark import Watermark
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.state.store import StateStore

Cause: TypeAlias = Literal["run", "startpoint", "person"]


# -- history -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One change of a dataset's watermark, or a failed attempt to change it."""

    sequence_id: str
    at: datetime
    state: SequenceState
    version: int
    """Version of the dataset's state after the commit."""
    watermark_before: Watermark | None
    watermark_after: Watermark | None
    """Equal to `watermark_before` if it was not committed."""
    committed_after: str
    """All committed ranges, as text for people; empty if it was not committed."""
    by: Cause
    who: str
    """The run's id, or the person who changed the watermark or set the startpoint."""
    why: str
    """The person's reason; for a run, its notes and failed ranges, or the reason why the sequence was not committed."""
    rows: int
    files: int


def history(store: StateStore, job: str, dataset_urn: str) -> list[HistoryEntry]:
    """Return every change of a dataset's watermark, oldest first; an unreadable sequence shows only its error."""
    entries: list[HistoryEntry] = []
    mark: Watermark | None = None
    found = store.load_sequences(job, list(SequenceState), [dataset_urn])
    # By version first, because clocks of drivers may differ. Of one version, only the last attempt was committed.
    found.sort(key=lambda one: (one.version_read, one.state is SequenceState.COMMITTED, one.created_at))
    for stored in found:
        try:
            sequence = decode_sequence(stored, store.places, skip_unknown_steps=True)
        except CorruptRecordError as error:
            sequence, problem = None, error.problem
        else:
            problem = stored.reason
        if sequence is not None and not entries and stored.version_read:
            mark = sequence.report.low  # older sequences were pruned
        is_true = sequence is not None and stored.state is SequenceState.COMMITTED
        after = sequence.after.watermark if sequence is not None and is_true else mark
        report = sequence.report if sequence is not None else NO_REPORT
        by, who, why = _cause(report, stored, problem)
        entries.append(
            HistoryEntry(
                sequence_id=stored.id,
                at=stored.created_at,
                state=stored.state,
                version=stored.version_read + 1,
                watermark_before=mark,
                watermark_after=after,
                committed_after=str(sequence.after.committed) if sequence is not None and is_true else "",
                by=by,
                who=who,
                why=why,
                rows=report.rows_read,
                files=len(sequence.files) if sequence is not None else 0,
            )
        )
        mark = after
    return entries


def _cause(report: CommitReport, stored: StoredSequence, problem: str) -> tuple[Cause, str, str]:
    """Return the cause of a change, or of an attempt: kind, name and reason."""
    if (change := report.change) is not None:
        return "person", change.who, ": ".join(filter(None, (change.action, change.why)))
    if (startpoint := report.startpoint) is not None:
        # The first note repeats the startpoint.
        shown = f"{startpoint.partition} at {startpoint.position}" if startpoint.partition else startpoint.position
        whys = (f"startpoint {shown}", startpoint.why, _told(report, report.notes[1:], problem))
        return "startpoint", startpoint.who, ": ".join(why for why in whys if why)
    return "run", stored.run_id, _told(report, report.notes, problem)


def _told(report: CommitReport, notes: Sequence[str], problem: str) -> str:
    """Return what a run noted about a dataset; for a sequence that was not committed, only the reason."""
    if problem:
        return problem
    failed = report.failed_ranges
    whys = [*([f"without {', '.join(failed)}, which failed"] if failed else []), *notes]
    return "; ".join(why.rstrip(".") for why in whys)
