"""More planted bugs: in steps, undoing, and inside the transactions of both stores; each must be found."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from gobblin_dagster.core.commit import (
    CommitEffect,
    CommitSequence,
    CommitStep,
    PublishedFile,
    SequenceState,
    StoredSequence,
)
from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.core.places import AS_STORED
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.commit import build, committer, encode_sequence
from gobblin_dagster.engine.commit.committer import Committer, Recovery
from gobblin_dagster.engine.commit.step_runner import StepRunner
from gobblin_dagster.engine.commit.steps import RenameFileStep, SetPermissionsStep, renames_of
from gobblin_dagster.engine.commit.undo import undo_steps
from gobblin_dagster.state.files import changes as file_changes
from gobblin_dagster.state.files.dataset import DatasetFiles, HeadChange
from gobblin_dagster.state.files.log import VersionLog
from gobblin_dagster.state.files.records import DatasetHead
from gobblin_dagster.state.files.store import FileStateStore
from gobblin_dagster.state.sql import sequences
from gobblin_dagster.state.sql.store import SqlStateStore
from gobblin_dagster.storage.local import LocalStorage
from gobblin_dagster.testing.faults import Fault, FaultPoints, crash_before, run_in_child
from gobblin_dagster.testing.protocol.harm import Harm, Violation
from gobblin_dagster.testing.protocol.power_loss import failed_syncs, power_losses
from gobblin_dagster.testing.protocol.power_loss_schedules import PowerLossStorage
from gobblin_dagster.testing.protocol.random_faults import storms
from gobblin_dagster.testing.protocol.scenario import FIRST_BATCH, URN, Example, StoreKind
from gobblin_dagster.testing.protocol.schedules import (
    Schedule,
    errors,
    freezes,
    instants,
    kills,
    late_errors,
    late_movers,
    recovered,
    trace_of,
)

Family = Callable[[Example], Iterator[Schedule]]
Patch = pytest.MonkeyPatch


def _find(example: Example, family: Family) -> set[Harm]:
    """Return what the first schedule that breaks something broke; nothing where none does."""
    broken = (schedule.violations for schedule in family(example) if schedule.violations)
    try:
        return {violation.harm for violation in next(broken, ())}
    except GobblinDagsterError:  # an undisturbed run, or a reader, that cannot go on
        return {Harm.STUCK}


# -- schedules for what no other shows ---------------------------------------------------------------------------------
def _damaged_staging(example: Example) -> Iterator[Schedule]:
    """Kill run A before its first move and change a byte of a staged file."""
    number = trace_of(example).index("storage.move") + 1
    example.reset()
    run_in_child(lambda: example.run("A", FIRST_BATCH, points=FaultPoints(Fault(number, crash_before))))
    staged = next(Path(example.output_root, "_gobblin/staging").rglob("*wu-2.txt"))
    staged.write_bytes(b"?" + staged.read_bytes()[1:])
    yield recovered(example, "damaged staging")


def _file_in_the_way(example: Example) -> Iterator[Schedule]:
    """Let another program's file lie under the name that run A will choose: it must stay as it is."""
    example.reset()
    commit_id = hashlib.sha256(b"commit of A").hexdigest()[:32]
    other = Path(example.output_root, "main", URN, "2015-12-09", f"{commit_id}-wu-1.txt")
    other.parent.mkdir(parents=True)
    other.write_text("another program's")
    run_in_child(lambda: example.run("A", FIRST_BATCH))
    is_kept = other.exists() and other.read_text() == "another program's"
    yield Schedule("file in the way", () if is_kept else (Violation(Harm.LOST, "another program's file"),))


def _with_modes(example: Example) -> Iterator[Schedule]:
    yield from instants(replace(example, shape="permissions"))


def _at_least_once(example: Example) -> Iterator[Schedule]:
    yield from instants(replace(example, shape="at least once"))


# -- steps, rolling forward, undoing -----------------------------------------------------------------------------------
def _same_size_counts_as_same_content(patch: Patch) -> None:
    patch.setattr(
        RenameFileStep, "_holds", lambda self, storage, path: storage.size(path) == self.size_bytes, raising=True
    )


def _recovery_trusts_staging(patch: Patch) -> None:
    right = StepRunner.roll_forward

    def wrong(self: StepRunner, sequence: CommitSequence, *, verify_content: bool, made: object) -> tuple[int, int]:
        return right(self, sequence, verify_content=False)

    patch.setattr(StepRunner, "roll_forward", wrong)


def _moves_overwrite(patch: Patch) -> None:
    def wrong(self: LocalStorage, source: str, target: str) -> None:
        Path(source).replace(target)

    patch.setattr(LocalStorage, "move", wrong)


