from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gobblin_dagster.core.commit import CommitSequence, CommitStep, SequenceState, body_digest
from gobblin_dagster.core.errors import (
    CommitStateUnknownError,
    CorruptRecordError,
    QuarantinedError,
    StagedFileLostError,
    StaleEpochError,
    StorageError,
    TransientError,
    UnfinishedSequenceError,
    WatermarkMovedError,
)
from gobblin_dagster.engine.commit.committer import Committer
from gobblin_dagster.engine.commit.listener import SilentListener
from gobblin_dagster.engine.commit.manifest import manifest_path
from gobblin_dagster.engine.commit.step_runner import STEPS_PER_CHUNK
from gobblin_dagster.engine.commit.steps import RenameFileStep
from gobblin_dagster.testing.faults import Action, FaultPoints, counted_storage, counted_store
from tests.unit.engine.commit.test_steps import MarkStep
from tests.unit.engine.commit.world import JOB, ROOT, World, staging


def _prepared(world: World, sequence: CommitSequence | None = None) -> tuple[CommitSequence, int]:
    sequence = sequence or world.sequence()
    epoch = world.epoch(sequence.dataset_urn)
    world.committer().prepare(sequence, epoch)
    return sequence, epoch


def _source(sequence: CommitSequence, number: int = 0) -> str:
    step = sequence.steps[number]
    assert isinstance(step, RenameFileStep)
    return step.source


def _failing_at(world: World, name: str, action: Action, occurrence: int = 1) -> Committer:
    """Return a committer whose n-th call of that name is struck."""
    names: list[str] = []

    def strike(point: str, call: Callable[[], Any]) -> Any:
        names.append(point)
        return action(point, call) if point == name and names.count(name) == occurrence else call()

    class Every(FaultPoints):
        def pass_through(self, name: str, call: Callable[[], Any]) -> Any:
            return strike(name, call)

    points = Every()
    return Committer(counted_store(world.store, points), counted_storage(world.storage, points))


def _unknown(done: bool) -> Action:
    def act(name: str, call: Callable[[], Any]) -> Any:
        if done:
            call()
        raise CommitStateUnknownError(dataset_urn="a", sequence_id="c1", problem="the answer was lost")

    return act


def _no_space(name: str, call: Callable[[], Any]) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"{ROOT}/main/c1-1.txt")


# -- forward -----------------------------------------------------------------------------------------------------------
def test_publish_moves_files_watermark_and_manifest_and_deletes_staging() -> None:
    world = World()
    sequence, epoch = _prepared(world)
    world.committer().publish(sequence, epoch, verify_sources=False)
    assert world.visible() == ["main/c1-1.txt"]
    assert world.state() == sequence.after
    assert world.state_of(sequence) is SequenceState.COMMITTED
    assert world.storage.size(manifest_path(ROOT, JOB, "a", 1)) is not None
    assert world.storage.list_names(staging("c1")) == []


def test_thousands_of_files_are_published_in_chunks() -> None:
    world = World()
    units = [world.unit(number=n, low=n, high=n + 1) for n in range(2 * STEPS_PER_CHUNK + 1)]
    numbers: list[int] = []

    class Counting(SilentListener):
        def step_done(self, sequence: CommitSequence, step: CommitStep, number: int) -> None:
            numbers.append(number)

    sequence = world.sequence(units=units)
    committer = world.committer(listener=Counting())
    assert committer.publish_all([(sequence, world.epoch())]) == {"a": None}
    assert len(world.visible()) == len(units)
    assert sorted(numbers) == list(range(1, len(units) + 1))


def test_slow_steps_are_spread_over_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gobblin_dagster.engine.commit.step_runner.SLOW_STEP_S", 0.0)
    test_thousands_of_files_are_published_in_chunks()


def test_one_dataset_does_not_stop_another() -> None:
    world = World()
    good, bad = world.sequence("c1", urn="good"), world.sequence("c2", urn="bad")
    world.storage.delete(_source(bad))
    items = [(good, world.epoch("good")), (bad, world.epoch("bad"))]
    outcomes = world.committer().publish_all(items)
    assert outcomes["good"] is None
    assert isinstance(outcomes["bad"], StagedFileLostError)
    assert world.visible() == ["main/c1-1.txt"]


