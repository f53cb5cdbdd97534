"""Commit the planned sequences: each dataset on its own, or all as one group (`commit.scope: job`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial

from gobblin_dagster.core.commit import CommitSequence, SequenceState
from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.core.failure import describe_failure
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.engine.commit.all_or_none import is_all_or_none, with_held_back
from gobblin_dagster.engine.commit.batches import Errors, Leased
from gobblin_dagster.engine.commit.committer import Committer
from gobblin_dagster.engine.commit.group import GroupCommitter
from gobblin_dagster.engine.commit.leases import LeaseKeeper
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.results import DatasetCommit, DatasetResult
from gobblin_dagster.engine.run.store_check import published_meanwhile
from gobblin_dagster.state.store import StateStore


def publish_datasets(
    opened: JobContext, leases: LeaseKeeper, committer: Committer, decided: Sequence[DatasetCommit]
) -> tuple[DatasetResult, ...]:
    """Commit the planned sequences, and return the result of each dataset."""
    sequences = {one.sequence.dataset_urn: one.sequence for one in decided if one.sequence is not None}
    if not sequences:
        return tuple(one.result for one in decided)
    free, kept_back = _free(opened, sequences, leases)
    errors: Errors = {**kept_back, **_publish_all(opened, committer, free, kept_back)}
    leases.leave(committer.unfinished)
    never_begun = frozenset(errors if kept_back and is_all_or_none(opened.job) else kept_back)
    return tuple(_result(one, errors, never_begun, committer, opened.store) for one in decided)


def _result(
    one: DatasetCommit, errors: Errors, never_begun: frozenset[str], committer: Committer, store: StateStore
) -> DatasetResult:
    """Return what became of a dataset; if it is committed, with the error that kept its manifest from being written.

    A sequence that was never begun is in no store, so the result does not name it, and nobody needs its staged files.
    """
    if one.sequence is None:
        return one.result
    urn = one.sequence.dataset_urn
    error = errors[urn]
    if error is not None and urn in never_begun:
        return dataclasses.replace(_not_committed(one.result, error), sequence_id="")
    if error is not None and not _is_committed(one.sequence, store):
        return _not_committed(one.result, error)
    unseen = committer.unseen.get(urn) or error
    if unseen is None:
        return one.result
    return dataclasses.replace(one.result, failures=(*one.result.failures, describe_failure(unseen)))


def _free(
    opened: JobContext, sequences: Mapping[str, CommitSequence], leases: LeaseKeeper
) -> tuple[list[Leased], dict[str, GobblinDagsterError]]:
    """Return the sequences that may be published, with their epochs, and the errors of those that may not."""
    kept_back = leases.secure(sequences)
    free = [(one, leases.epoch(urn)) for urn, one in sequences.items() if urn not in kept_back]
    return free, kept_back


def _publish_all(
    opened: JobContext, committer: Committer, items: Sequence[Leased], kept_back: Mapping[str, Exception]
) -> Errors:
    # While this run was reading, a job that was renamed may have published the same rows under its other name.
    look = partial(published_meanwhile, opened)
    if not is_all_or_none(opened.job):
        return committer.publish_all(items, look)
    if kept_back:
        return with_held_back([sequence.dataset_urn for sequence, _ in items], kept_back)
    return GroupCommitter(committer, opened.store, opened.job.commit.parallelism).publish_all(items, look)


def _is_committed(sequence: CommitSequence, store: StateStore) -> bool:
    """True if a publication that ended with an error was committed nevertheless."""
    try:
        stored = store.load_sequence(sequence.id)
    except GobblinDagsterError:
        return False
    return stored is not None and stored.state is SequenceState.COMMITTED


def _not_committed(planned: DatasetResult, error: Exception) -> DatasetResult:
    """Return the result of a dataset if its publication failed or is left for the next run."""
    return dataclasses.replace(
        planned,
        outcome=DatasetOutcome.FAILED,
        actual_high=planned.low,
        failures=(*planned.failures, describe_failure(error)),
    )
