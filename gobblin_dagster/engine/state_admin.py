"""Changes of a watermark by a person, and the history of a dataset: who moved it, when, from where, to where and why.

A person's change is a commit sequence without steps: it goes through the same lease, the same compare-and-swap and into the
same history as the commits of runs, so that nothing else needs to know of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from gobblin_dagster.core.commit import (
    NO_REPORT,
    WAITING,
    CommitReport,
    CommitSequence,
    ManualChange,
    SequenceState,
    StoredSequence,
)
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError, UnfinishedSequenceError, UsageError
from gobblin_dagster.core.file_set import FileSetWatermark
from gobblin_dagster.core.ids import new_commit_id
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.ranges import CommittedRanges
from gobblin_dagster.core.watermark import CompositeWatermark, LongWatermark, NameWatermark, Position, Watermark
from gobblin_dagster.engine.commit.codec import decode_sequence, encode_sequence
from gobblin_dagster.engine.commit.leases import busy_error
from gobblin_dagster.state.store import StateStore

LEASE_TTL = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one dataset's watermark that a person asked for, not yet made."""

    action: Literal["set", "reset", "retry"]
    before: DatasetState
    after: DatasetState
    who: str
    why: str

    @property
    def is_backward(self) -> bool:
        """Whether positions that were published will be read again."""
        return self.after.generation > self.before.generation

    @property
    def consequence(self) -> str:
        """What the next run will do about it, for people."""
        if self.is_backward:
            return "rows that were published before will be read and published again; published files stay as they are"
        if self.action == "retry":
            return f"{self.before.given_up} is read by the next run, and nothing else again"
        if self.after.settled == self.before.settled:
            return "nothing changes"
        return "rows in between are never read"


def plan_set(state: DatasetState, watermark: Watermark, *, who: str, why: str, now: datetime) -> Change:
    """Plan to move a dataset's watermark: everything before it counts as read, gaps too, and nothing after it.

    Raises:
        UsageError: it lies before the beginning of what was read, or names other components; or nothing counts as read.
    """
    positions: Mapping[str, Any] = watermark.components()
    if not state.committed.ranges:
        raise UsageError(
            problem=f"Nothing of dataset {state.dataset_urn!r} counts as read: it was reset.",
            hint="The next run reads it from the beginning; `gobblin startpoint set` lets it begin elsewhere.",
        )
    if set(positions) != set(state.committed.ranges):
        known = ", ".join(sorted(state.committed.ranges))
        raise UsageError(
            problem=f"Dataset {state.dataset_urn!r} has the components {known}; got {', '.join(sorted(positions))}.",
            hint="Name each of them.",
        )
    beginning: Mapping[str, Any] = {name: parts[0][0] for name, parts in state.committed.ranges.items()}
    if any(position < beginning[name] for name, position in positions.items()):
        first = state.committed.watermark_type.from_components(beginning)
        raise UsageError(
            problem=f"{watermark} lies before {first}, where dataset {state.dataset_urn!r} begins.",
            hint="Use `gobblin state reset` to read everything again.",
        )
    ranges = {name: ((beginning[name], position),) for name, position in positions.items()}
    committed = CommittedRanges(state.committed.watermark_type, ranges)
    return Change("set", state, _successor(state, committed, now), who, why)


def plan_reset(state: DatasetState, *, who: str, why: str, now: datetime) -> Change:
    """Plan to forget what a dataset has read: the next run begins anew. What is published stays published."""
    return Change("reset", state, _successor(state, CommittedRanges(state.committed.watermark_type, {}), now), who, why)


def plan_retry(state: DatasetState, *, who: str, why: str, now: datetime) -> Change:
    """Plan to read again, alone, the ranges that were given up after their work units failed.

    Raises:
        UsageError: there are none.
    """
    if state.given_up is None or not state.given_up.ranges:
        raise UsageError(
            problem=f"No range of dataset {state.dataset_urn!r} was given up.",
            hint="Ranges that failed and were not given up are read again by the next run.",
        )
    return Change("retry", state, _successor(state, state.committed, now), who, why)


def _successor(state: DatasetState, committed: CommittedRanges, now: datetime) -> DatasetState:
    return replace(
        with_committed(state, committed),
        version=state.version + 1,
        run_id=f"person-{new_commit_id()[:12]}",
        updated_at=now,
    )


def with_committed(state: DatasetState, committed: CommittedRanges) -> DatasetState:
    """Return the state with other ranges; a new generation begins where some that were committed no longer are.

    Where nothing counts as read any more, it does not matter of what.
    """
    is_backward = any(
        not _covers(committed.ranges.get(name, ()), low, high)
        for name, parts in state.committed.ranges.items()
        for low, high in parts
    )
    return replace(
        state,
        committed=committed,
        failed_ranges=(),
        given_up=None,
        generation=state.generation + is_backward,
        origin=state.origin if committed.ranges else {},
    )


def _covers(parts: tuple[tuple[Position, Position], ...], low: Any, high: Any) -> bool:
    return low == high or any(start <= low and high <= end for start, end in parts)


def parse_watermark(kind: type[Watermark], text: str) -> Watermark:
    """Read a watermark as people write it: `42`, `2013-01-31`, `2013-01-31T05:00:00Z`, `{"0": 5, "1": 9}`, `after b.csv`.

    A time without a zone is UTC.

    Raises:
        UsageError: the text is none of that type.
    """
    if kind is FileSetWatermark:
        raise UsageError(
            problem="A set of files is no watermark to write by hand.",
            hint="`gobblin state reset` lets the next run read every file again.",
        )
    try:
        if kind is CompositeWatermark:
            return CompositeWatermark(json.loads(text))
        if kind is LongWatermark:
            return LongWatermark(int(text))
        if kind is NameWatermark and text.startswith("after "):  # as it is shown
            return NameWatermark.after(text.removeprefix("after "))
        return kind.from_components({"": kind.position_from_json(_with_zone(kind, text))})
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        what = f"{text!r} is no watermark of type {kind.type_name!r}"
        if example := _EXAMPLES.get(kind.type_name):
            raise UsageError(problem=f"{what}.", hint=f"Write it as {example}.") from None
        raise UsageError(problem=f"{what}: {error}.") from None


