from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gobblin_dagster.core.commit import SequenceState
from gobblin_dagster.core.errors import StepRefusedError
from gobblin_dagster.core.places import AS_STORED
from gobblin_dagster.engine.commit import build
from gobblin_dagster.engine.commit.codec import encode_sequence
from gobblin_dagster.engine.commit.steps import (
    RenameFilesStep,
    RenameFileStep,
    rename_steps,
    renames_of,
    step_from_json,
    step_to_json,
)
from tests.unit.engine.commit.world import ROOT, World, staging


def _many(world: World, count: int) -> list[Any]:
    return [world.unit(number=number, low=10 * number, high=10 * number + 10) for number in range(count)]


@pytest.fixture
def batched(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(build, "BATCH_ABOVE_FILES", 4)
    monkeypatch.setattr(build, "BATCH_FILES", 3)
    return World()


def test_many_files_share_steps_and_a_smaller_body(batched: World, monkeypatch: pytest.MonkeyPatch) -> None:
    units = _many(batched, 8)
    sequence = batched.sequence(units=units)
    assert [len(step.files) for step in sequence.steps if isinstance(step, RenameFilesStep)] == [3, 3, 2]
    monkeypatch.setattr(build, "BATCH_ABOVE_FILES", 8)
    single = batched.sequence(units=units)
    assert list(renames_of(sequence.steps)) == list(single.steps)
    sizes = [len(json.dumps([step_to_json(step) for step in one.steps])) for one in (sequence, single)]
    assert sizes[0] < 0.65 * sizes[1]


def test_batch_survives_json(batched: World) -> None:
    step = batched.sequence(units=_many(batched, 5)).steps[0]
    assert step_from_json(step_to_json(step)) == step
    assert step.describe() == f"rename 3 files of {staging('c1')} to {ROOT} (77 bytes)"


def test_batch_is_published_like_single_files(batched: World) -> None:
    sequence = batched.sequence(units=_many(batched, 8))
    assert batched.committer().publish_all([(sequence, batched.epoch())]) == {"a": None}
    assert batched.visible() == sorted(f"main/c1-{number}.txt" for number in range(8))
    assert all(step.verify(batched.storage) for step in sequence.steps)


def test_half_a_batch_is_finished_after_a_crash(batched: World) -> None:
    sequence = batched.sequence(units=_many(batched, 8))
    epoch = batched.epoch()
    committer = batched.committer()
    committer.prepare(sequence, epoch)
    batched.storage.make_dirs(f"{ROOT}/main")
    for rename in list(renames_of(sequence.steps))[:4]:
        rename.execute(batched.storage)
    recovery = committer.recover(batched.stored(sequence), epoch)
    assert (recovery.outcome, recovery.steps_done, recovery.steps_redone) == (SequenceState.COMMITTED, 1, 2)
    assert len(batched.visible()) == 8


def test_batch_with_a_lost_file_is_undone_whole(batched: World) -> None:
    sequence = batched.sequence(units=_many(batched, 8))
    epoch = batched.epoch()
    batched.committer().prepare(sequence, epoch)
    batched.storage.delete(next(renames_of(sequence.steps[-1:])).source)
    recovery = batched.committer().recover(batched.stored(sequence), epoch)
    assert recovery.outcome is SequenceState.ABORTED
    assert batched.visible() == []


@pytest.mark.parametrize("path", ["../../etc/c1-passwd", "_gobblin/c1", "main/../../c1"])
def test_batch_that_leaves_the_output_is_refused(batched: World, path: str) -> None:
    sequence = batched.sequence(units=_many(batched, 5))
    step = sequence.steps[0]
    assert isinstance(step, RenameFilesStep)
    evil = replace(step, files=((path, 1, "0" * 64),))
    with pytest.raises(StepRefusedError):
        batched.committer().prepare(replace(sequence, steps=(evil,)), batched.epoch())
    assert batched.store.load_sequence(sequence.id) is None


@pytest.mark.parametrize(
    ("pairs", "shape"),
    [
        ([("/s/a/x", "/t/a/x"), ("/s/b/y", "/t/b/y")], [2]),
        ([("/s/1/a/x", "/t/a/x"), ("/s/2/a/y", "/t/a/y")], [1, 1]),
        ([("/s/x", "/t/y")], ["/t/y"]),
        ([("/s/x", "/t/x"), ("/s/p", "/t/q"), ("/s/z", "/t/z")], [1, "/t/q", 1]),
    ],
    ids=["one tree", "a tree per attempt", "another name", "mixed"],
)
def test_files_are_grouped_by_their_trees(pairs: Sequence[tuple[str, str]], shape: list[int | str]) -> None:
    renames = [RenameFileStep(source, target, 1, "0" * 64) for source, target in pairs]
    steps = rename_steps(renames, 10)
    assert [len(s.files) if isinstance(s, RenameFilesStep) else getattr(s, "target", "") for s in steps] == shape
    assert list(renames_of(steps)) == renames


def test_stored_batch_is_found_by_its_digest(batched: World) -> None:
    stored = encode_sequence(batched.sequence(units=_many(batched, 8)), AS_STORED)
    damaged = replace(stored, body=stored.body.replace("c1-3", "c1-4", 1))
    epoch = batched.epoch()
    batched.store.prepare(stored, epoch)
    assert batched.committer().recover(damaged, epoch).outcome is SequenceState.QUARANTINED
