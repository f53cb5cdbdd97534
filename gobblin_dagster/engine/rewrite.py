"""Rewriting what is published: other files in the place of some, by the same commit protocol as every publication.

The watermark does not move: what counts as read stays as it is, only the files of the newest snapshot change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from gobblin_dagster.core.commit import CommitSequence, CommitStep
from gobblin_dagster.core.constructs import PublishView
from gobblin_dagster.core.dataset_state import DatasetState, Totals
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.core.serial import to_document
from gobblin_dagster.engine.commit.build import permission_steps, rename_moves
from gobblin_dagster.engine.commit.publication import Move, published_file
from gobblin_dagster.engine.commit.roots import check_paths
from gobblin_dagster.engine.commit.steps import Permissions
from gobblin_dagster.engine.results import DatasetResult
from gobblin_dagster.spec.job import JobSpec


def rewrite_sequence(
    *,
    commit_id: str,
    run_id: str,
    before: DatasetState,
    moves: Sequence[Move],
    removed: Sequence[str],
    output_root: str,
    staging_dir: str,
    now: datetime,
    permissions: Permissions,
    change: Mapping[str, Any],
    note: str,
    totals: Totals | None = None,
    steps: Sequence[CommitStep] = (),
) -> CommitSequence:
    """Return the sequence that puts staged files in the place of published ones.

    Args:
        commit_id: 128 random bits in hex; part of the name of every target.
        run_id: who rewrites.
        before: the dataset's state; the commit refuses any other.
        moves: staged files and their absolute targets.
        removed: absolute paths that the newest snapshot holds and the next one shall not.
        output_root: absolute.
        staging_dir: absolute; deleted at the end.
        now: aware, UTC.
        permissions: what the files and their folders shall have.
        change: JSON facts for the dataset's history: `action`, `who`, `why`.
        note: what was done, for people.
        totals: the dataset's counts of rows; default: they stay.
        steps: of publishers, after the files are in place.

    Raises:
        StepRefusedError: a path is not its own to touch.
    """
    targets = [move.target for move in moves]
    counts = totals or before.totals
    after = replace(
        before,
        version=before.version + 1,
        snapshot=before.snapshot + bool(moves or removed),
        run_id=run_id,
        updated_at=now,
        totals=replace(
            counts,
            files=counts.files + len(moves),
            files_removed=counts.files_removed + len(removed),
            bytes_written=counts.bytes_written + sum(move.staged.size_bytes for move in moves),
        ),
    )
    files = tuple(published_file(move, after.snapshot) for move in moves)
    result = DatasetResult(
        dataset_urn=before.dataset_urn,
        outcome=DatasetOutcome.COMMITTED,
        low=before.watermark,
        actual_high=after.watermark,
        snapshot=after.snapshot,
        sequence_id=commit_id,
        files=len(files),
        bytes_written=sum(file.size_bytes for file in files),
        files_removed=len(removed),
        notes=(note,),
    )
    sequence = CommitSequence(
        id=commit_id,
        job=before.job,
        dataset_urn=before.dataset_urn,
        run_id=run_id,
        version_read=before.version,
        steps=(*rename_moves(moves), *permission_steps(output_root, targets, permissions), *steps),
        files=files,
        after=after,
        output_root=output_root,
        staging_dirs=(staging_dir,),
        created_at=now,
        report=to_document(result) | {"change": dict(change)},
        removed=tuple(removed),
    )
    check_paths(sequence)
    return sequence


def publish_view(
    job: JobSpec, before: DatasetState, commit_id: str, run_id: str, output_root: str, now: datetime
) -> PublishView:
    """Return what publishers see of a replay, for all branches: it begins and ends at the watermark, and replaces nothing."""
    mark = str(before.watermark or "")
    return PublishView(
        job=job.job,
        run_id=run_id,
        commit_id=commit_id,
        dataset_urn=before.dataset_urn,
        branch="",
        extract=job.to_extract(),
        output_root=output_root,
        folder="",
        now=now,
        low=mark,
        high=mark,
        joins=True,
    )
