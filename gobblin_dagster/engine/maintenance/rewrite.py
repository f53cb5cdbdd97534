"""Rewrite published files: replace some files by others, by the same commit protocol as every publication.

The watermark does not move: the ranges that count as read stay, only the files of the newest snapshot change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime

from gobblin_dagster.core.commit import CommitReport, CommitSequence, CommitStep, ManualChange
from gobblin_dagster.core.constructs import PublishView
from gobblin_dagster.core.dataset_state import DatasetState, Totals
from gobblin_dagster.core.errors import CommitConflictError, GobblinDagsterError
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
    """One rewriting of one dataset: the state before it, the run id and the commit id."""

    job: JobSpec
    before: DatasetState
    """The dataset's state; the commit is refused if the store has another one by then."""
    run_id: str
    """Id of the run that rewrites."""
    output_root: str
    """Absolute."""
    commit_id: str = field(default_factory=new_commit_id)
    """128 random bits in hex; part of the name of every target."""

    @property
    def staging_dir(self) -> str:
        """Absolute folder of everything that is staged; deleted at the end."""
        return staging_dir(self.output_root, self.run_id, self.commit_id)

    def view(self, now: datetime) -> PublishView:
        """Return the view that publishers get of a replay: from the watermark to the watermark, replacing nothing."""
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
        """Return the sequence that replaces published files by staged ones.

        Args:
            moves: staged files and their absolute targets.
            removed: absolute paths that are in the newest snapshot and will not be in the next.
            now: aware, UTC.
            change: for the dataset's history.
            note: description of the change, for people.
            totals: the dataset's row counts after it; default: unchanged.
            steps: steps of publishers, run after the files are in place.

        Raises:
            StepRefusedError: the sequence must not touch one of its paths.
        """
        before, counts = self.before, totals or self.before.totals
        now = before.later(now)
        after = replace(
            before,
            version=before.version + 1,
            snapshot=before.snapshot + bool(moves or removed),
            run_id=self.run_id,
            # Rows that stay as they were are no newer than before, and commits of tables after them stay unknown.
            updated_at=before.updated_at if totals is None else now,
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
            created_at=now,
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
        """Stage, commit, and return the committed sequence; if nothing can have been stored, the staging is deleted.

        Args:
            committer: commits it.
            storage: holds the files.
            epoch: our epoch of the dataset.
            stage: writes files into `staging_dir` and returns their `sequence`.

        Raises the errors of `stage`, and as `Committer.prepare` and `Committer.publish`.
        """
        try:
            sequence = stage()
        except BaseException:
            with suppress(OSError, GobblinDagsterError):  # the error, or Ctrl-C, must not be hidden; `clean` deletes it
                self._delete_staging(storage)
            raise
        try:
            committer.prepare(sequence, epoch)
        except CommitConflictError:
            # The store refused it. After any other error, the store may have accepted it and only the answer was lost.
            self._delete_staging(storage)
            raise
        committer.publish(sequence, epoch, verify_sources=False)
        with suppress(OSError):  # an empty folder
            self._delete_run_folder(storage)
        return sequence

    def _delete_staging(self, storage: Storage) -> None:
        storage.delete_tree(self.staging_dir)
        self._delete_run_folder(storage)

    def _delete_run_folder(self, storage: Storage) -> None:
        """Delete the folder above, if no other dataset of this command needs it."""
        folder = staging_dir(self.output_root, self.run_id)
        if not storage.list_names(folder):
            storage.delete_tree(folder)
