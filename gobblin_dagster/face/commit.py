"""`project.commit`: commits that a crash left behind, finished, undone or given up."""

from __future__ import annotations

from gobblin_dagster.core.commit import WAITING, SequenceState, StoredSequence
from gobblin_dagster.core.ids import who
from gobblin_dagster.core.utils.arguments import checked_methods
from gobblin_dagster.core.utils.table import Column, Listing
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.maintenance.abandon import Abandonment, abandon_sequence, preview_abandonment
from gobblin_dagster.engine.maintenance.sequence_status import SequenceStatus, sequence_status
from gobblin_dagster.engine.results import RecoveredDataset
from gobblin_dagster.engine.run.recovery import recover_job
from gobblin_dagster.face.session import Session, limited

_SEQUENCES: tuple[Column[StoredSequence], ...] = (
    Column("sequence", "text", lambda one: one.id),
    Column("job", "text", lambda one: one.job),
    Column("dataset", "text", lambda one: one.dataset_urn),
    Column("state", "text", lambda one: one.state.value),
    Column("stored", "instant", lambda one: one.created_at),
    Column("failed redos", "number", lambda one: one.redo_failures or None),
    Column("reason", "text", lambda one: one.reason or None),
)
_RECOVERED: tuple[Column[RecoveredDataset], ...] = (
    Column("dataset", "text", lambda one: one.dataset_urn),
    Column("state", "text", lambda one: str(one.state)),
    Column("steps found done", "number", lambda one: one.steps_found_done),
    Column("steps redone", "number", lambda one: one.steps_redone),
    Column("rows lost", "number", lambda one: one.audit.lost if one.audit else None),
    Column("rows duplicated", "number", lambda one: one.audit.duplicated if one.audit else None),
    Column("reason", "text", lambda one: one.reason or None),
    Column("sequence", "text", lambda one: one.sequence_id),
)


@checked_methods
class CommitMethods:
    """Commit sequences in the state store, as `gobblin commit` shows and finishes them."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list(self, job: str | None = None, *, finished: bool = False, limit: int = 20) -> Listing[StoredSequence]:
        """Return commit sequences that are unfinished or wait for a person, newest first.

        Args:
            job: the job's name; default: all jobs.
            finished: finished ones too.
            limit: at most this many.

        Example:
            >>> ran.commit.list()
            0 commit sequences
        """
        states = set(SequenceState) if finished else WAITING
        with self._session.use_store() as store:
            found = store.load_sequences(job, states, limit=limited(limit))
        return Listing(count(len(found), "commit sequence"), _SEQUENCES, found)

    def show(self, sequence_id: str) -> SequenceStatus:
        """Return the steps of a commit sequence and which are done: looked up now, file by file.

        Args:
            sequence_id: its id, as `list` returns it.

        Raises:
            UsageError: there is no such sequence.

        Example:
            >>> (newest, _) = ran.commit.list(finished=True)
            >>> all(step.is_done for step in ran.commit.show(newest.id))
            True
        """
        with self._session.use_store() as store:
            return sequence_status(self._session.project, store, sequence_id)

    def recover(self, job: str | None = None) -> Listing[RecoveredDataset]:
        """Finish or undo what runs of a job left, as the next run would; quarantined sequences are tried again.

        May be killed and called again at any moment: each step is done once.

        Args:
            job: the job's name.

        Returns:
            What became of each sequence; the rows of a committed one are counted again.
        """
        session = self._session
        with session.use_store() as store:
            opened = JobContext.of(session.project, session.job(job), store, runner=session.spark())
            found = recover_job(opened)
        return Listing(f"{count(len(found), 'commit sequence')} recovered", _RECOVERED, found)

    def abandon(self, sequence_id: str, *, why: str = "", dry_run: bool = False) -> Abandonment:
        """Give a commit sequence up, so that its dataset is read again from its watermark.

        An unfinished sequence is undone. A quarantined one is only marked: its files stay (`Abandonment.orphans`).

        Args:
            sequence_id: its id, as `list` returns it.
            why: kept with the sequence.
            dry_run: only return what would be done.

        Returns:
            ABORTED, or QUARANTINED where undoing is not safe: abandon it again to keep its files.

        Raises:
            UsageError: there is no such sequence, or it has ended.
            DatasetBusyError: a run works on the dataset.
        """
        project = self._session.project
        with self._session.use_store() as store:
            if dry_run:
                return preview_abandonment(project, store, sequence_id)
            return abandon_sequence(project, store, sequence_id, who=who(), why=why)
