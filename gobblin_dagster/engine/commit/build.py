"""From a decision to a commit sequence: pure, made on the driver once all work units of a dataset came back."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from gobblin_dagster.core.commit import CommitSequence, CommitStep, PublishedFile
from gobblin_dagster.core.dataset_state import DatasetState, Totals
from gobblin_dagster.core.errors import StepRefusedError, UsageError
from gobblin_dagster.core.task_state import StagedFile, TaskState
from gobblin_dagster.core.watermark import CommittedRanges, Watermark, WatermarkInterval
from gobblin_dagster.engine.commit.policy import Decision
from gobblin_dagster.engine.commit.roots import check_paths
from gobblin_dagster.engine.commit.steps import Permissions, RenameFileStep, SetPermissionsStep, rename_steps

BATCH_ABOVE_FILES = 1000
"""Files of a dataset above which one step moves many of them."""
BATCH_FILES = 250
"""Files that such a step moves: a redo begins with the step, and threads and Spark tasks share steps."""
NO_PERMISSIONS = Permissions()


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
    report: Mapping[str, Any],
    permissions: Permissions = NO_PERMISSIONS,
) -> CommitSequence:
    """Return the sequence that publishes a decision: one rename per staged file, and the state to come.

    A sequence may have no files (work units that read no rows): then only the watermark moves.

    Args:
        commit_id: 128 random bits in hex; the name of every target must carry it.
        job: the job's name.
        run_id: the run that publishes.
        dataset_urn: the dataset.
        before: its state when the plan was made; None where it had none.
        decision: what to publish; must publish at least one work unit.
        planned_low: where the plan began; kept as the beginning of a dataset that has no state yet, so that a failed or
            cancelled first work unit stays a gap.
        output_root: absolute.
        staging_dirs: absolute folders to delete at the end; they belong to this dataset and run alone.
        now: aware, UTC.
        report: JSON facts for people.
        permissions: what published files and folders shall have.

    Raises:
        UsageError: nothing is to be published.
        RangeOverlapError: a work unit covers positions that were committed before.
        StepRefusedError: a target leaves the output root, lacks the commit id in its name or appears twice; a source
            lies in none of the staging folders.
    """
    if not decision.publish:
        raise UsageError(problem=f"Dataset {dataset_urn!r} has no work unit to publish.")
    root = output_root.rstrip("/")
    staged = [file for unit in decision.publish for file in unit.files]
    after = _after(
        job=job,
        run_id=run_id,
        dataset_urn=dataset_urn,
        before=before,
        decision=decision,
        planned_low=planned_low,
        now=now,
    )
    targets = [posixpath.join(root, _checked(file, commit_id)) for file in staged]
    if len(set(targets)) < len(targets):
        twice = next(target for target in targets if targets.count(target) > 1)
        raise StepRefusedError(step=f"rename to {twice}", problem="two staged files have this target")
    sequence = CommitSequence(
        id=commit_id,
        job=job,
        dataset_urn=dataset_urn,
        run_id=run_id,
        version_read=before.version if before else 0,
        steps=(*_renames(staged, targets), *_permissions(root, targets, permissions)),
        files=tuple(
            PublishedFile(file.branch, target, file.size_bytes, file.sha256, file.rows, after.snapshot)
            for file, target in zip(staged, targets, strict=True)
        ),
        after=after,
        output_root=root,
        staging_dirs=tuple(staging_dirs),
        created_at=now,
        report=dict(report),
    )
    check_paths(sequence)
    return sequence


def _renames(staged: Sequence[StagedFile], targets: Sequence[str]) -> tuple[CommitStep, ...]:
    """Return a step per file, or batches where there are so many that the stored body would grow large."""
    renames = [
        RenameFileStep(file.path, target, file.size_bytes, file.sha256)
        for file, target in zip(staged, targets, strict=True)
    ]
    return tuple(renames) if len(renames) <= BATCH_ABOVE_FILES else rename_steps(renames, BATCH_FILES)


def _permissions(root: str, targets: Sequence[str], permissions: Permissions) -> tuple[CommitStep, ...]:
    return (SetPermissionsStep.of(root, targets, permissions),) if permissions and targets else ()


def _checked(file: StagedFile, commit_id: str) -> str:
    # F1: only a name that holds the commit id is new for certain, and only such a file may ever be undone.
    if commit_id not in posixpath.basename(file.target):
        raise StepRefusedError(step=f"rename to {file.target}", problem=f"its name lacks the commit id {commit_id}")
    if file.target.startswith("/"):
        raise StepRefusedError(
            step=f"rename to {file.target}", problem="the target must be relative to the output root"
        )
    return file.target


_CARRIED = ("generation", "rollbacks", "oldest_snapshot")
"""What a publication leaves as it is in its dataset's state."""


def _after(
    *,
    job: str,
    run_id: str,
    dataset_urn: str,
    before: DatasetState | None,
    decision: Decision,
    planned_low: Watermark | None,
    now: datetime,
) -> DatasetState:
    """Return the state that the commit transaction will make true."""
    has_files = any(unit.files for unit in decision.publish)
    committed = before.committed if before else CommittedRanges(type(decision.publish[0].low), {})
    if planned_low is not None:
        committed = committed.anchored(planned_low)
    schemas = dict(before.schemas) if before else {}
    for unit in decision.publish:
        committed = committed.add(WatermarkInterval(unit.low, unit.actual_high), dataset_urn)
        schemas.update(unit.schemas)
    return DatasetState(
        job=job,
        dataset_urn=dataset_urn,
        version=(before.version if before else 0) + 1,
        committed=committed,
        snapshot=(before.snapshot if before else 0) + has_files,
        run_id=run_id,
        updated_at=now,
        totals=_sum([before.totals if before else Totals(), *map(_totals, decision.publish)]),
        schemas=schemas,
        failed_ranges=tuple(f"[{unit.low}, {unit.expected_high})" for unit in decision.failed),
        **({name: getattr(before, name) for name in _CARRIED} if before else {}),
    )


def _totals(unit: TaskState) -> Totals:
    """Count one work unit; rows are counted up to the fork, and per branch what was written."""
    return Totals(
        rows_read=unit.rows_read,
        rows_filtered=unit.rows_filtered,
        rows_rejected=sum(unit.rows_rejected.values()),
        rows_untaken=unit.rows_untaken,
        rows_quarantined=unit.rows_quarantined,
        branch_rows={name: counts.rows_written for name, counts in unit.branches.items()},
        files=len(unit.files),
        bytes_written=sum(file.size_bytes for file in unit.files),
    )


def _sum(totals: Iterable[Totals]) -> Totals:
    result = Totals()
    for one in totals:
        result = result.plus(one)
    return result