def _lost_source_counts_as_moved(patch: Patch) -> None:
    patch.setattr(RenameFileStep, "_require_done", lambda self, storage: None)


def _one_step_done_counts_as_all_done(patch: Patch) -> None:
    right = StepRunner.roll_forward

    def wrong(self: StepRunner, sequence: CommitSequence, *, verify_content: bool, made: object) -> tuple[int, int]:
        if verify_content and any(step.verify(self._storage) for step in sequence.steps):
            return len(sequence.steps), 0
        return right(self, sequence, verify_content=verify_content)

    patch.setattr(StepRunner, "roll_forward", wrong)


def _batch_moves_its_first_file_only(patch: Patch) -> None:
    right = StepRunner._run

    def wrong(self: StepRunner, step: CommitStep, *, verify_content: bool) -> bool:
        return right(self, next(renames_of([step]), step), verify_content=verify_content)

    patch.setattr(build, "BATCH_ABOVE_FILES", 1)
    patch.setattr(StepRunner, "_run", wrong)


def _folders_are_synced_after_the_commit(patch: Patch) -> None:
    right = Committer._commit
    sync = StepRunner.sync_folders
    patch.setattr(StepRunner, "sync_folders", lambda self, paths: None)

    def wrong(self: Committer, sequence: CommitSequence, epoch: int) -> None:
        right(self, sequence, epoch)
        sync(self._runner, [rename.target for rename in renames_of(sequence.steps)])

    patch.setattr(Committer, "_commit", wrong)


def _failed_syncs_are_forgotten(patch: Patch) -> None:
    right = StepRunner.sync_folders

    def wrong(self: StepRunner, paths: Iterable[str]) -> None:
        with suppress(OSError):
            right(self, paths)

    patch.setattr(StepRunner, "sync_folders", wrong)


def _modes_count_as_set(patch: Patch) -> None:
    patch.setattr(SetPermissionsStep, "verify", lambda self, storage: True)


def _stored_as_committed_before_the_moves(patch: Patch) -> None:
    def wrong(self: Committer, sequence: CommitSequence, epoch: int) -> None:
        self._store.record(encode_sequence(sequence, AS_STORED), epoch, sequence.effect)
        self._runner.roll_forward(sequence, verify_content=False)

    patch.setattr(Committer, "publish_unlogged", wrong)


def _undo_is_noted_before_it_is_done(patch: Patch) -> None:
    def wrong(self: Committer, sequence: CommitSequence, epoch: int) -> None:
        self._store.finish_abort(sequence.id, epoch)
        undo_steps(self._storage, sequence, ())

    patch.setattr(Committer, "_finish_abort", wrong)


def _undo_forgets_the_sources(patch: Patch) -> None:
    def wrong(storage: Storage, sequence: CommitSequence, published: Collection[str]) -> None:
        for rename in renames_of(sequence.steps):
            storage.delete(rename.target)

    patch.setattr(committer, "undo_steps", wrong)


def _undo_skips_the_first_target(patch: Patch) -> None:
    def wrong(storage: Storage, sequence: CommitSequence, published: Collection[str]) -> None:
        undo_steps(storage, replace(sequence, steps=sequence.steps[1:]), published)

    patch.setattr(committer, "undo_steps", wrong)


def _nothing_is_written_ahead(patch: Patch) -> None:
    def publish(self: Committer, sequence: CommitSequence, epoch: int, *, verify_sources: bool) -> None:
        self.publish_unlogged(sequence, epoch)

    patch.setattr(Committer, "prepare", lambda self, sequence, epoch: None)
    patch.setattr(Committer, "publish", publish)


def _first_failed_redo_is_the_last(patch: Patch) -> None:
    def wrong(self: Committer, sequence: CommitSequence, error: Exception) -> Recovery:
        self._store.quarantine(sequence.id, str(error))
        return self._recovery(sequence, reason=str(error))

    patch.setattr(Committer, "count_failure", wrong)


# -- what is built -----------------------------------------------------------------------------------------------------
def _last_file_has_no_step(patch: Patch) -> None:
    right = build.rename_moves
    patch.setattr(build, "rename_moves", lambda moves: right(moves[:-1]))


def _snapshot_is_not_counted(patch: Patch) -> None:
    right = build._after
    patch.setattr(build, "_after", lambda **facts: replace(right(**facts), snapshot=1))


def _last_work_unit_is_counted_and_not_published(patch: Patch) -> None:
    right = build.build_sequence

    def wrong(**facts: object) -> CommitSequence:
        sequence = right(**facts)  # type: ignore[arg-type]  # handed on as they came
        return replace(sequence, steps=sequence.steps[:-1], files=sequence.files[:-1])

    patch.setattr("gobblin_dagster.testing.protocol.scenario.build_sequence", wrong)