def test_listener_hears_of_everything_in_order() -> None:
    heard: list[str] = []

    class Hearing(SilentListener):
        def prepared(self, sequence: CommitSequence) -> None:
            heard.append("prepared")

        def step_done(self, sequence: CommitSequence, step: CommitStep, number: int) -> None:
            heard.append(f"step {number}")

        def committed(self, sequence: CommitSequence) -> None:
            heard.append("committed")

    world = World()
    world.committer(listener=Hearing()).publish_all([(world.sequence(), world.epoch())])
    assert heard == ["prepared", "step 1", "committed"]


def test_step_of_another_package_is_verified_executed_and_recovered() -> None:
    world = World()
    plain = world.sequence()
    sequence, epoch = _prepared(world, replace(plain, steps=(*plain.steps, MarkStep(f"{ROOT}/mark"))))
    recovery = world.committer().recover(world.stored(sequence), epoch)
    assert (recovery.outcome, recovery.steps_done, recovery.steps_redone) == (SequenceState.COMMITTED, 0, 2)
    assert world.storage.read(f"{ROOT}/mark") == b"done"


# -- refusals and failures ---------------------------------------------------------------------------------------------
def test_second_sequence_of_a_dataset_is_refused_until_the_first_has_ended() -> None:
    world = World()
    _prepared(world)
    with pytest.raises(UnfinishedSequenceError):
        world.committer().prepare(world.sequence("c2"), world.epoch())


def test_staging_that_cannot_be_synced_stores_nothing() -> None:
    world = World()
    sequence = world.sequence()
    world.storage.delete_tree(staging("c1"))
    with pytest.raises(StorageError, match="cannot sync the staging of sequence c1"):
        world.committer().prepare(sequence, world.epoch())
    assert world.store.load_sequences(JOB) == []


def test_full_disk_leaves_the_sequence_for_the_next_run() -> None:
    world = World()
    sequence, epoch = _prepared(world)
    with pytest.raises(StorageError, match=f"Dataset 'a': cannot publish .* at {ROOT}/main/c1-1.txt: No space left"):
        _failing_at(world, "storage.move", _no_space).publish(sequence, epoch, verify_sources=False)
    assert world.state_of(sequence) is SequenceState.PREPARED
    recovery = world.committer().recover(world.stored(sequence), epoch)
    assert (recovery.outcome, recovery.reason) == (SequenceState.COMMITTED, "")


def test_gravest_error_of_several_decides() -> None:
    world = World()
    units = [world.unit(number=n, low=n, high=n + 1) for n in range(STEPS_PER_CHUNK + 1)]
    sequence, epoch = _prepared(world, world.sequence(units=units))
    world.storage.delete(_source(sequence, 0))
    last = sequence.files[-1].path
    world.storage.put_if_absent(last, b"an older file")
    with pytest.raises(QuarantinedError):
        world.committer().publish(sequence, epoch, verify_sources=False)
    assert world.storage.read(last) == b"an older file"


def test_failure_after_the_commit_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    sequence, epoch = _prepared(world)
    _failing_at(world, "storage.put_if_absent", _no_space).publish(sequence, epoch, verify_sources=False)
    assert world.state_of(sequence) is SequenceState.COMMITTED
    assert "Dataset 'a' is committed; cleaning up is left to a later run" in caplog.text
    assert world.storage.size(manifest_path(ROOT, JOB, "a", 1)) is None
    world.committer().recover(world.stored(sequence), epoch)
    assert world.storage.size(manifest_path(ROOT, JOB, "a", 1)) is not None


# -- lost answers ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("done", [True, False], ids=["was committed", "was rolled back"])
def test_lost_answer_of_the_commit_is_looked_up(done: bool) -> None:
    world = World()
    sequence, epoch = _prepared(world)
    _failing_at(world, "store.commit", _unknown(done)).publish(sequence, epoch, verify_sources=False)
    assert world.state_of(sequence) is SequenceState.COMMITTED
    assert world.state() == sequence.after


