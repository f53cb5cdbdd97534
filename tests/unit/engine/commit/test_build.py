from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta

import pytest

from gobblin_dagster.core.dataset_state import DatasetState, Pace, Rollback, Totals
from gobblin_dagster.core.errors import RangeOverlapError, StepRefusedError, UsageError
from gobblin_dagster.core.row_mark import RowMark
from gobblin_dagster.core.task_state import WorkingState
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.engine.commit.build import build_sequence
from gobblin_dagster.engine.commit.policy import choose_publishable
from gobblin_dagster.engine.commit.steps import RenameFileStep
from tests.unit.engine.commit.world import JOB, NOW, ROOT, World, staging


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


BEFORE = DatasetState(
    job=JOB,
    dataset_urn="a",
    version=7,
    committed=CommittedRanges(LongWatermark, {"": ((0, 10),)}),
    snapshot=6,
    run_id="an earlier run",
    updated_at=NOW - timedelta(days=1),
    totals=Totals(1, 2, 3, 4, 5, {"main": 6, "copy": 1}, 7, 8, 9),
    schemas={"main": "old", "copy": "kept"},
    failed_ranges=("[3, 4)",),
    generation=2,
    rollbacks=(Rollback(5, to=3),),
    oldest_snapshot=2,
    given_up=CommittedRanges(LongWatermark, {"": ((10, 20),)}),
    pace=Pace(100.0, 1000.0, 10.0),
    origin={"orders": "id 1"},
    inferred={"id": "long"},
    applied_startpoints=("wide",),
    row_marks={"t-0": RowMark(9, "a"), "t-1": RowMark(4, "b")},
    holders={"main": ("files",)},
    places={"main": ("lake/main",)},
)
MOVED = {
    "version",
    "committed",
    "snapshot",
    "run_id",
    "updated_at",
    "totals",
    "schemas",
    "failed_ranges",
    "pace",
    "origin",
    "row_marks",
}
"""Fields that a publication may change; each keeps what it held of other branches, names and ranges."""


def test_commit_keeps_every_field_of_the_state_before() -> None:
    defaults = DatasetState(JOB, "a", 0, CommittedRanges(LongWatermark, {}), 0, "", NOW)
    names = {each.name for each in fields(DatasetState)}
    unset = {name for name in names if getattr(BEFORE, name) == getattr(defaults, name)}
    assert unset == {"job", "dataset_urn"}, "give the new field a value that tells it from its default"
    world = World()
    marks = {"t-0": RowMark(5, "c"), "t-1": RowMark(6, "d")}
    units = [replace(world.unit("c2", low=20, high=24, schemas={"main": "new"}), row_marks=marks)]
    after = build_sequence(
        commit_id="c2",
        job=JOB,
        run_id="run-1",
        dataset_urn="a",
        before=BEFORE,
        decision=choose_publishable("full", units),
        output_root=ROOT,
        staging_dirs=[staging("c2")],
        now=NOW,
        origin={"returns": "id 2"},
    ).after
    changed = {name for name in names if getattr(after, name) != getattr(BEFORE, name)}
    assert changed == MOVED
    assert (after.version, after.snapshot, after.run_id, after.updated_at) == (8, 7, "run-1", NOW)
    assert after.committed.ranges == {"": ((0, 10), (20, 24))}
    assert after.totals == BEFORE.totals.plus(
        Totals(rows_read=4, branch_rows={"main": 4}, files=1, bytes_written=units[0].files[0].size_bytes)
    )
    assert (after.schemas, after.origin) == (
        {"main": "new", "copy": "kept"},
        {"orders": "id 1", "returns": "id 2"},
    )
    assert after.row_marks == {"t-0": RowMark(9, "a"), "t-1": RowMark(6, "d")}  # a gap read later moves no mark back
    assert after.failed_ranges == ()
    assert after.pace == BEFORE.pace.then(Pace(4.0, 0.0, 0.1))
