"""The transactions of the plain-file state store: functions from one head of a dataset to the next.

They check and compute, and change no file. None means that nothing has to be written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime

from gobblin_dagster.core.commit import WAITING, CommitEffect, SequenceState, StoredSequence, require_state
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import (
    CorruptRecordError,
    StaleEpochError,
    UnfinishedSequenceError,
    WatermarkMovedError,
)
from gobblin_dagster.core.lease import LEFT, Lease, LeaseOwner
from gobblin_dagster.core.startpoint import Startpoint, StartpointEvent
from gobblin_dagster.state.files.records import DatasetHead, NotedEvent, SequenceEntry


# -- leases ------------------------------------------------------------------------------------------------------------
def acquire(
    head: DatasetHead, owner: LeaseOwner, now: datetime, until: datetime, is_dead: Callable[[LeaseOwner], bool]
) -> DatasetHead | None:
    """Take or renew a lease that is free, has expired, or belongs to `owner` or a dead process; else return None."""
    held = head.lease
    if held is not None and held.owner == owner:
        return replace(head, lease=replace(held, until=until))
    if held is not None and not held.is_over(now) and not is_dead(held.owner):
        return None
    epoch = head.epoch + 1
    return replace(head, epoch=epoch, lease=Lease(head.dataset_urn, epoch, owner, until))


def holds(head: DatasetHead, lease: Lease) -> bool:
    """Return whether the lease is still held: not taken over, not released, and not left."""
    held = head.lease
    return held is not None and not held.is_left and (held.epoch, held.owner) == (lease.epoch, lease.owner)


def renew(head: DatasetHead, lease: Lease, until: datetime) -> DatasetHead | None:
    """Extend a lease if it is still held."""
    return replace(head, lease=replace(lease, until=until)) if holds(head, lease) else None


def release(head: DatasetHead, lease: Lease) -> DatasetHead | None:
    """Release a lease if it is still held."""
    return replace(head, lease=None) if holds(head, lease) else None


def leave(head: DatasetHead, epoch: int) -> DatasetHead | None:
    """End a lease if it still has this epoch, and keep its owner."""
    if head.lease is None or head.lease.epoch != epoch:
        return None
    return replace(head, lease=replace(head.lease, until=LEFT))


def is_inherited(head: DatasetHead, owner: LeaseOwner) -> bool:
    """Return whether the last holder of the lease was another process and did not release it."""
    return head.lease is not None and (head.lease.is_left or head.lease.owner != owner)


# -- commit protocol ---------------------------------------------------------------------------------------------------
def prepare(head: DatasetHead, sequence: StoredSequence, epoch: int, number: int) -> DatasetHead:
    """Add a sequence as PREPARED; `number` is the version of the new head."""
    _require_epoch(head, epoch)
    _require_version(head, sequence.version_read)
    return _with_new(head, replace(sequence, state=SequenceState.PREPARED), number)


def commit(head: DatasetHead, epoch: int, effect: CommitEffect) -> DatasetHead | None:
    """Replace the state, delete the startpoint and set the sequence to COMMITTED; None if it was COMMITTED before."""
    sequence = _sequence(head)
    if sequence.state is SequenceState.COMMITTED:
        return None
    require_state(sequence, {SequenceState.PREPARED})
    _require_epoch(head, epoch)
    _require_successor(sequence, effect.after)
    _require_version(head, sequence.version_read)
    committed = replace(_with(head, replace(sequence, state=SequenceState.COMMITTED)), state=effect.after)
    return with_startpoints(committed, [one for one in head.all_startpoints if one.id not in effect.startpoints])


def startpoint_of(head: DatasetHead, partition: str) -> Startpoint | None:
    """Return the startpoint of a partition, or of the whole dataset if the name is empty."""
    return next((one for one in head.all_startpoints if one.partition == partition), None)


def save_startpoint(head: DatasetHead, startpoint: Startpoint) -> DatasetHead:
    """Add a startpoint; it replaces the one of its partition."""
    return with_startpoints(
        head, [startpoint, *(one for one in head.all_startpoints if one.partition != startpoint.partition)]
    )


def delete_startpoint(head: DatasetHead, partition: str) -> DatasetHead:
    """Remove the startpoint of a partition, or of the whole dataset if the name is empty."""
    return with_startpoints(head, [one for one in head.all_startpoints if one.partition != partition])


def with_events(head: DatasetHead, events: Iterable[StartpointEvent], number: int) -> DatasetHead:
    """Return the head with these events instead of its own; `number` is the version of the new head."""
    noted = tuple(NotedEvent(number, index, event) for index, event in enumerate(events))
    return replace(head, startpoint_events=noted)


def with_startpoints(head: DatasetHead, startpoints: Iterable[Startpoint]) -> DatasetHead:
    """Return the head with these startpoints instead of its own; at most one per partition."""
    by_partition = {one.partition: one for one in startpoints}
    whole = by_partition.pop("", None)
    return replace(head, startpoint=whole, startpoints=tuple(by_partition[name] for name in sorted(by_partition)))


def adopt(head: DatasetHead, sequence: StoredSequence, epoch: int, after: DatasetState, number: int) -> DatasetHead:
    """Add a sequence as COMMITTED with the state after it, for a dataset without state."""
    _require_epoch(head, epoch)
    _require_successor(sequence, after)
    _require_version(head, 0)
    adopted = _with_new(head, replace(sequence, state=SequenceState.COMMITTED), number)
    return replace(adopted, state=after, pruned_below=sequence.version_read)


def start_abort(head: DatasetHead, epoch: int, reason: str) -> DatasetHead | None:
    """Set PREPARED to ABORTING."""
    return _flip(head, epoch, SequenceState.PREPARED, SequenceState.ABORTING, reason)


def finish_abort(head: DatasetHead, epoch: int) -> DatasetHead | None:
    """Set ABORTING to ABORTED."""
    return _flip(head, epoch, SequenceState.ABORTING, SequenceState.ABORTED)


def quarantine(head: DatasetHead, reason: str) -> DatasetHead:
    """Set an unfinished sequence to QUARANTINED."""
    sequence = _sequence(head)
    require_state(sequence, WAITING)
    return _with(head, replace(sequence, state=SequenceState.QUARANTINED, reason=reason))


def abandon(head: DatasetHead, epoch: int, reason: str) -> DatasetHead | None:
    """Set QUARANTINED to ABORTED."""
    return _flip(head, epoch, SequenceState.QUARANTINED, SequenceState.ABORTED, reason)


def retry(head: DatasetHead, epoch: int) -> DatasetHead | None:
    """Set QUARANTINED to PREPARED, and the count of failed redos to 0."""
    flipped = _flip(head, epoch, SequenceState.QUARANTINED, SequenceState.PREPARED)
    return None if flipped is None else _with(flipped, replace(_sequence(flipped), redo_failures=0))


def count_redo_failure(head: DatasetHead, reason: str) -> DatasetHead:
    """Add one to the failed redos."""
    sequence = _sequence(head)
    return _with(head, replace(sequence, redo_failures=sequence.redo_failures + 1, reason=reason))


def mark_reported(head: DatasetHead) -> DatasetHead | None:
    """Record that the materialization was reported; None if it was recorded before."""
    sequence = _sequence(head)
    return None if sequence.reported else _with(head, replace(sequence, reported=True))


def _sequence(head: DatasetHead) -> StoredSequence:
    assert head.entry is not None, "the caller looked up the head of this sequence"  # noqa: S101  # narrows the type
    return head.entry.sequence


def _with(head: DatasetHead, sequence: StoredSequence) -> DatasetHead:
    assert head.entry is not None, "the caller looked up the head of this sequence"  # noqa: S101  # narrows the type
    return replace(head, entry=replace(head.entry, sequence=sequence))


def _with_new(head: DatasetHead, sequence: StoredSequence, number: int) -> DatasetHead:
    """Return the head with a new sequence, without its sequence and events so far, which are in files by now."""
    if head.entry is not None and head.entry.sequence.state in WAITING:
        raise UnfinishedSequenceError(dataset_urn=head.dataset_urn, sequence_id=head.entry.sequence.id)
    return replace(head, entry=SequenceEntry(number, replace(sequence, body="")), startpoint_events=())


def _flip(
    head: DatasetHead, epoch: int, before: SequenceState, after: SequenceState, reason: str | None = None
) -> DatasetHead | None:
    """Set the state of a sequence, and its reason if one is given; None if it has the state already."""
    _require_epoch(head, epoch)
    sequence = _sequence(head)
    require_state(sequence, {before, after})
    if sequence.state is after:
        return None
    return _with(head, replace(sequence, state=after, reason=sequence.reason if reason is None else reason))


def _require_epoch(head: DatasetHead, epoch: int) -> None:
    if epoch != head.epoch or head.epoch == 0:
        raise StaleEpochError(dataset_urn=head.dataset_urn, ours=epoch, current=head.epoch)


def _require_version(head: DatasetHead, expected: int) -> None:
    if head.version != expected:
        raise WatermarkMovedError(dataset_urn=head.dataset_urn, expected=expected, found=head.version)


def _require_successor(sequence: StoredSequence, after: DatasetState) -> None:
    expected = (sequence.job, sequence.dataset_urn, sequence.version_read + 1)
    got = (after.job, after.dataset_urn, after.version)
    if got != expected:
        raise CorruptRecordError(
            what=f"Commit sequence {sequence.id}", problem=f"expected the state of {expected}, got that of {got}"
        )