def test_lost_answer_that_cannot_be_looked_up_touches_nothing() -> None:
    world = World()
    sequence, epoch = _prepared(world)

    def both(name: str, call: Callable[[], Any]) -> Any:
        raise TransientError(problem="the store is away")

    class Points(FaultPoints):
        def pass_through(self, name: str, call: Callable[[], Any]) -> Any:
            if name == "store.commit":
                return _unknown(True)(name, call)
            return both(name, call) if name == "store.load_sequence" else call()

    committer = Committer(counted_store(world.store, Points()), world.storage)
    with pytest.raises(CommitStateUnknownError):
        committer.publish(sequence, epoch, verify_sources=False)
    assert world.visible() == ["main/c1-1.txt"]
    assert world.storage.list_names(staging("c1")) != []


def test_lost_answer_of_a_sequence_that_was_quarantined_meanwhile_stays_unknown() -> None:
    world = World()
    sequence, epoch = _prepared(world)

    def act(name: str, call: Callable[[], Any]) -> Any:
        world.store.quarantine(sequence.id, "a person said so")
        return _unknown(False)(name, call)

    with pytest.raises(CommitStateUnknownError):
        _failing_at(world, "store.commit", act).publish(sequence, epoch, verify_sources=False)
    assert world.state() is None


# -- other runs --------------------------------------------------------------------------------------------------------
def _taken_over(world: World) -> int:
    world.clock.instant = world.clock.instant.replace(hour=9)
    return world.epoch("a", "run-2")


def test_sequence_that_another_run_finished_counts_as_ours() -> None:
    world = World()
    sequence, epoch = _prepared(world)
    world.committer().recover(world.stored(sequence), _taken_over(world))
    world.committer().publish(sequence, epoch, verify_sources=False)
    assert world.visible() == ["main/c1-1.txt"]


def test_run_whose_lease_was_taken_over_cannot_commit() -> None:
    world = World()
    sequence, epoch = _prepared(world)
    _taken_over(world)
    with pytest.raises(StaleEpochError):
        world.committer().publish(sequence, epoch, verify_sources=False)
    assert world.state_of(sequence) is SequenceState.PREPARED


def test_stale_run_that_finds_its_files_taken_away_cannot_undo() -> None:
    world = World()
    sequence, epoch = _prepared(world)
    _taken_over(world)
    world.storage.delete(_source(sequence))
    with pytest.raises(StaleEpochError):
        world.committer().publish(sequence, epoch, verify_sources=False)
    assert world.state_of(sequence) is SequenceState.PREPARED


def test_published_files_that_were_compacted_since_do_not_make_a_frozen_run_fail() -> None:
    world = World()
    sequence, epoch = _prepared(world)
    world.committer().recover(world.stored(sequence), _taken_over(world))
    world.storage.delete(sequence.files[0].path)
    world.storage.put_if_absent(sequence.files[0].path, b"compacted")
    world.committer().publish(sequence, epoch, verify_sources=False)
    assert world.storage.read(sequence.files[0].path) == b"compacted"


@pytest.mark.parametrize("is_committed", [True, False])
def test_state_changed_past_the_protocol_is_quarantined(is_committed: bool) -> None:
    world = World()
    sequence, epoch = _prepared(world)

    def act(name: str, call: Callable[[], Any]) -> Any:
        if is_committed:
            call()
        raise WatermarkMovedError(dataset_urn="a", expected=0, found=7)

    committer = _failing_at(world, "store.commit", act)
    if is_committed:
        committer.publish(sequence, epoch, verify_sources=False)
        return
    with pytest.raises(QuarantinedError, match="the store holds 7"):
        committer.publish(sequence, epoch, verify_sources=False)
    assert world.state_of(sequence) is SequenceState.QUARANTINED


# -- undo --------------------------------------------------------------------------------------------------------------
def _two(world: World) -> CommitSequence:
    return world.sequence(units=[world.unit(), world.unit(number=2, low=10, high=20)])


def test_lost_source_undoes_the_whole_sequence() -> None:
    world = World()
    sequence, epoch = _prepared(world, _two(world))
    world.storage.delete(_source(sequence, 1))
    with pytest.raises(StagedFileLostError, match="is gone"):
        world.committer().publish(sequence, epoch, verify_sources=False)
    assert world.state_of(sequence) is SequenceState.ABORTED
    assert world.visible() == []
    assert world.storage.list_names(staging("c1")) == []
    assert world.state() is None