# -- inside the SQL store ----------------------------------------------------------------------------------------------
def _sql_sequence_stays_prepared(patch: Patch) -> None:
    patch.setattr(sequences, "_end", lambda *args: None)


def _sql_files_are_not_added(patch: Patch) -> None:
    patch.setattr(sequences, "_add_files", lambda *args: None)


def _sql_state_is_not_swapped(patch: Patch) -> None:
    patch.setattr(sequences, "_swap_states", lambda *args: None)


def _sql_snapshot_is_its_newest_files(patch: Patch) -> None:
    right = SqlStateStore.load_snapshot

    def wrong(self: SqlStateStore, job: str, dataset_urn: str, snapshot: int | None = None) -> list[PublishedFile]:
        files = right(self, job, dataset_urn, snapshot)
        return [file for file in files if file.snapshot == max(one.snapshot for one in files)]

    patch.setattr(SqlStateStore, "load_snapshot", wrong)


# -- inside the plain-file store ---------------------------------------------------------------------------------------
def _commit_in_two(patch: Patch, first: Callable[[DatasetHead, DatasetHead], DatasetHead]) -> None:
    """Let the first of two changes of the head be only part of the commit."""
    right = FileStateStore.commit

    def wrong(self: FileStateStore, sequence_id: str, epoch: int, effect: CommitEffect) -> None:
        whole: list[DatasetHead | None] = []
        change = DatasetFiles.change

        def halved(dataset: DatasetFiles, apply: HeadChange) -> DatasetHead:
            def half(head: DatasetHead, number: int) -> DatasetHead | None:
                whole.append(apply(head, number))
                return None if whole[-1] is None else first(head, whole[-1])

            change(dataset, half)
            return change(dataset, lambda head, _: None if head == whole[-1] else whole[-1])

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(DatasetFiles, "change", halved)
            right(self, sequence_id, epoch, effect)

    patch.setattr(FileStateStore, "commit", wrong)


def _files_of_a_snapshot_in_a_second_change(patch: Patch) -> None:
    _commit_in_two(patch, lambda before, whole: replace(whole, snapshot_part=before.snapshot_part))


def _sequence_ended_before_the_watermark(patch: Patch) -> None:
    _commit_in_two(patch, lambda before, whole: replace(whole, state=before.state, snapshot_part=before.snapshot_part))


def _head_is_overwritten(patch: Patch) -> None:
    right = VersionLog.append

    def wrong(self: VersionLog, number: int, content: bytes) -> bool:
        Path(self.path(number)).unlink(missing_ok=True)
        return right(self, number, content)

    patch.setattr(VersionLog, "append", wrong)


def _lost_race_counts_as_won(patch: Patch) -> None:
    right = VersionLog.append

    def wrong(self: VersionLog, number: int, content: bytes) -> bool:
        right(self, number, content)
        return True

    patch.setattr(VersionLog, "append", wrong)


def _files_check_neither_epoch_nor_version(patch: Patch) -> None:
    right = file_changes.prepare

    def prepare(head: DatasetHead, sequence: StoredSequence, epoch: int, number: int) -> DatasetHead:
        return right(head, replace(sequence, version_read=head.version), epoch, number)

    def commit(head: DatasetHead, epoch: int, effect: CommitEffect) -> DatasetHead | None:
        if head.entry is None:
            return None
        ended = replace(head.entry.sequence, state=SequenceState.COMMITTED)
        return replace(head, state=effect.after, entry=replace(head.entry, sequence=ended))

    patch.setattr(file_changes, "_require_epoch", lambda *args: None)
    patch.setattr(file_changes, "prepare", prepare)
    patch.setattr(file_changes, "commit", commit)


def _failed_manifest_is_forgotten(patch: Patch) -> None:
    patch.setattr(Committer, "unfinished", property(lambda self: set(), lambda self, value: None), raising=False)


def _log_is_not_synced(patch: Patch) -> None:
    right = PowerLossStorage.sync_dir

    def wrong(self: PowerLossStorage, path: str) -> None:
        if not path.endswith("log"):
            right(self, path)

    patch.setattr(PowerLossStorage, "sync_dir", wrong)


