"""Delete old commit sequences: those that neither the history of a project, nor a rollback, nor recovery needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from gobblin_dagster.core.commit import ENDED, WAITING, SequenceState, StoredSequence
from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.engine.commit.codec import decode_sequence, has_stored_paths
from gobblin_dagster.engine.commit.group import group_of
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.store import StateStore


@dataclass(frozen=True, slots=True)
class PrunedCommits:
    """Old commit sequences of one dataset."""

    dataset_urn: str
    commits: int
    """Number of sequences that were deleted, or would be."""


def prune(job: JobSpec, store: StateStore, keep: int, *, dry_run: bool) -> Iterable[PrunedCommits]:
    """Delete old commit sequences of a job, and yield the datasets that had any.

    The newest `keep` commits of each dataset stay, those of snapshots that it can be rolled back to, and what stored
    sequences still need. The oldest that stays is readable: exports and audits begin with it.

    Args:
        job: the job.
        store: its state store.
        keep: from 1; a project's `history_runs`.
        dry_run: only count.
    """
    leaders = {group.leader for one in store.load_sequences(job.job, WAITING) if (group := group_of(one))}
    states, _ = store.load_readable_states(job.job)
    for urn, state in sorted(states.items()):
        if state.version <= keep:
            continue
        # With the commit that follows the newest one that may go.
        found = store.load_sequences(job.job, ENDED, [urn], below=state.version - keep + 2)
        needed = max((number for number, one in enumerate(found) if one.id in leaders), default=0)
        oldest_snapshot = max(state.oldest_snapshot, state.snapshot - job.commit.keep_snapshots + 1)
        base = _base(found, store, needed, state.version - keep, oldest_snapshot)
        if base is None:
            continue
        below = base.version_read
        number = sum(one.version_read < below for one in found)
        # Also if there is nothing to count: an interrupted call may have left files.
        if not dry_run:
            number = store.prune_sequences(job.job, urn, below)
        if number:
            yield PrunedCommits(urn, number)


def _base(
    found: Sequence[StoredSequence], store: StateStore, needed: int, newest: int, oldest_snapshot: int
) -> StoredSequence | None:
    """Return the newest sequence before which nothing is needed.

    Args:
        found: sequences of a dataset that have ended, newest first.
        store: the state store.
        needed: a sequence that must stay has this index in `found`.
        newest: the highest `version_read` of the result.
        oldest_snapshot: snapshots from this number on can be rolled back to.
    """
    follower: StoredSequence | None = None
    for number, stored in enumerate(found):
        if stored.state is not SequenceState.COMMITTED:
            continue
        # Exports name the files up to the result as they are stored today; what follows must name them so, too.
        is_last_that_may_go = number >= needed and stored.version_read <= newest
        if is_last_that_may_go and (follower is None or has_stored_paths(follower)):
            with suppress(CorruptRecordError):
                if decode_sequence(stored, store.places, skip_unknown_steps=True).after.snapshot < oldest_snapshot:
                    return stored
        follower = stored
    return None