def test_recovery_finds_a_damaged_source_that_a_fresh_run_would_trust() -> None:
    world = World()
    sequence, epoch = _prepared(world, _two(world))
    content = world.storage.read(_source(sequence, 1))
    world.storage.delete(_source(sequence, 1))
    world.storage.put_if_absent(_source(sequence, 1), content[::-1])
    recovery = world.committer().recover(world.stored(sequence), epoch)
    assert recovery.outcome is SequenceState.ABORTED
    assert "are not the" in recovery.reason
    assert world.visible() == []


def test_undo_that_fails_is_finished_by_the_next_run() -> None:
    world = World()
    sequence, epoch = _prepared(world, _two(world))
    world.storage.delete(_source(sequence, 1))
    with pytest.raises(StorageError):
        _failing_at(world, "storage.delete", _no_space).publish(sequence, epoch, verify_sources=False)
    assert world.state_of(sequence) is SequenceState.ABORTING
    recovery = world.committer().recover(world.stored(sequence), epoch)
    assert (recovery.outcome, world.visible()) == (SequenceState.ABORTED, [])
    again = world.committer().recover(world.stored(sequence), epoch)
    assert again.outcome is SequenceState.ABORTED


def test_undo_of_a_sequence_that_never_came_to_make_its_folders() -> None:
    world = World()
    sequence, epoch = _prepared(world)
    world.storage.delete_tree(staging("c1"))
    world.store.start_abort(sequence.id, epoch, "staging is lost")
    assert world.committer().recover(world.stored(sequence), epoch).outcome is SequenceState.ABORTED
    assert world.storage.list_names(f"{ROOT}/main") == []


def test_copying_storage_is_never_undone_by_itself() -> None:
    world = World()
    sequence, epoch = _prepared(world)
    world.storage.is_move_atomic = False
    world.storage.delete(_source(sequence))
    with pytest.raises(QuarantinedError, match="Moves of this storage are copies"):
        world.committer().publish(sequence, epoch, verify_sources=False)


def test_sequence_with_foreign_steps_is_never_undone_by_itself() -> None:
    world = World()
    plain = _two(world)
    sequence, epoch = _prepared(world, replace(plain, steps=(*plain.steps, MarkStep(f"{ROOT}/mark"))))
    world.storage.delete(_source(sequence, 1))
    with pytest.raises(QuarantinedError, match="steps that cannot be undone"):
        world.committer().publish(sequence, epoch, verify_sources=False)


@pytest.mark.parametrize("case", ["other bytes", "named by a snapshot", "no commit id"])
def test_undo_deletes_nothing_that_is_not_provably_ours(case: str) -> None:
    world = World()
    plain = _two(world)
    if case == "no commit id":
        renames = [step for step in plain.steps if isinstance(step, RenameFileStep)]
        nameless = tuple(replace(step, target=f"{ROOT}/main/part-{n}") for n, step in enumerate(renames))
        plain = replace(plain, steps=nameless)
    sequence, epoch = _prepared(world, plain)
    first = sequence.steps[0]
    assert isinstance(first, RenameFileStep)
    world.storage.make_dirs(posixpath.dirname(first.target))
    world.storage.move(first.source, first.target)
    world.store.start_abort(sequence.id, epoch, "a file is lost")
    if case == "other bytes":
        world.storage.delete(first.target)
        world.storage.put_if_absent(first.target, b"an older file")
    kept = world.storage.read(first.target)
    committer = world.committer()
    if case == "named by a snapshot":

        def named(name: str, call: Callable[[], Any]) -> Any:
            return list(sequence.files)

        committer = _failing_at(world, "store.load_snapshot", named)
    recovery = committer.recover(world.stored(sequence), epoch)
    assert recovery.outcome is SequenceState.QUARANTINED
    assert world.storage.read(first.target) == kept


