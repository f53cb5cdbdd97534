from __future__ import annotations

import pytest

from gobblin_dagster.core.commit import CommitSequence, SequenceState
from gobblin_dagster.core.errors import StaleEpochError, UsageError
from gobblin_dagster.engine.commit.steps import renames_of
from tests.unit.engine.commit.world import ROOT, World


def _prepared(world: World) -> tuple[CommitSequence, int]:
    sequence, epoch = world.sequence(units=[world.unit(branches=("main", "copy"))]), world.epoch()
    world.committer().prepare(sequence, epoch)
    return sequence, epoch


def _abandon(world: World, sequence: CommitSequence, epoch: int) -> SequenceState:
    return world.committer().abandon(world.stored(sequence), epoch, "abandoned by ann")


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_unfinished_sequence_is_undone_and_its_rows_are_published_by_the_next_run(moved: int) -> None:
    world = World()
    sequence, epoch = _prepared(world)
    for branch in ("main", "copy"):
        world.storage.make_dirs(f"{ROOT}/{branch}")
    for rename in list(renames_of(sequence.steps))[:moved]:
        rename.execute(world.storage)
    assert _abandon(world, sequence, epoch) is SequenceState.ABORTED
    assert (world.visible(), world.stored(sequence).reason) == ([], "abandoned by ann")
    assert world.committer().publish_all([(world.sequence("c2"), epoch)]) == {"a": None}


def test_abort_under_way_is_finished() -> None:
    world = World()
    sequence, epoch = _prepared(world)
    world.store.start_abort(sequence.id, epoch, "staging is lost")
    assert _abandon(world, sequence, epoch) is SequenceState.ABORTED


def test_quarantined_sequence_is_marked_and_every_file_stays() -> None:
    world = World()
    sequence, epoch = _prepared(world)
    world.storage.make_dirs(f"{ROOT}/main")
    next(renames_of(sequence.steps)).execute(world.storage)
    world.store.quarantine(sequence.id, "a file is in the way")
    before = list(world.storage.walk_files(ROOT))
    assert _abandon(world, sequence, epoch) is SequenceState.ABORTED
    assert list(world.storage.walk_files(ROOT)) == before
    reason = world.stored(sequence).reason
    assert reason == "abandoned by ann; it was quarantined because: a file is in the way"
    assert world.committer().publish_all([(world.sequence("c2"), epoch)]) == {"a": None}


def test_sequence_that_cannot_be_undone_safely_is_quarantined_and_then_marked() -> None:
    world = World()
    sequence, epoch = _prepared(world)
    world.storage.make_dirs(f"{ROOT}/main")
    world.storage.put_if_absent(next(renames_of(sequence.steps)).target, b"of somebody else")
    assert _abandon(world, sequence, epoch) is SequenceState.QUARANTINED
    assert _abandon(world, sequence, epoch) is SequenceState.ABORTED
    assert world.visible() == ["main/c1-1.txt"]


def test_sequence_that_ended_is_refused() -> None:
    world = World()
    sequence, epoch = _prepared(world)
    world.committer().publish(sequence, epoch, verify_sources=False)
    with pytest.raises(UsageError, match="has ended as committed"):
        _abandon(world, sequence, epoch)
    assert len(world.visible()) == 2


def test_dataset_that_another_run_took_over_is_left_alone() -> None:
    world = World()
    sequence, epoch = _prepared(world)
    with pytest.raises(StaleEpochError):
        _abandon(world, sequence, epoch - 1)
    assert world.state_of(sequence) is SequenceState.PREPARED
