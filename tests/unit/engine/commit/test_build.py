from __future__ import annotations

from dataclasses import replace

import pytest

from gobblin_dagster.core.dataset_state import Totals
from gobblin_dagster.core.errors import RangeOverlapError, StepRefusedError, UsageError
from gobblin_dagster.core.task_state import WorkingState
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.engine.commit.steps import RenameFileStep
from tests.unit.engine.commit.world import ROOT, World, staging


def test_first_sequence_of_a_dataset() -> None:
    world = World()
    unit = world.unit(branches=("main", "copy"), rows_filtered=2, rows_rejected={"r": 3}, schemas={"main": "n: int64"})
    sequence = world.sequence(units=[unit])
    assert [step.describe().split()[3] for step in sequence.steps] == [f"{ROOT}/main/c1-1.txt", f"{ROOT}/copy/c1-1.txt"]
    assert {(file.branch, file.path, file.snapshot) for file in sequence.files} == {
        ("main", f"{ROOT}/main/c1-1.txt", 1),
        ("copy", f"{ROOT}/copy/c1-1.txt", 1),
    }
    after = sequence.after
    assert (after.version, after.snapshot, after.watermark) == (1, 1, LongWatermark(10))
    assert sequence.version_read == 0
    assert after.schemas == {"main": "n: int64"}
    assert after.totals == Totals(
        rows_read=10,
        rows_filtered=2,
        rows_rejected=3,
        branch_rows={"copy": 10, "main": 10},
        files=2,
        bytes_written=sum(file.size_bytes for file in unit.files),
    )


def test_next_sequence_adds_to_the_state() -> None:
    world = World()
    first = world.sequence(units=[world.unit(schemas={"main": "old", "copy": "kept"})])
    assert world.committer().publish_all([(first, world.epoch())]) == {"a": None}
    unit = world.unit("c2", low=10, high=15, schemas={"main": "new"})
    after = world.sequence("c2", units=[unit]).after
    assert (after.version, after.snapshot, after.watermark) == (2, 2, LongWatermark(15))
    assert (after.totals.rows_read, after.totals.files) == (15, 2)
    assert after.schemas == {"main": "new", "copy": "kept"}


def test_sequence_without_files_moves_the_watermark_only() -> None:
    world = World()
    sequence = world.sequence(units=[world.unit(branches=())])
    assert (sequence.steps, sequence.files) == ((), ())
    assert (sequence.after.version, sequence.after.snapshot) == (1, 0)
    assert world.committer().publish_all([(sequence, world.epoch())]) == {"a": None}
    state = world.state()
    assert state is not None
    assert state.watermark == LongWatermark(10)


def test_failed_units_are_named_and_leave_a_gap() -> None:
    world = World()
    units = [world.unit(low=5, high=10), world.unit(number=2, low=0, high=5, state=WorkingState.FAILED)]
    after = world.sequence(units=units, planned_low=LongWatermark(0)).after
    assert after.failed_ranges == ("[0, 5)",)
    assert after.watermark == LongWatermark(0)
    assert after.committed.gaps() == ((0, 5),)


def test_range_committed_before_is_refused() -> None:
    world = World()
    assert world.committer().publish_all([(world.sequence(), world.epoch())]) == {"a": None}
    with pytest.raises(RangeOverlapError, match=r"\[9, 12\)"):
        world.sequence("c2", units=[world.unit("c2", low=9, high=12)])


def test_nothing_to_publish_is_refused() -> None:
    with pytest.raises(UsageError, match="no work unit to publish"):
        World().sequence(units=[])


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("main/part.txt", "lacks the commit id"),
        ("c1/part.txt", "lacks the commit id"),
        ("/elsewhere/c1.txt", "relative"),
        ("../c1.txt", "must lie below"),
        ("main/../../c1.txt", "must lie below"),
        ("main//c1.txt", "must lie below"),
        ("_gobblin/c1.txt", "must lie below"),
        ("_gobblin/manifests/job/a/c1.txt", "must lie below"),
    ],
)
def test_target_that_is_not_ours_is_refused(target: str, problem: str) -> None:
    world = World()
    unit = world.unit()
    with pytest.raises(StepRefusedError, match=problem):
        world.sequence(units=[replace(unit, files=(replace(unit.files[0], target=target),))])


@pytest.mark.parametrize("path", ["/etc/passwd", f"{ROOT}/main/f", f"{staging('c1')}/../c2/f", f"{staging('c1')}/.."])
def test_source_outside_of_staging_is_refused(path: str) -> None:
    world = World()
    unit = world.unit()
    with pytest.raises(StepRefusedError, match="no staging folder"):
        world.sequence(units=[replace(unit, files=(replace(unit.files[0], path=path),))])


def test_two_files_of_one_target_are_refused() -> None:
    world = World()
    unit = world.unit()
    with pytest.raises(StepRefusedError, match=r"main/c1-1.txt.*two staged files"):
        world.sequence(units=[replace(unit, files=unit.files * 2)])


@pytest.mark.parametrize("folder", [ROOT, "/", f"{ROOT}/_gobblin", f"{ROOT}/_gobblin/manifests", f"{ROOT}/main"])
def test_staging_folder_whose_deletion_would_harm_is_refused(folder: str) -> None:
    world = World()
    sequence = replace(world.sequence(), staging_dirs=(folder,))
    with pytest.raises(StepRefusedError, match="a staging folder must lie inside"):
        world.committer().prepare(sequence, world.epoch())
    assert isinstance(sequence.steps[0], RenameFileStep)
    assert world.storage.size(sequence.steps[0].source) is not None
