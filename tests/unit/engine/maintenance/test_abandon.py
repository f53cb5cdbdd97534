from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gobblin_dagster.core.commit import CommitSequence, CommitStep, SequenceState
from gobblin_dagster.core.errors import StaleEpochError, UsageError
from gobblin_dagster.engine.commit.listener import SilentListener
from gobblin_dagster.engine.commit.steps import renames_of
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.maintenance.abandon import abandon_sequence, preview_abandonment
from gobblin_dagster.engine.maintenance.verify import verify
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.engine.run.recovery import recover_job
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.unit.constructs.publishers.table_jobs import at_commit
from tests.unit.engine.commit.world import ROOT, World
from tests.unit.engine.jobs import job_spec, project


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


def test_file_that_a_table_may_list_is_no_file_to_delete(tmp_path: Path) -> None:
    """A commit that failed after the table had got its file is given up: without it nobody can read the table."""
    job = job_spec({"a": {"rows": 5}}, publisher={"type": "delta"}, fork={"branches": [{"name": "one"}]})
    opened = project(tmp_path, job)
    with pytest.MonkeyPatch.context() as patched:
        at_commit(patched)
        run_job(opened, job, runner=InlineRunner())
    (file,) = (tmp_path / "lake/test").rglob("one/a/*.parquet")
    with closing(opened.open_store()) as store:
        (stored,) = store.load_sequences("numbers")
        assert abandon_sequence(opened, store, stored.id).state is SequenceState.QUARANTINED
        shown = preview_abandonment(opened, store, stored.id)
        given_up = abandon_sequence(opened, store, stored.id)
        (difference,) = verify(opened, job, store=store).extra
    assert shown.in_tables == given_up.in_tables == given_up.orphans == (str(file),)
    assert (difference.path, "keep it if the table lists it" in difference.detail) == (str(file), True)


def test_files_of_a_sequence_that_cannot_be_read_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A commit was killed after it had moved its files, and its record is damaged: readers of folders see the files."""
    job = job_spec({"a": {"rows": 5}})

    class Die(SilentListener):
        def step_done(self, sequence: CommitSequence, step: CommitStep, number: int) -> None:
            raise KeyboardInterrupt

    opened = project(tmp_path, job)
    with pytest.raises(KeyboardInterrupt):
        run_job(opened, job, runner=InlineRunner(), commit_listener=Die())
    (file,) = (tmp_path / "lake/test").rglob("*.parquet")
    with closing(opened.open_store()) as store:
        (stored,) = store.load_sequences("numbers")
        with closing(sqlite3.connect(tmp_path / ".gobblin/state.db")) as database, database:
            database.execute("UPDATE gobblin_sequences SET body = '{}'")
        recover_job(JobContext.of(opened, job, store))
        (damaged,) = store.load_sequences("numbers", {SequenceState.QUARANTINED})
        assert damaged.id == stored.id
        shown = preview_abandonment(opened, store, stored.id).orphans
        abandoned = abandon_sequence(opened, store, stored.id)
    assert shown == abandoned.orphans == (str(file),)
    assert f"No table or topic could note that commit {stored.id} is abandoned: " in caplog.text
