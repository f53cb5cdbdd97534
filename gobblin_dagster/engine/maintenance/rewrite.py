"""Rewriting what is published: other files in the place of some, by the same commit protocol as every publication.

The watermark does not move: what counts as read stays as it is, only the files of the newest snapshot change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from gobblin_dagster.core.commit import CommitReport, CommitSequence, CommitStep, ManualChange
from gobblin_dagster.core.constructs import PublishView
from gobblin_dagster.core.dataset_state import DatasetState, Totals
from gobblin_dagster.core.errors import CommitConflictError
from gobblin_dagster.core.ids import new_commit_id
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.commit.branch_publishers import Move, published_file
from gobblin_dagster.engine.commit.build import permission_steps, rename_moves
from gobblin_dagster.engine.commit.committer import Committer
from gobblin_dagster.engine.commit.path_guard import check_paths
from gobblin_dagster.engine.commit.steps.permissions import permissions_of
from gobblin_dagster.engine.layout import staging_dir
from gobblin_dagster.spec.job import JobSpec


@dataclass(frozen=True, slots=True)
class Rewriting:
    """One rewriting of one dataset: from what state, by whom, under which names."""

    job: JobSpec
    before: DatasetState
    """The dataset's state; the commit refuses any other."""
    run_id: str
    """Who rewrites."""
    output_root: str
    """Absolute."""
    commit_id: str = field(default_factory=new_commit_id)
    """128 random bits in hex; part of the name of every target."""

    @property
    def staging_dir(self) -> str:
        """Absolute folder of all that is staged; deleted at the end."""
        return staging_dir(self.output_root, self.run_id, self.commit_id)

    def view(self, now: datetime) -> PublishView:
        """Return what publishers see of a replay, for all branches: it begins and ends at the watermark, and replaces nothing."""
        mark = str(self.before.watermark or "")
        return PublishView(
            job=self.job.job,
            run_id=self.run_id,
            commit_id=self.commit_id,
            dataset_urn=self.before.dataset_urn,
            branch="",
            extract=self.job.to_extract(),
            output_root=self.output_root,
            folder="",
            now=now,
            low=mark,
            high=mark,
            joins=True,
        )

    def sequence(
        self,
        moves: Sequence[Move],
        removed: Sequence[str],
        now: datetime,
        *,
        change: ManualChange,
        note: str,
        totals: Totals | None = None,
        steps: Sequence[CommitStep] = (),
    ) -> CommitSequence:
        """Return the sequence that puts staged files in the place of published ones.

        Args:
            moves: staged files and their absolute targets.
            removed: absolute paths that the newest snapshot holds and the next one shall not.
            now: aware, UTC.
            change: for the dataset's history.
            note: what was done, for people.
            totals: the dataset's counts of rows; default: they stay.
            steps: of publishers, after the files are in place.

        Raises:
            StepRefusedError: a path is not its own to touch.
        """
        before, counts = self.before, totals or self.before.totals
        after = replace(
            before,
            version=before.version + 1,
            snapshot=before.snapshot + bool(moves or removed),
            run_id=self.run_id,
            updated_at=now,
            totals=replace(
                counts,
                files=counts.files + len(moves),
                files_removed=counts.files_removed + len(removed),
                bytes_written=counts.bytes_written + sum(move.staged.size_bytes for move in moves),
            ),
        )
        targets, permissions = [move.target for move in moves], permissions_of(self.job)
        sequence = replace(
            CommitSequence.to(after, commit_id=self.commit_id, output_root=self.output_root),
            steps=(*rename_moves(moves), *permission_steps(self.output_root, targets, permissions), *steps),
            files=tuple(published_file(move, after.snapshot) for move in moves),
            staging_dirs=(self.staging_dir,),
            removed=tuple(removed),
            report=CommitReport(low=before.watermark, notes=(note,), change=change),
        )
        check_paths(sequence)
        return sequence

    def commit(
        self, committer: Committer, storage: Storage, epoch: int, stage: Callable[[], CommitSequence]
    ) -> CommitSequence:
        """Stage, commit, and return what was committed; where nothing can have been stored, nothing stays staged.

        Args:
            committer: commits it.
            storage: where the files are.
            epoch: our epoch of the dataset.
            stage: writes files into `staging_dir` and returns their `sequence`.

        Raises: what `stage` raises, and as `Committer.prepare` and `Committer.publish`.
        """
        try:
            sequence = stage()
        except BaseException:
            storage.delete_tree(self.staging_dir)
            raise
        try:
            committer.prepare(sequence, epoch)
        except CommitConflictError:
            # Refused by the store. Whatever else is raised, its answer may have been lost.
            storage.delete_tree(self.staging_dir)
            raise
        committer.publish(sequence, epoch, verify_sources=False)
        return sequence
