"""Build a commit sequence from a decision: pure, on the driver, after all work units of a dataset have ended."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from gobblin_dagster.constructs.types.wider import joined_text
from gobblin_dagster.core.commit import CommitSequence, CommitStep, loaded_bytes
from gobblin_dagster.core.constructs import PublishView
from gobblin_dagster.core.dataset_state import DatasetState, Pace, Totals
from gobblin_dagster.core.errors import StepRefusedError, UsageError
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.core.row_mark import newest_marks
from gobblin_dagster.core.task_state import StagedFile, TaskState, TaskSums, WorkingState, advance
from gobblin_dagster.core.utils.duplicates import repeated
from gobblin_dagster.core.watermark import Watermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges, WatermarkInterval
from gobblin_dagster.engine.commit.branch_publishers import BranchPublications, Move, Publishers, published_file
from gobblin_dagster.engine.commit.path_guard import check_paths
from gobblin_dagster.engine.commit.policy import Decision
from gobblin_dagster.engine.commit.steps import Permissions, RenameFileStep, SetPermissionsStep, rename_steps

BATCH_ABOVE_FILES = 1000
"""Number of files of a dataset above which one step moves many of them."""
BATCH_FILES = 250
"""Number of files that such a step moves. A redo repeats whole steps, and threads and Spark tasks share steps."""
NO_PERMISSIONS = Permissions()
_APPEND_ALL = Publishers()
_UNNAMED = Extract("", "")


def build_sequence(
    *,
    commit_id: str,
    job: str,
    run_id: str,
    dataset_urn: str,
    before: DatasetState | None,
    decision: Decision,
    planned_low: Watermark | None = None,
    output_root: str,
    staging_dirs: Sequence[str],
    now: datetime,
    permissions: Permissions = NO_PERMISSIONS,
    extract: Extract = _UNNAMED,
    publishers: Publishers = _APPEND_ALL,
    origin: Mapping[str, str] | None = None,
    inferred: Mapping[str, str] | None = None,
) -> CommitSequence:
    """Return the sequence that publishes a decision: one rename per published file, and the next state of the dataset.

    A sequence may have no files (its work units read no rows): then it moves only the watermark and removes the files
    that publishers remove.

    Args:
        commit_id: 128 random bits in hex; the name of every target must hold it.
        job: the job's name.
        run_id: the run that publishes.
        dataset_urn: the dataset.
        before: its state when the plan was made; None if it had none.
        decision: what to publish; must publish at least one work unit.
        planned_low: beginning of the plan; it becomes the beginning of a dataset without a state, so that a failed or
            cancelled first work unit stays a gap.
        output_root: absolute path.
        staging_dirs: absolute folders to delete at the end; used only by this dataset in this run.
        now: aware, UTC.
        permissions: mode and group of published files and folders.
        extract: the extract of the files; only publishers need it.
        publishers: the publisher of each branch; default: all files are appended.
        origin: ids of what was read, by name; ids of other names stay as they were.
        inferred: types inferred for columns, by name; types of other columns stay as they were.

    Raises:
        UsageError: there is nothing to publish.
        WorkingStateError: a work unit to publish was cancelled or skipped.
        RangeOverlapError: a work unit covers positions that were committed before.
        StepRefusedError: a target is outside of the output root, lacks the commit id in its name or appears twice; a
            source is in none of the staging folders; or a publisher plans something that it must not.
    """
    if not decision.publish:
        raise UsageError(problem=f"Dataset {dataset_urn!r} has no work unit to publish.")
    for unit in decision.publish:
        advance(unit.state, WorkingState.COMMITTED)
    now = now if before is None else before.later(now)
    root = output_root.rstrip("/")
    moves = [
        Move(file, posixpath.join(root, _checked(file, commit_id))) for unit in decision.publish for file in unit.files
    ]
    after = _after(
        job=job,
        run_id=run_id,
        dataset_urn=dataset_urn,
        before=before,
        decision=decision,
        planned_low=planned_low,
        now=now,
        origin=origin or {},
        inferred=inferred or {},
    )
    frame = PublishView(
        job=job,
        run_id=run_id,
        commit_id=commit_id,
        dataset_urn=dataset_urn,
        branch="",
        extract=extract,
        output_root=root,
        folder="",
        now=now,
        low=str((before and before.watermark) or planned_low or ""),
        high=str(after.watermark or ""),
        rows_left_out=TaskSums.of(decision.publish).rows_quarantined,
    )
    done = publishers.plan(frame, moves, after.schemas, after.snapshot + 1)
    after = _with_publication(after, before, done)
    if publishers.homes:
        holders = {name: tuple(home) for name, home in publishers.homes.items()}
        after = replace(after, holders=holders, places=_places(before, publishers.homes))
    targets = [move.target for move in done.moves]
    if twice := repeated(targets):
        raise StepRefusedError(step=f"rename to {twice[0]}", problem="two staged files have this target")
    sequence = replace(
        CommitSequence.to(after, commit_id=commit_id, output_root=root),
        steps=(*rename_moves(done.moves), *permission_steps(root, targets, permissions), *done.steps),
        files=tuple(published_file(move, after.snapshot) for move in done.moves),
        staging_dirs=tuple(staging_dirs),
        removed=done.removed,
    )
    check_paths(sequence)
    return sequence


def _places(before: DatasetState | None, homes: Mapping[str, Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    """Return the places of all branches, each followed by those where it was before; empty texts are not known."""
    former = before.places if before is not None else {}
    is_unknown = before is not None and bool(before.totals.branch_rows) and not former
    places = dict(former)
    for name, home in homes.items():
        now, then = tuple(home.values()), (*former.get(name, ()), *([""] if is_unknown else []))
        places[name] = (*now, *(one for one in then if one not in now))
    return places


def rename_moves(moves: Sequence[Move]) -> tuple[CommitStep, ...]:
    """Return a step per file, or batches if there are so many that the stored body would grow large."""
    renames = [
        RenameFileStep(move.staged.path, move.target, move.staged.size_bytes, move.staged.sha256) for move in moves
    ]
    return tuple(renames) if len(renames) <= BATCH_ABOVE_FILES else rename_steps(renames, BATCH_FILES)


def permission_steps(root: str, targets: Sequence[str], permissions: Permissions) -> tuple[CommitStep, ...]:
    """Return the step that sets mode and group of published files; none if nothing is to be set."""
    return (SetPermissionsStep.of(root, targets, permissions),) if permissions and targets else ()


def _checked(file: StagedFile, commit_id: str) -> str:
    # F1: only a name that holds the commit id is certainly new, and only such a file may ever be undone.
    if commit_id not in posixpath.basename(file.target):
        raise StepRefusedError(step=f"rename to {file.target}", problem=f"its name lacks the commit id {commit_id}")
    if file.target.startswith("/"):
        raise StepRefusedError(
            step=f"rename to {file.target}", problem="the target must be relative to the output root"
        )
    return file.target


def _after(
    *,
    job: str,
    run_id: str,
    dataset_urn: str,
    before: DatasetState | None,
    decision: Decision,
    planned_low: Watermark | None,
    now: datetime,
    origin: Mapping[str, str],
    inferred: Mapping[str, str],
) -> DatasetState:
    """Return the state after the commit transaction, without the files."""
    if before is None:
        none = CommittedRanges(type(decision.publish[0].low), {})
        before = DatasetState(job, dataset_urn, 0, none, snapshot=0, run_id=run_id, updated_at=now)
    committed = before.committed if planned_low is None else before.committed.anchored(planned_low)
    published = (WatermarkInterval(unit.low, unit.actual_high) for unit in decision.publish)
    committed = committed.add_all(published, dataset_urn)
    # Of all units: the last one may lack a column that others have written.
    schemas: dict[str, str] = {}
    for unit in decision.publish:
        schemas.update({name: joined_text(schemas.get(name, text), text) for name, text in unit.schemas.items()})
    sums = TaskSums.of(decision.publish)
    after = replace(
        before,
        version=before.version + 1,
        committed=committed,
        run_id=run_id,
        updated_at=now,
        totals=before.totals.plus(totals_of(sums)),
        schemas={**before.schemas, **schemas},
        failed_ranges=tuple(f"[{unit.actual_high}, {unit.expected_high})" for unit in decision.failed),
        pace=_pace_after(before.pace, sums, len(decision.publish)),
        origin={**before.origin, **origin},
        inferred={**before.inferred, **inferred},
        row_marks=newest_marks([before.row_marks, *(unit.row_marks for unit in decision.publish)]),
    )
    return _giving_up(after, decision.failed) if decision.gives_up and decision.failed else after


def _giving_up(after: DatasetState, failed: Sequence[TaskState]) -> DatasetState:
    """Return the state with the ranges of failed work units marked as not to be read again."""
    given_up = after.given_up or CommittedRanges(after.committed.watermark_type, {})
    intervals = [WatermarkInterval(unit.actual_high, unit.expected_high) for unit in failed]
    return replace(after, given_up=given_up.add_all(intervals, after.dataset_urn))


def _pace_after(before: Pace, sums: TaskSums, units: int) -> Pace:
    mean = Pace(
        rows=sums.rows_read / units,
        bytes_read=sums.bytes_read / units,
        # A unit with no measurable time still took some.
        ms=max(0.1, 1000 * sums.seconds / units),
    )
    return before.then(mean)


def _with_publication(after: DatasetState, before: DatasetState | None, done: BranchPublications) -> DatasetState:
    """Return the state with the published files counted; a change that readers see makes a snapshot."""
    totals = replace(
        after.totals,
        files=(before.totals.files if before else 0) + len(done.moves),
        files_removed=after.totals.files_removed + len(done.removed),
        bytes_written=(before.totals.bytes_written if before else 0)
        + sum(move.staged.size_bytes for move in done.moves)
        + loaded_bytes(done.steps),
    )
    return replace(after, totals=totals, snapshot=after.snapshot + bool(done.moves or done.removed))


def totals_of(sums: TaskSums) -> Totals:
    """Return the row counts of work units for a dataset's state; files are counted where they are published."""
    return Totals(
        rows_read=sums.rows_read,
        rows_filtered=sums.rows_filtered,
        rows_rejected=sum(sums.rows_rejected.values()),
        rows_untaken=sums.rows_untaken,
        rows_quarantined=sums.rows_quarantined,
        branch_rows=dict(sorted(sums.rows_written.items())),
    )