power_cut: Family = partial(power_losses, seed=7, limit=8)
LOSES = "wu-2"
BUGS: list[tuple[Callable[[Patch], None], Family, set[Harm], StoreKind, str]] = [
    (_same_size_counts_as_same_content, _damaged_staging, {Harm.AHEAD}, "sqlite", ""),
    (_recovery_trusts_staging, _damaged_staging, {Harm.AHEAD}, "sqlite", ""),
    (_moves_overwrite, _file_in_the_way, {Harm.LOST}, "sqlite", ""),
    (_lost_source_counts_as_moved, instants, {Harm.AHEAD}, "sqlite", LOSES),
    (_one_step_done_counts_as_all_done, kills, {Harm.AHEAD}, "sqlite", ""),
    (_batch_moves_its_first_file_only, instants, {Harm.AHEAD}, "sqlite", ""),
    (_folders_are_synced_after_the_commit, power_cut, {Harm.AHEAD}, "sqlite", ""),
    (_failed_syncs_are_forgotten, partial(failed_syncs, seed=7), {Harm.AHEAD}, "sqlite", ""),
    (_modes_count_as_set, _with_modes, {Harm.TORN}, "sqlite", ""),
    (_stored_as_committed_before_the_moves, _at_least_once, {Harm.AHEAD}, "sqlite", ""),
    (_undo_is_noted_before_it_is_done, kills, {Harm.ORPHAN, Harm.DUPLICATED}, "sqlite", LOSES),
    (_undo_forgets_the_sources, late_movers, {Harm.ORPHAN, Harm.DUPLICATED}, "sqlite", LOSES),
    (_undo_skips_the_first_target, errors, {Harm.ORPHAN, Harm.DUPLICATED}, "sqlite", LOSES),
    (_nothing_is_written_ahead, kills, {Harm.ORPHAN, Harm.DUPLICATED}, "sqlite", ""),
    (_first_failed_redo_is_the_last, partial(storms, seeds=range(2000)), {Harm.STUCK}, "files", ""),
    (_last_file_has_no_step, instants, {Harm.AHEAD}, "sqlite", ""),
    (_snapshot_is_not_counted, instants, {Harm.AHEAD, Harm.TORN, Harm.LOST}, "sqlite", ""),
    (_last_work_unit_is_counted_and_not_published, instants, {Harm.LOST}, "sqlite", ""),
    (_sql_sequence_stays_prepared, instants, {Harm.STUCK}, "sqlite", ""),
    (_sql_files_are_not_added, instants, {Harm.LOST, Harm.AHEAD}, "sqlite", ""),
    (_sql_state_is_not_swapped, instants, {Harm.LOST, Harm.AHEAD, Harm.ORPHAN}, "sqlite", ""),
    (_sql_snapshot_is_its_newest_files, instants, {Harm.LOST, Harm.TORN, Harm.ORPHAN}, "sqlite", ""),
    (_files_of_a_snapshot_in_a_second_change, kills, {Harm.LOST, Harm.AHEAD}, "files", ""),
    (_sequence_ended_before_the_watermark, kills, {Harm.DUPLICATED, Harm.AHEAD, Harm.ORPHAN}, "files", ""),
    (_head_is_overwritten, freezes, set(Harm), "files", ""),
    (_lost_race_counts_as_won, freezes, set(Harm), "files", ""),
    (_files_check_neither_epoch_nor_version, freezes, {Harm.DUPLICATED, Harm.REGRESSED, Harm.AHEAD}, "files", ""),
    (_log_is_not_synced, power_cut, set(Harm), "files", ""),
    (_failed_manifest_is_forgotten, late_errors, {Harm.STUCK}, "sqlite", ""),
    (_failed_manifest_is_forgotten, late_errors, {Harm.STUCK}, "files", ""),
]


@pytest.mark.storm
@pytest.mark.parametrize(
    ("plant", "family", "expected", "kind", "loses"), BUGS, ids=[f"{bug[0].__name__}-{bug[3]}" for bug in BUGS]
)
def test_planted_bug_is_found(
    scratch: Path,
    monkeypatch: Patch,
    plant: Callable[[Patch], None],
    family: Family,
    expected: set[Harm],
    kind: StoreKind,
    loses: str,
) -> None:
    example = Example(scratch / "lake", kind, loses=loses)
    plant(monkeypatch)
    found = _find(example, family)
    assert found & expected, f"expected one of {sorted(expected)}, found {sorted(found) or 'nothing'}"


@pytest.mark.parametrize("family", [_damaged_staging, _file_in_the_way])
def test_same_search_finds_nothing_without_a_bug(scratch: Path, family: Family) -> None:
    assert _find(Example(scratch / "lake"), family) == set()


def test_small_batches_are_safe_without_a_bug(scratch: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(build, "BATCH_ABOVE_FILES", 1)
    assert _find(Example(scratch / "lake"), instants) == set()
