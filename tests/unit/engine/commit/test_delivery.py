"""What the two delivery semantics do where a run dies between moving files and making them true."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from gobblin_dagster.core.commit import CommitEffect, SequenceState, StoredSequence
from gobblin_dagster.core.errors import CommitStateUnknownError, StagedFileLostError
from gobblin_dagster.state.files.store import FileStateStore
from gobblin_dagster.state.sql.store import SqlStateStore
from gobblin_dagster.storage import MemoryStorage
from tests.unit.engine.commit.world import World, staging
from tests.unit.engine.jobs import job_spec, published, run


class _Died(BaseException):
    """The process is gone: nothing may catch it."""


class _DyingStore(FileStateStore):
    """Dies in the first transaction that would make a publication true."""

    has_died = False

    def commit(self, sequence_id: str, epoch: int, effect: CommitEffect) -> None:
        self._die_once()
        super().commit(sequence_id, epoch, effect)

    def record(self, sequence: StoredSequence, epoch: int, effect: CommitEffect) -> None:
        self._die_once()
        super().record(sequence, epoch, effect)

    def _die_once(self) -> None:
        if not self.has_died:
            self.has_died = True
            raise _Died


@pytest.mark.parametrize(("delivery", "copies"), [("exactly_once", 1), ("at_least_once", 2)])
def test_crash_between_rename_and_commit_duplicates_in_the_folder_only_without_write_ahead(
    delivery: Literal["exactly_once", "at_least_once"], copies: int
) -> None:
    world = World()
    world.store = _DyingStore("/state", MemoryStorage(), world.clock)
    committer = world.committer(delivery=delivery)
    with pytest.raises(_Died):
        committer.publish_all([(world.sequence("c1"), world.epoch())])
    assert world.state() is None
    # The next run finishes what it finds, and where nothing is stored it reads the same rows again.
    waiting = world.store.load_sequences()
    if waiting:
        committer.recover(waiting[0], world.epoch())
    else:
        assert committer.publish_all([(world.sequence("c2"), world.epoch())]) == {"a": None}
    assert len(world.visible()) == copies
    assert len(world.store.load_snapshot("job", "a")) == 1


def test_at_least_once_publishes_the_same_without_write_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(SqlStateStore, "prepare")
    job = job_spec({"a": {"rows": 20, "unit_rows": 5}}, commit={"delivery": "AT_LEAST_ONCE"})
    assert run(tmp_path, job).exit_code == 0
    assert run(tmp_path, job).exit_code == 0
    assert published(tmp_path, job, "a") == list(range(20))


def test_at_least_once_leaves_nothing_true_where_a_staged_file_is_lost() -> None:
    world = World()
    sequence = world.sequence()
    world.storage.delete_tree(staging("c1"))
    errors = world.committer(delivery="at_least_once").publish_all([(sequence, world.epoch())])
    assert isinstance(errors["a"], StagedFileLostError)
    assert (world.state(), world.store.load_sequences(states=set(SequenceState))) == (None, [])


@pytest.mark.parametrize("took_place", [True, False])
def test_lost_answer_is_looked_up_before_anything_is_repeated(took_place: bool) -> None:
    class Forgetful(FileStateStore):
        calls = 0

        def record(self, sequence: StoredSequence, epoch: int, effect: CommitEffect) -> None:
            self.calls += 1
            if took_place or self.calls > 1:
                super().record(sequence, epoch, effect)
            if self.calls == 1:
                raise CommitStateUnknownError(dataset_urn="a", sequence_id=sequence.id, problem="the line went dead")

    world = World()
    store = world.store = Forgetful("/state", MemoryStorage(), world.clock)
    assert world.committer(delivery="at_least_once").publish_all([(world.sequence(), world.epoch())]) == {"a": None}
    assert store.calls == (1 if took_place else 2)
    state = world.state()
    assert state is not None
    assert state.version == 1
