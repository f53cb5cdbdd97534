"""Bugs planted where datasets share transactions of the store: the schedules of two datasets must find each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import Connection

from gobblin_dagster.core.commit import StoredSequence
from gobblin_dagster.core.errors import CommitConflictError, CommitStateUnknownError, TransientError
from gobblin_dagster.engine.commit import committer
from gobblin_dagster.engine.commit.batches import Errors, Leased, Look, each
from gobblin_dagster.engine.commit.codec import encode_sequence
from gobblin_dagster.engine.commit.committer import Committer
from gobblin_dagster.engine.commit.step_runner import NONE_MADE
from gobblin_dagster.engine.commit.undo import undo_steps
from gobblin_dagster.state.sql import leases, sequences
from gobblin_dagster.storage import LocalStorage
from gobblin_dagster.testing.faults import Fault, FaultPoints
from gobblin_dagster.testing.protocol.harm import Harm
from gobblin_dagster.testing.protocol.power_loss_schedules import PowerLossStorage
from gobblin_dagster.testing.protocol.scenario import Example
from gobblin_dagster.testing.protocol.schedules import (
    ERRORS,
    Schedule,
    freezes_of_one,
    instants,
    recovered,
    run_a,
    trace_of,
)
from tests.faults.test_planted_bugs import Family, Patch, _find


def _batch_that_was_not_stored_counts_as_stored(patch: Patch) -> None:
    def wrong(self: Committer, batch: Sequence[Leased]) -> Errors:
        found = each(batch, self._sync_staging)
        with suppress(TransientError):
            self._store.prepare_all([(encode_sequence(one, self._store.places), epoch) for one, epoch in batch])
        return found

    patch.setattr(Committer, "_prepare_batch", wrong)


def _batch_is_committed_before_its_moves(patch: Patch) -> None:
    def wrong(self: Committer, batch: Sequence[Leased], look: Look) -> Errors:
        self._prepare_batch(batch)
        self._conclude_batch(batch)
        return each(batch, lambda sequence, epoch: self._roll(sequence, epoch, NONE_MADE))

    patch.setattr(Committer, "_publish_batch", wrong)


def _dataset_whose_moves_failed_is_committed_with_the_others(patch: Patch) -> None:
    def wrong(batch: Sequence[Leased], _: Errors) -> list[Leased]:
        return list(batch)

    patch.setattr(committer, "without_faults", wrong)


def _lost_answer_of_a_batch_is_taken_for_a_failure(patch: Patch) -> None:
    right = Committer._conclude_batch

    def wrong(self: Committer, batch: Sequence[Leased]) -> Errors:
        try:
            self._store.commit_all([(sequence.id, epoch, sequence.effect) for sequence, epoch in batch])
        except CommitStateUnknownError:
            for sequence, _ in batch:
                undo_steps(self._storage, sequence, ())
            raise
        return right(self, batch)

    patch.setattr(Committer, "_conclude_batch", wrong)


def _batch_is_acknowledged_before_its_commit(patch: Patch) -> None:
    def wrong(self: Committer, batch: Sequence[Leased]) -> Errors:
        done = each(batch, lambda sequence, _: self._committed(sequence))
        self._store.commit_all([(sequence.id, epoch, sequence.effect) for sequence, epoch in batch])
        return done

    patch.setattr(Committer, "_conclude_batch", wrong)


def _conflict_of_one_dataset_spoils_the_batch(patch: Patch) -> None:
    def wrong(self: Committer, batch: Sequence[Leased]) -> Errors:
        found = each(batch, self._sync_staging)
        try:
            self._store.prepare_all([(encode_sequence(one, self._store.places), epoch) for one, epoch in batch])
        except CommitConflictError as error:
            return {sequence.dataset_urn: error for sequence, _ in batch}
        return found

    patch.setattr(Committer, "_prepare_batch", wrong)


def _only_the_first_dataset_of_a_batch_is_checked(patch: Patch) -> None:
    checks, versions = leases.require_epochs, sequences._versions

    def first_epoch(connection: Connection, job: str, epochs: Mapping[str, int]) -> None:
        checks(connection, job, dict([*epochs.items()][:1]))

    def prepare(connection: Connection, items: Sequence[tuple[StoredSequence, int]]) -> None:
        with pytest.MonkeyPatch.context() as inner:
            planned = {sequence.dataset_urn: sequence.version_read for sequence, _ in items[1:]}
            inner.setattr(sequences, "_versions", lambda *args: {**planned, **versions(*args)} | planned)
            rightly(connection, items)

    rightly = sequences.prepare
    patch.setattr(sequences, "require_epochs", first_epoch)
    patch.setattr(sequences, "prepare", prepare)
    patch.setattr(sequences, "_moved", lambda *args: None)


def _folders_that_are_made_together_are_not_synced(patch: Patch) -> None:
    patch.setattr(LocalStorage, "_sync_parents", lambda self, parents, errors, *, ours: None)


def _errors_at(prefix: str) -> Family:
    """Return the schedules of errors at calls of some names only, because these bugs show nowhere else."""

    def schedules(example: Example) -> Iterator[Schedule]:
        for number, name in enumerate(trace_of(example), 1):
            for what, action in ERRORS.items() if name.startswith(prefix) else ():
                example.reset()
                run_a(example, FaultPoints(Fault(number, action)))
                yield recovered(example, f"{what} {number} {name}")

    return schedules


def _power_lost_after_the_run(example: Example) -> Iterator[Schedule]:
    example.reset()
    storage = PowerLossStorage()
    run_a(example, FaultPoints(), storage)
    for change in reversed(storage.unsynced):
        change.undo(Path)
    yield recovered(example, "power lost after the run")


BUGS: list[tuple[Callable[[Patch], None], Family, set[Harm]]] = [
    (_batch_that_was_not_stored_counts_as_stored, _errors_at("store.prepare"), {Harm.ORPHAN, Harm.DUPLICATED}),
    (_batch_is_committed_before_its_moves, instants, {Harm.AHEAD}),
    (_dataset_whose_moves_failed_is_committed_with_the_others, _errors_at("storage.move"), {Harm.AHEAD}),
    (_lost_answer_of_a_batch_is_taken_for_a_failure, _errors_at("store.commit"), {Harm.AHEAD}),
    (_batch_is_acknowledged_before_its_commit, instants, {Harm.TORN}),
    (_conflict_of_one_dataset_spoils_the_batch, freezes_of_one, {Harm.STUCK}),
    (_only_the_first_dataset_of_a_batch_is_checked, freezes_of_one, {Harm.DUPLICATED, Harm.REGRESSED, Harm.AHEAD}),
    (_folders_that_are_made_together_are_not_synced, _power_lost_after_the_run, {Harm.AHEAD}),
]


@pytest.mark.parametrize(("plant", "family", "expected"), BUGS, ids=[bug[0].__name__[1:] for bug in BUGS])
def test_planted_bug_is_found(
    scratch: Path, monkeypatch: Patch, plant: Callable[[Patch], None], family: Family, expected: set[Harm]
) -> None:
    plant(monkeypatch)
    found = _find(Example(scratch / "lake", shape="together", halts=True), family)
    assert found & expected, f"expected one of {sorted(expected)}, found {sorted(found) or 'nothing'}"
