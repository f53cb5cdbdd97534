"""Files moved elsewhere than on the driver, here by an executor that runs the tasks' own code in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from gobblin_dagster.core.commit import CommitSequence, CommitStep, SequenceState
from gobblin_dagster.core.errors import StagedFileLostError, StorageError, TransientError
from gobblin_dagster.engine.commit import step_runner
from gobblin_dagster.engine.commit.listener import SilentListener
from gobblin_dagster.engine.commit.step_distribution import StepDistribution, StepExecutor, run_batches_in_arrow
from gobblin_dagster.engine.commit.steps import renames_of
from gobblin_dagster.storage import LocalStorage
from tests.unit.engine.commit import world as world_module
from tests.unit.engine.commit.world import World


class TasksHere:
    """Gives each batch to a task of its own, as Spark would."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.is_lost = False

    def execute_batches(self, paths: Sequence[str], output_root: str, *, verify_content: bool) -> list[str]:
        self.batches.append(len(paths))
        done = []
        for number in range(len(paths)):
            task = pa.RecordBatch.from_pydict({"id": [number]})
            [result] = run_batches_in_arrow(paths, output_root, verify_content, iter([task]))
            done += result.column("result").to_pylist()
            if self.is_lost:
                raise TransientError(problem="an executor was lost")
        return done


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> TasksHere:
    monkeypatch.setattr(step_runner, "FILES_PER_BATCH", 3)
    monkeypatch.setattr(world_module, "ROOT", str(tmp_path / "lake"))
    return TasksHere()


def _world(files: int) -> tuple[World, CommitSequence, int]:
    world = World(LocalStorage(durable=False))
    units = [world.unit(number=number, low=10 * number, high=10 * number + 10) for number in range(files)]
    return world, world.sequence(units=units), world.epoch()


def test_files_from_the_threshold_on_are_moved_by_tasks(tasks: TasksHere) -> None:
    world, sequence, epoch = _world(8)
    numbers: list[int] = []

    class Watch(SilentListener):
        def step_done(self, sequence: CommitSequence, step: CommitStep, number: int) -> None:
            numbers.append(number)

    committer = world.committer(spread=StepDistribution(tasks, 8), listener=Watch())
    assert committer.publish_all([(sequence, epoch)]) == {"a": None}
    assert (tasks.batches, numbers) == ([3], [3, 6, 8])
    assert all(step.verify(world.storage) for step in sequence.steps)
    assert isinstance(tasks, StepExecutor)


def test_fewer_files_stay_on_the_driver(tasks: TasksHere) -> None:
    world, sequence, epoch = _world(7)
    assert world.committer(spread=StepDistribution(tasks, 8)).publish_all([(sequence, epoch)]) == {"a": None}
    assert tasks.batches == []


def test_lost_tasks_are_finished_by_the_next_run(tasks: TasksHere) -> None:
    world, sequence, epoch = _world(8)
    committer = world.committer(spread=StepDistribution(tasks, 1))
    tasks.is_lost = True
    errors = committer.publish_all([(sequence, epoch)])
    assert isinstance(errors["a"], TransientError)
    assert world.state() is None
    tasks.is_lost = False
    recovery = committer.recover(world.stored(sequence), epoch)
    assert (recovery.outcome, recovery.steps_done, recovery.steps_redone) == (SequenceState.COMMITTED, 3, 5)
    assert all(step.verify(world.storage) for step in sequence.steps)


def test_file_lost_in_a_task_undoes_the_sequence(tasks: TasksHere) -> None:
    world, sequence, epoch = _world(8)
    committer = world.committer(spread=StepDistribution(tasks, 1))
    committer.prepare(sequence, epoch)
    world.storage.delete(list(renames_of(sequence.steps))[4].source)
    with pytest.raises(StagedFileLostError, match="c1-4"):
        committer.publish(sequence, epoch, verify_sources=True)
    assert world.state_of(sequence) is SequenceState.ABORTED
    assert not any(step.verify(world.storage) for step in sequence.steps)


def test_trouble_of_the_storage_in_a_task_is_told(tasks: TasksHere) -> None:
    world, sequence, epoch = _world(8)
    committer = world.committer(spread=StepDistribution(tasks, 1))
    committer.prepare(sequence, epoch)
    source = Path(next(renames_of(sequence.steps)).source)
    source.parent.rename(source.parent.with_name("elsewhere"))
    source.parent.write_text("a file where the folder should be")
    with pytest.raises(StorageError, match="Not a directory"):
        committer.publish(sequence, epoch, verify_sources=True)
    assert world.state_of(sequence) is SequenceState.PREPARED


def test_file_that_is_not_ours_quarantines_from_a_task_too(tasks: TasksHere) -> None:
    world, sequence, epoch = _world(8)
    committer = world.committer(spread=StepDistribution(tasks, 1))
    committer.prepare(sequence, epoch)
    target = Path(list(renames_of(sequence.steps))[5].target)
    target.parent.mkdir(parents=True)
    target.write_text("of somebody else")
    assert committer.recover(world.stored(sequence), epoch).outcome is SequenceState.QUARANTINED