_EXAMPLES = {
    "long": "42",
    "date": "2013-01-31",
    "timestamp": "2013-01-31T05:00:00Z (without a zone: UTC)",
    "hour": "2013-01-31T05:00Z (a whole hour; without a zone: UTC)",
    "composite": '{"0": 5, "1": 9}, a position for each part',
    "table_snapshot": "3@8723, a snapshot's number and id",
}
"""How people write a watermark, by its type."""


def _with_zone(kind: type[Watermark], text: str) -> str:
    if kind.type_name not in ("timestamp", "hour"):
        return text
    instant = datetime.fromisoformat(text)
    return text if instant.tzinfo else f"{instant.isoformat()}Z"


def require_free(store: StateStore, job: str, dataset_urn: str, now: datetime) -> None:
    """Refuse where a run works on the dataset.

    Raises:
        DatasetBusyError: a run holds its lease.
        UnfinishedSequenceError: one of its commit sequences is unfinished or quarantined.
    """
    lease = store.load_leases(job).get(dataset_urn)
    if lease is not None and not lease.is_over(now) and not lease.owner.is_provably_dead():
        raise busy_error(lease)
    blocking = store.load_sequences(job, WAITING, [dataset_urn])
    if blocking:
        raise UnfinishedSequenceError(dataset_urn=dataset_urn, sequence_id=blocking[0].id)


def apply_change(store: StateStore, change: Change) -> str:
    """Make a change true, in one transaction, and return the id of its commit sequence.

    Nothing in the job's output is touched, and no job file is needed.

    Args:
        store: the state store.
        change: made from the dataset's newest state.

    Raises:
        DatasetBusyError, UnfinishedSequenceError: as `require_free`.
        WatermarkMovedError: the dataset moved since the change was planned.
        CorruptRecordError: its newest commit sequence is damaged.
    """
    before, after = change.before, change.after
    urn = before.dataset_urn
    newest = store.load_sequences(before.job, {SequenceState.COMMITTED}, [urn], limit=1)[0]
    output_root = decode_sequence(newest, skip_unknown_steps=True).output_root
    grant = store.acquire_leases(before.job, [urn], LeaseOwner.current(after.run_id), LEASE_TTL)
    if urn in grant.busy:
        raise busy_error(grant.busy[urn])
    lease = grant.granted[urn]
    sequence = CommitSequence.to(after, commit_id=new_commit_id(), output_root=output_root)
    report = CommitReport(
        low=before.watermark,
        notes=(f"{change.action} by {change.who}: {change.why}",),
        change=ManualChange(change.action, change.who, change.why),
    )
    try:
        # Nothing was published that Dagster would have to hear of.
        stored = replace(encode_sequence(replace(sequence, report=report)), reported=True)
        store.record(stored, lease.epoch, sequence.effect)
    finally:
        store.release_leases(before.job, [lease])
    return sequence.id


Cause: TypeAlias = Literal["run", "startpoint", "person"]


# -- history -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One change of a dataset's watermark, or an attempt that came to nothing."""

    sequence_id: str
    at: datetime
    state: SequenceState
    version: int
    """Of the dataset's state, once committed."""
    watermark_before: Watermark | None
    watermark_after: Watermark | None
    """Equal to `watermark_before` where it was not committed."""
    committed_after: str
    """All ranges, as people read them; empty where it was not committed."""
    by: Cause
    who: str
    """The run's id, or the person who changed the watermark or set the startpoint."""
    why: str
    """What the person gave as a reason; of a run, what it noted and what failed, or why the sequence was not committed."""
    rows: int
    files: int


def history(store: StateStore, job: str, dataset_urn: str) -> list[HistoryEntry]:
    """Return every change of a dataset's watermark, oldest first; a sequence that cannot be read says so and nothing more."""
    entries: list[HistoryEntry] = []
    mark: Watermark | None = None
    found = store.load_sequences(job, list(SequenceState), [dataset_urn])
    # Versions first: clocks of several drivers may disagree. Of one version, only the last attempt was committed.
    found.sort(key=lambda one: (one.version_read, one.state is SequenceState.COMMITTED, one.created_at))
    for stored in found:
        try:
            sequence = decode_sequence(stored, skip_unknown_steps=True)
        except CorruptRecordError as error:
            sequence, problem = None, error.problem
        else:
            problem = stored.reason
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
    """Return who moved a watermark, or tried to: kind, name and reason."""
    if (change := report.change) is not None:
        return "person", change.who, ": ".join(filter(None, (change.action, change.why)))
    if (startpoint := report.startpoint) is not None:
        # The first note says of the startpoint what is said here.
        whys = (f"startpoint {startpoint.position}", startpoint.why, _told(report, report.notes[1:], problem))
        return "startpoint", startpoint.who, ": ".join(why for why in whys if why)
    return "run", stored.run_id, _told(report, report.notes, problem)


def _told(report: CommitReport, notes: Sequence[str], problem: str) -> str:
    """Return what a run told of a dataset: why it jumped, what it left out; of one that was not committed, only why."""
    if problem:
        return problem
    failed = report.failed_ranges
    whys = [*([f"without {', '.join(failed)}, which failed"] if failed else []), *notes]
    return "; ".join(why.rstrip(".") for why in whys)
