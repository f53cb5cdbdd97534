"""The proof of the proof: each bug planted in the protocol must be found by the schedules that pass without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, delete
from sqlalchemy import insert as plain_insert

from gobblin_dagster.core import serialization
from gobblin_dagster.core.commit import CommitEffect, CommitSequence, CommitStep, StoredSequence
from gobblin_dagster.core.errors import CommitStateUnknownError
from gobblin_dagster.core.storage import FileDigest, Storage
from gobblin_dagster.core.task_state import StagedFile
from gobblin_dagster.engine.commit import build, committer, manifest
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.engine.commit.committer import Committer, Recovery
from gobblin_dagster.engine.commit.manifest import write_manifest
from gobblin_dagster.engine.commit.staging import delete_staging
from gobblin_dagster.engine.commit.step_runner import StepRunner
from gobblin_dagster.engine.commit.steps import RenameFileStep
from gobblin_dagster.engine.commit.undo import undo_steps
from gobblin_dagster.state.sql import sequences
from gobblin_dagster.state.sql.tables import dataset_states
from gobblin_dagster.storage.local import LocalSink
from gobblin_dagster.testing.protocol import power_loss_schedules
from gobblin_dagster.testing.protocol import scenario as example_module
from gobblin_dagster.testing.protocol.harm import Harm
from gobblin_dagster.testing.protocol.invariants import check_instant
from gobblin_dagster.testing.protocol.power_loss import power_losses
from gobblin_dagster.testing.protocol.scenario import FIRST_BATCH, URN, Example
from gobblin_dagster.testing.protocol.schedules import Schedule, errors, freezes, instants, kills, late_movers

Family = Callable[[Example], Iterator[Schedule]]
Patch = pytest.MonkeyPatch
SEED = 7


def _find(example: Example, family: Family) -> set[Harm]:
    """Return what the first schedule that breaks something broke; nothing where none does."""
    for schedule in family(example):
        if schedule.violations:
            return {violation.harm for violation in schedule.violations}
    return set()


def _over_older_files(example: Example) -> Iterator[Schedule]:
    """Run where another program left files under the names that a run without commit ids would choose."""
    example.reset()
    for unit, day in (("wu-1", "2015-12-09"), ("wu-2", "2015-12-09"), ("wu-3", "2015-12-10")):
        older = Path(example.output_root, "main", URN, day, f"{unit}.txt")
        older.parent.mkdir(parents=True, exist_ok=True)
        older.write_text(f"an older file {unit}")
    example.run("A", FIRST_BATCH)
    # Those older files are nobody's here, which is no fault of the run.
    harms = [violation for violation in check_instant(example)[0] if violation.harm is not Harm.ORPHAN]
    yield Schedule("over older files", tuple(harms))


def _commit_before_the_moves(patch: Patch) -> None:
    def wrong(self: Committer, sequence: CommitSequence, epoch: int, *, verify_content: bool) -> tuple[int, int]:
        self._commit(sequence, epoch)
        return self._runner.roll_forward(sequence, verify_content=verify_content)

    patch.setattr(Committer, "_roll_and_commit", wrong)


def _manifest_before_the_commit(patch: Patch) -> None:
    right = Committer._commit

    def wrong(self: Committer, sequence: CommitSequence, epoch: int) -> None:
        self._after_commit(sequence)
        right(self, sequence, epoch)

    patch.setattr(Committer, "_commit", wrong)


def _stored_sequences_are_not_recovered(patch: Patch) -> None:
    def wrong(self: Committer, stored: StoredSequence, epoch: int, undo_because: str = "") -> Recovery:
        return Recovery(stored.id, stored.dataset_urn, stored.state)

    patch.setattr(Committer, "recover", wrong)


def _staging_wiped_at_start_and_missing_sources_count_as_done(patch: Patch) -> None:
    right = Committer.recover

    def wiping(self: Committer, stored: StoredSequence, epoch: int, undo_because: str = "") -> Recovery:
        delete_staging(self._storage, decode_sequence(stored, self._store.places))
        return right(self, stored, epoch, undo_because)

    def forgiving(self: RenameFileStep, storage: Storage) -> None:
        return

    patch.setattr(Committer, "recover", wiping)
    patch.setattr(RenameFileStep, "_require_done", forgiving)


def _names_without_commit_id_and_existence_counts_as_done(patch: Patch) -> None:
    def short(file: StagedFile, commit_id: str) -> str:
        return file.target.replace(f"{commit_id}-", "")

    def exists(self: RenameFileStep, storage: Storage) -> bool:
        return storage.size(self.target) is not None

    patch.setattr(build, "_checked", short)
    patch.setattr(RenameFileStep, "verify", exists)


def _files_are_not_synced(patch: Patch) -> None:
    def unsynced(self: LocalSink) -> FileDigest:
        self._durable = False
        return LocalSink.finish(self)

    patch.setattr(power_loss_schedules._RecordedSink, "finish", unsynced)


def _folders_are_not_synced(patch: Patch) -> None:
    patch.setattr(StepRunner, "sync_folders", lambda self, paths: None)


def _neither_epoch_nor_version_is_checked(patch: Patch) -> None:
    right = sequences.prepare

    def prepare(connection: Connection, items: Sequence[tuple[StoredSequence, int]]) -> None:
        planned = {sequence.dataset_urn: sequence.version_read for sequence, _ in items}
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(sequences, "_versions", lambda *args: planned)
            right(connection, items)

    def put(connection: Connection, effects: Sequence[CommitEffect]) -> None:
        connection.execute(delete(dataset_states))
        for after in (effect.after for effect in effects):
            values = {"job": after.job, "dataset_urn": after.dataset_urn, "version": after.version}
            connection.execute(plain_insert(dataset_states).values({**values, "body": serialization.to_json(after)}))

    patch.setattr(sequences, "require_epochs", lambda *args: None)
    patch.setattr(sequences, "prepare", prepare)
    patch.setattr(sequences, "_swap_states", put)


def _undo_leaves_published_files(patch: Patch) -> None:
    def sources_only(storage: Storage, sequence: CommitSequence, published: object) -> None:
        for folder in sequence.staging_dirs:
            storage.delete_tree(folder)

    patch.setattr(committer, "undo_steps", sources_only)


def _undo_deletes_published_files_first(patch: Patch) -> None:
    def wrong(storage: Storage, sequence: CommitSequence, published: object) -> None:
        steps = [step for step in sequence.steps if isinstance(step, RenameFileStep)]
        for step in steps:
            storage.delete(step.target)
        for step in steps:
            storage.delete(step.source)

    patch.setattr(committer, "undo_steps", wrong)


def _lost_answer_is_taken_for_a_failure(patch: Patch) -> None:
    def wrong(self: Committer, sequence: CommitSequence, epoch: int) -> None:
        try:
            self._store.commit(sequence.id, epoch, sequence.effect)
        except CommitStateUnknownError:
            undo_steps(self._storage, sequence, ())
            raise

    patch.setattr(Committer, "_commit", wrong)


def _manifests_have_holes(patch: Patch) -> None:
    right = manifest.write_manifest

    def newest_only(storage: Storage, store: Any, **facts: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(type(storage._inner) if hasattr(storage, "_inner") else type(storage), "size", _always_there)
            right(storage, store, **facts)

    patch.setattr(committer, "write_manifest", newest_only)
    patch.setattr(example_module, "fill_manifests", lambda *args: [])


def _always_there(self: object, path: str) -> int:
    return 1


def _failed_moves_count_as_done(patch: Patch) -> None:
    right = StepRunner._run

    def wrong(self: StepRunner, step: CommitStep, *, verify_content: bool) -> bool:
        try:
            return right(self, step, verify_content=verify_content)
        except OSError:
            return True

    patch.setattr(StepRunner, "_run", wrong)


def _moves_before_the_write_ahead(patch: Patch) -> None:
    right = Committer.prepare

    def wrong(self: Committer, sequence: CommitSequence, epoch: int) -> None:
        self._runner.roll_forward(sequence, verify_content=False)
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(StepRunner, "sync_folders", lambda self, paths: None)
            right(self, sequence, epoch)

    patch.setattr(Committer, "prepare", wrong)


def _staging_deleted_before_the_commit_of_a_torn_recovery(patch: Patch) -> None:
    right = Committer._roll_and_commit

    def wrong(self: Committer, sequence: CommitSequence, epoch: int, *, verify_content: bool) -> tuple[int, int]:
        try:
            return right(self, sequence, epoch, verify_content=verify_content)
        except OSError:
            # "Clean up after a failure": the sequence is still PREPARED and some files are already in place.
            delete_staging(self._storage, sequence)
            self._store.quarantine(sequence.id, "cleaned up")
            raise

    patch.setattr(Committer, "_roll_and_commit", wrong)


def _write_whole_manifest_first(patch: Patch) -> None:
    def wrong(self: Committer, sequence: CommitSequence, epoch: int) -> None:
        super_prepare(self, sequence, epoch)
        write_manifest(
            self._storage,
            self._store,
            output_root=sequence.output_root,
            job=sequence.job,
            dataset_urn=sequence.dataset_urn,
            snapshot=sequence.after.snapshot,
            added=sequence.files[:1],
        )

    super_prepare = Committer.prepare
    patch.setattr(Committer, "prepare", wrong)


power_cut: Family = partial(power_losses, seed=SEED, limit=8)
BUGS: list[tuple[Callable[[Patch], None], Family, set[Harm], str]] = [
    (_commit_before_the_moves, instants, {Harm.AHEAD}, ""),
    (_manifest_before_the_commit, instants, {Harm.TORN}, ""),
    (_write_whole_manifest_first, instants, {Harm.TORN}, ""),
    (_stored_sequences_are_not_recovered, kills, {Harm.STUCK}, ""),
    (_staging_wiped_at_start_and_missing_sources_count_as_done, kills, {Harm.AHEAD, Harm.LOST}, ""),
    (_names_without_commit_id_and_existence_counts_as_done, _over_older_files, {Harm.AHEAD}, ""),
    (_files_are_not_synced, power_cut, {Harm.AHEAD, Harm.STUCK}, ""),
    (_folders_are_not_synced, power_cut, {Harm.AHEAD}, ""),
    (_neither_epoch_nor_version_is_checked, freezes, {Harm.DUPLICATED, Harm.REGRESSED}, ""),
    (_undo_leaves_published_files, errors, {Harm.ORPHAN, Harm.DUPLICATED}, "wu-2"),
    (_undo_deletes_published_files_first, late_movers, {Harm.ORPHAN, Harm.DUPLICATED}, "wu-2"),
    (_lost_answer_is_taken_for_a_failure, errors, {Harm.AHEAD}, ""),
    (_manifests_have_holes, kills, {Harm.TORN}, ""),
    (_failed_moves_count_as_done, errors, {Harm.AHEAD}, ""),
    (_moves_before_the_write_ahead, kills, {Harm.ORPHAN, Harm.DUPLICATED}, ""),
    (_staging_deleted_before_the_commit_of_a_torn_recovery, errors, {Harm.STUCK}, ""),
]


@pytest.mark.parametrize(("plant", "family", "expected", "loses"), BUGS, ids=[bug[0].__name__[1:] for bug in BUGS])
def test_planted_bug_is_found(
    scratch: Path,
    monkeypatch: Patch,
    plant: Callable[[Patch], None],
    family: Family,
    expected: set[Harm],
    loses: str,
) -> None:
    example = Example(scratch / "lake", "sqlite", loses=loses)
    plant(monkeypatch)
    found = _find(example, family)
    assert found & expected, f"expected one of {sorted(expected)}, found {sorted(found) or 'nothing'}"


def test_same_search_finds_nothing_without_a_bug(scratch: Path) -> None:
    assert _find(Example(scratch / "lake"), _over_older_files) == set()
