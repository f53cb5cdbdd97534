"""GroupCommitter: the datasets of one run are published together or not at all (`commit.scope: job`).

    prepare    each sequence is stored (write-ahead), the leader's last
    roll       the files of all datasets are moved into place; nothing is committed yet
    conclude   the leader's COMMIT decides; the other sequences follow
    recover    leader committed: forward; leader prepared: forward, all or none; otherwise: undo

A run that works on a group holds the lease of the leader's dataset, so the leader's epoch fences the whole group: a run
that was frozen can neither store nor commit the leader after another run looked at the group. Between the leader's
COMMIT and the last one, and after a crash there until the next run, readers see some datasets before others. After
recovery has finished, no dataset of a group is published unless all are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from gobblin_dagster.core.commit import UNFINISHED, CommitGroup, CommitSequence, SequenceState, StoredSequence
from gobblin_dagster.core.errors import (
    CorruptRecordError,
    GobblinDagsterError,
    StagedFileLostError,
    StepRefusedError,
)
from gobblin_dagster.core.places import AS_STORED
from gobblin_dagster.core.utils.parallel import in_parallel
from gobblin_dagster.engine.commit.all_or_none import with_held_back
from gobblin_dagster.engine.commit.batches import Errors, Leased, Look, no_look
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.engine.commit.committer import Committer, Recovery
from gobblin_dagster.engine.commit.path_guard import check_paths
from gobblin_dagster.state.store import StateStore

Stored: TypeAlias = tuple[StoredSequence, int]


def group_of(stored: StoredSequence) -> CommitGroup | None:
    """Return the group of a sequence; None if it has none or cannot be read."""
    try:
        return decode_sequence(stored, AS_STORED).group
    except CorruptRecordError:
        return None


@dataclass(frozen=True, slots=True)
class Bundle:
    """Unfinished sequences that are recovered together: a single one, or all that are left of a group."""

    sequences: tuple[StoredSequence, ...]
    leases: frozenset[str]
    """Datasets whose leases are needed to recover it."""


def bundles(waiting: Sequence[StoredSequence], is_selected: Callable[[str], bool]) -> list[Bundle]:
    """Return what to recover for the selected datasets: a group as a whole, if any of its datasets is selected."""
    found: dict[str, list[StoredSequence]] = {}
    leaders: dict[str, str] = {}
    for stored in waiting:
        group = group_of(stored)
        key = group.leader if group else stored.id
        leaders[key] = group.dataset_urn if group else stored.dataset_urn
        found.setdefault(key, []).append(stored)
    return [
        Bundle(tuple(sequences), frozenset({leaders[key], *(stored.dataset_urn for stored in sequences)}))
        for key, sequences in found.items()
        if any(is_selected(stored.dataset_urn) for stored in sequences)
    ]


class GroupCommitter:
    """Commits and recovers the sequences of a run as one unit.

    Args:
        committer: does the work for each sequence.
            store: the state store.
            parallelism: number of sequences that are processed at a time.

        Source: none; the original publishes dataset by dataset, or leaves "all of the job" to the publisher's folder
        rename.
    """

    def __init__(self, committer: Committer, store: StateStore, parallelism: int = 8) -> None:
        self._committer = committer
        self._store = store
        self._parallelism = parallelism

    def publish_all(self, items: Sequence[Leased], look: Look = no_look) -> Errors:
        """Publish all sequences or none.

        Args:
            items: (sequence, epoch), one per dataset of one job.
            look: as `Committer.publish_all` takes it.

        Returns:
            By dataset.urn: None if it is committed, else its own error, or GroupHeldBackError with the error of another
            dataset.
        """
        if len(items) == 1:
            return self._committer.publish_all(items, look)
        leader = items[0][0]
        group = CommitGroup(leader.id, leader.dataset_urn, len(items))
        members = [(replace(sequence, group=group), epoch) for sequence, epoch in items]
        errors = self._prepare(members[1:])
        if not _faults(errors):
            errors |= self._prepare(members[:1])
        if not _faults(errors) and (refused := look([sequence for sequence, _ in members])):
            # The leader first: as long as it is prepared, another run may still finish the group.
            errors = _held_back(members, dict(refused))
            return self._committer.take_back(members, errors)
        if not _faults(errors):
            errors = self._roll(members)
            if not _faults(errors):
                return self._conclude(members)
        reason, is_final = _told(errors), any(map(_is_final, errors.values()))
        errors = _held_back(members, errors)
        # After any error below, the stored sequences bring the next run to the same result.
        with suppress(GobblinDagsterError):
            stored = self._stored(members)
            # All of them are prepared, although an answer may be lost: the next run goes on.
            if is_final or len(stored) < len(members):
                self._go_back(stored, reason)
        return errors

    def recover_all(self, items: Sequence[Sequence[Stored]]) -> list[Recovery]:
        """Finish or undo bundles of sequences; an error of one does not stop the others.

        Args:
            items: the sequences of each bundle with our epochs; we hold all leases of the bundle.
        """

        def one(bundle: Sequence[Stored]) -> list[Recovery]:
            try:
                return self._recover(bundle)
            except GobblinDagsterError as error:
                return [Recovery.failed(stored, error) for stored, _ in bundle]

        return [recovery for done in in_parallel(one, items, self._parallelism) for recovery in done]

    def _recover(self, items: Sequence[Stored]) -> list[Recovery]:
        group = group_of(items[0][0])
        leader = self._store.load_sequence(group.leader) if group else None
        if group is None or (leader is not None and leader.state is SequenceState.COMMITTED):
            return self._committer.recover_all(items)
        items = [(stored, epoch) for stored, epoch in map(self._reloaded, items) if stored.state in UNFINISHED]
        is_whole = leader is not None and leader.state is SequenceState.PREPARED
        members = self._members(items) if is_whole else []
        if len(members) < group.size:
            return self._go_back(items, "Not all datasets of its run were prepared, or another one was given up.")
        return self._go_on(members, items)

    # -- forward -------------------------------------------------------------------------------------------------------
    def _prepare(self, members: Sequence[Leased]) -> Errors:
        return self._committer.prepare_all(members)

    def _roll(self, members: Sequence[Leased]) -> Errors:
        return self._each(members, lambda one, _: self._committer.roll_forward(one, verify_content=False))

    def _conclude(self, members: Sequence[Leased]) -> Errors:
        decided = self._each(members[:1], self._committer.conclude)
        if _faults(decided):
            return _held_back(members, decided)
        return decided | self._committer.conclude_all(members[1:])

    def _go_on(self, members: Sequence[Leased], items: Sequence[Stored]) -> list[Recovery]:
        counts: dict[str, tuple[int, int]] = {}

        def roll(sequence: CommitSequence, _: int) -> None:
            counts[sequence.dataset_urn] = self._committer.roll_forward(sequence, verify_content=True)

        errors = self._each(members, roll)
        faults = {s.dataset_urn: (s, error) for s, _ in members if (error := errors[s.dataset_urn]) is not None}
        is_final = any(_is_final(error) for _, error in faults.values())
        for sequence, error in faults.values():
            # At the limit the sequence is quarantined, and the group with it.
            if not _is_final(error):
                is_final |= self._committer.count_failure(sequence, error).outcome is SequenceState.QUARANTINED
        if is_final:
            reason = _told(errors)
            return self._go_back([self._reloaded(item) for item in items], reason)
        errors = _held_back(members, errors) if faults else self._conclude(members)
        return [self._recovery(one, counts.get(one.dataset_urn, (0, 0)), errors[one.dataset_urn]) for one, _ in members]

    def _recovery(self, sequence: CommitSequence, counts: tuple[int, int], error: Exception | None) -> Recovery:
        if error is None:
            state = SequenceState.COMMITTED
        else:
            stored = self._store.load_sequence(sequence.id)
            state = stored.state if stored else SequenceState.PREPARED
        return Recovery(sequence.id, sequence.dataset_urn, state, *counts, str(error or ""))

    # -- undo ----------------------------------------------------------------------------------------------------------
    def _go_back(self, items: Sequence[Stored], reason: str) -> list[Recovery]:
        """Undo all, the leader first: as long as the leader is prepared, another run may still finish the group."""
        reason = f"{reason} Nothing of the run is published (commit.scope is job)."
        done = []
        leaders = [item for item in items if (group := group_of(item[0])) and group.leader == item[0].id]
        for stored, epoch in leaders:
            done.append(self._undo(stored, epoch, reason))
            if done[-1].outcome is SequenceState.PREPARED:
                return done
        others = [item for item in items if item not in leaders]
        return done + in_parallel(lambda item: self._undo(*item, reason), others, self._parallelism)

    def _undo(self, stored: StoredSequence, epoch: int, reason: str) -> Recovery:
        try:
            return self._committer.recover(stored, epoch, undo_because=reason)
        except GobblinDagsterError as error:
            found = self._store.load_sequence(stored.id) or stored
            return Recovery(stored.id, stored.dataset_urn, found.state, reason=str(error))

    # -- helpers -------------------------------------------------------------------------------------------------------
    def _each(self, members: Sequence[Leased], work: Callable[[CommitSequence, int], object]) -> Errors:
        def one(member: Leased) -> Exception | None:
            try:
                work(*member)
            except Exception as error:  # noqa: BLE001  # returned to the caller, which decides for the whole group
                return error
            return None

        outcomes = in_parallel(one, members, self._parallelism)
        return {sequence.dataset_urn: outcome for (sequence, _), outcome in zip(members, outcomes, strict=True)}

    def _members(self, items: Sequence[Stored]) -> list[Leased]:
        """Return the sequences that can go forward, the leader's first."""
        members = []
        for stored, epoch in items:
            try:
                sequence = decode_sequence(stored, self._store.places)
                check_paths(sequence)
            except (CorruptRecordError, StepRefusedError):
                continue
            if stored.state is SequenceState.PREPARED:
                members.append((sequence, epoch))
        return sorted(members, key=lambda member: not _leads(member[0]))

    def _stored(self, members: Sequence[Leased]) -> list[Stored]:
        found = [(self._store.load_sequence(sequence.id), epoch) for sequence, epoch in members]
        return [(stored, epoch) for stored, epoch in found if stored is not None]

    def _reloaded(self, item: Stored) -> Stored:
        return self._store.load_sequence(item[0].id) or item[0], item[1]


def _leads(sequence: CommitSequence) -> bool:
    return sequence.group is not None and sequence.group.leader == sequence.id


def _is_final(error: Exception | None) -> bool:
    return isinstance(error, StagedFileLostError | StepRefusedError)


def _faults(errors: Errors) -> dict[str, Exception]:
    return {urn: error for urn, error in errors.items() if error is not None}


def _told(errors: Errors) -> str:
    return "; ".join(f"dataset {urn!r}: {error}" for urn, error in _faults(errors).items())


def _held_back(members: Sequence[Leased], errors: Errors) -> Errors:
    return with_held_back([sequence.dataset_urn for sequence, _ in members], errors)