# -- recovery ----------------------------------------------------------------------------------------------------------
def test_recovery_tells_what_was_done_and_what_it_did() -> None:
    world = World()
    sequence, epoch = _prepared(world, _two(world))
    first = sequence.steps[0]
    assert isinstance(first, RenameFileStep)
    world.storage.make_dirs(posixpath.dirname(first.target))
    first.execute(world.storage)
    recovery = world.committer().recover(world.stored(sequence), epoch)
    assert (recovery.outcome, recovery.steps_done, recovery.steps_redone) == (SequenceState.COMMITTED, 1, 1)


def test_redo_that_raises_anything_is_counted() -> None:
    world = World()
    sequence, epoch = _prepared(world)

    def odd(name: str, call: Callable[[], Any]) -> Any:
        raise ValueError("odd")

    for expected in (SequenceState.PREPARED, SequenceState.PREPARED, SequenceState.QUARANTINED):
        recovery = _failing_at(world, "storage.move", odd).recover(world.stored(sequence), epoch)
        assert recovery.outcome is expected
    assert "3 redos failed, the last one with: odd" in recovery.reason
    stays = world.committer().recover(world.stored(sequence), epoch)
    assert stays.outcome is SequenceState.QUARANTINED


def test_store_that_is_away_stops_no_other_recovery() -> None:
    world = World()
    sequence, epoch = _prepared(world)

    def away(name: str, call: Callable[[], Any]) -> Any:
        raise TransientError(problem="the store is away")

    (recovery,) = _failing_at(world, "store.commit", away).recover_all([(world.stored(sequence), epoch)])
    assert (recovery.outcome, recovery.reason) == (SequenceState.PREPARED, "the store is away")
    assert world.stored(sequence).redo_failures == 0


@pytest.mark.parametrize("is_given_up", [True, False])
def test_recovery_that_wakes_after_its_sequence_was_put_aside_says_so(*, is_given_up: bool) -> None:
    world = World()
    sequence, epoch = _prepared(world)
    stored = world.stored(sequence)

    def frozen(name: str, call: Callable[[], Any]) -> Any:
        world.store.quarantine(stored.id, "by a person")
        if is_given_up:
            world.store.abandon(stored.id, epoch, "by a person")
        return call()

    (recovery,) = _failing_at(world, "store.commit", frozen).recover_all([(stored, epoch)])
    assert recovery.outcome is (SequenceState.ABORTED if is_given_up else SequenceState.QUARANTINED)
    assert "was ended or put aside meanwhile" in recovery.reason


def test_sequence_that_the_store_forgot_is_an_error() -> None:
    world = World()
    sequence = world.sequence()
    with pytest.raises(CorruptRecordError, match="c1"):
        world.committer().publish(sequence, world.epoch(), verify_sources=False)


def test_recovering_what_is_finished_changes_nothing() -> None:
    world = World()
    sequence = world.sequence()
    epoch = world.epoch()
    assert world.committer().publish_all([(sequence, epoch)]) == {"a": None}
    before = (world.visible(), world.state())
    for _ in range(3):
        assert world.committer().recover(world.stored(sequence), epoch).outcome is SequenceState.COMMITTED
    assert (world.visible(), world.state()) == before


def test_sequence_whose_type_of_watermark_is_not_here_waits_for_it() -> None:
    world = World()
    sequence, epoch = _prepared(world)
    stored = world.stored(sequence)
    body = stored.body.replace('"type":"long"', '"type":"weeks_of_ours:Week"')
    foreign = replace(stored, body=body, digest=body_digest(body))
    recovery = world.committer().recover(foreign, epoch)
    assert recovery.outcome is world.state_of(sequence) is SequenceState.PREPARED
    assert (
        "The watermark type 'weeks_of_ours:Week' cannot be loaded: No module named 'weeks_of_ours'" in recovery.reason
    )
    assert world.committer().recover(stored, epoch).outcome is SequenceState.COMMITTED


def test_damaged_record_is_quarantined_and_touches_no_file() -> None:
    world = World()
    sequence, epoch = _prepared(world)
    torn = replace(world.stored(sequence), body="{")
    recovery = world.committer().recover(torn, epoch)
    assert recovery.outcome is world.state_of(sequence) is SequenceState.QUARANTINED
    assert "does not match its digest" in recovery.reason
    assert world.storage.size(_source(sequence)) is not None
