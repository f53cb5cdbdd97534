"""GobblinProject: a project folder, opened; its methods are the commands of `gobblin`."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Self

from gobblin_dagster.core.errors import EnvironmentFaultError
from gobblin_dagster.core.ids import who
from gobblin_dagster.core.startpoint import Startpoint
from gobblin_dagster.core.utils.arguments import checked, checked_methods
from gobblin_dagster.core.utils.import_target import find_modules_in
from gobblin_dagster.core.utils.table import Column, Listing, mark
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.engine.check import ProjectCheck, check_project
from gobblin_dagster.engine.commit.listener import CommitListener
from gobblin_dagster.engine.listener import RunListener
from gobblin_dagster.engine.maintenance.clean import CleanResult, clean
from gobblin_dagster.engine.maintenance.compact import MIN_FILES, TARGET_BYTES, Compaction, compact
from gobblin_dagster.engine.maintenance.rollback import RollbackPlan, plan_rollback, rollback
from gobblin_dagster.engine.maintenance.verify import Verification, verify
from gobblin_dagster.engine.plan.model import JobPlan
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.results import RunResult
from gobblin_dagster.engine.run.job_run import plan_job, run_job
from gobblin_dagster.engine.snapshots.history import SnapshotInfo, list_snapshots
from gobblin_dagster.engine.snapshots.reader import PublishedSnapshot, load_published
from gobblin_dagster.engine.task.runner import TaskRunner
from gobblin_dagster.face.commit import CommitMethods
from gobblin_dagster.face.quarantine import QuarantineMethods
from gobblin_dagster.face.session import Session, selected, several
from gobblin_dagster.face.startpoint import StartpointMethods
from gobblin_dagster.face.state import StateMethods
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.load import find_project
from gobblin_dagster.state.store import StateStore

_SNAPSHOTS: tuple[Column[SnapshotInfo], ...] = (
    Column("snapshot", "number", lambda one: one.snapshot),
    Column("published", "instant", lambda one: one.committed_at),
    Column("watermark", "text", lambda one: mark(one.watermark)),
    Column("rows added", "number", lambda one: sum(one.rows.values())),
    Column("files added", "number", lambda one: one.files),
    Column("files removed", "number", lambda one: one.removed or None),
    Column("went back to", "number", lambda one: one.went_back_to),
    Column("run", "text", lambda one: one.run_id),
)
_COMPACTIONS: tuple[Column[Compaction], ...] = (
    Column("dataset", "text", lambda one: one.dataset_urn),
    Column("files", "number", lambda one: one.files),
    Column("became", "number", lambda one: len(one.merges)),
    Column("bytes", "number", lambda one: sum(merge.size_bytes for merge in one.merges)),
    Column("bytes after", "number", lambda one: one.bytes_after or None),
    Column("snapshot", "number", lambda one: one.snapshot or None),
    Column("problem", "text", lambda one: one.problem or None),
)


@checked
def open_project(
    root: str | PathLike[str] = ".",
    *,
    jobs: Sequence[str] = (),
    store: StateStore | None = None,
    runner: TaskRunner | None = None,
) -> GobblinProject:
    """Open the project of a folder: the folder with `gobblin.yaml`, or one inside of it.

    The project's folder is put on `sys.path`, since constructs of the user's own lie there.

    Args:
        root: the folder.
        jobs: the jobs that are meant; faults of others then do not matter. Default: all.
        store: an open state store for all that is done, which stays open; default: each method opens the project's own
            and closes it.
        runner: runs the work units; default: the project's Spark, which starts with the first work.

    Raises:
        InvalidSpecError: `gobblin.yaml` or a job file has faults; `check` names those of all files.
        UsageError: there is no project.

    Example:
        >>> from gobblin_dagster.testing.inline_runner import InlineRunner
        >>> with open_project(example, runner=InlineRunner()) as project:
        ...     result = project.run("numbers")
        >>> result.status.value, [dataset.rows_read for dataset in result]
        ('succeeded', [3, 2])
    """
    return GobblinProject(Session(find_project(Path(root)), jobs, store, runner))


@checked
def check(root: str | PathLike[str] = ".") -> ProjectCheck:
    """Check a project: every fault of `gobblin.yaml` and of all job files, with its line. Reads no data.

    Raises:
        UsageError: there is no project, or no job file.

    Example:
        >>> check(example).is_valid
        True
    """
    folder = find_project(Path(root))
    find_modules_in(folder)
    return check_project(folder)


@checked_methods
class GobblinProject:
    """A project, opened by `open_project`. Its methods do what the commands of `gobblin` do, and return the results.

    Use it as a context manager, or call `close`, where a Spark that was started shall end; else Spark ends with Python,
    or once the project is forgotten. A job's name may be left out if the project has one job. For use by one thread at
    a time.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.state = StateMethods(session)
        """Watermarks and history of datasets: see `StateMethods`."""
        self.startpoint = StartpointMethods(session)
        """Where the next run begins: see `StartpointMethods`."""
        self.commit = CommitMethods(session)
        """Commits that a crash left: see `CommitMethods`."""
        self.quarantine = QuarantineMethods(session)
        """Rejected rows: see `QuarantineMethods`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<project {self.project.spec.project} in {self.root}: {', '.join(self.jobs) or 'no jobs'}>"

    def close(self) -> None:
        """End the Spark that this project started; it may be used further, and then starts another."""
        self._session.close()

    @property
    def project(self) -> Project:
        """The project as a value, for `gobblin_dagster.orchestration`."""
        return self._session.project

    @property
    def root(self) -> Path:
        """Its folder."""
        return self.project.root

    @property
    def jobs(self) -> tuple[str, ...]:
        """Names of its jobs."""
        return tuple(job.job for job in self.project.jobs)

    def job(self, name: str | None = None) -> JobSpec:
        """Return a job's declaration; raises UsageError naming those that exist."""
        return self._session.job(name)

    def check(self) -> ProjectCheck:
        """Check the files of the project as they are now."""
        return check_project(self.root)

    # -- runs
    # --------------------------------------------------------------------------------------------------------------
    def plan(
        self,
        job: str | None = None,
        *,
        select: str | Sequence[str] = (),
        exclude: str | Sequence[str] = (),
        startpoints: Mapping[str, Startpoint] | None = None,
    ) -> JobPlan:
        """Plan a run; reads metadata only and changes nothing. Spark starts for sources that plan with it.

        Args:
            job: the job's name.
            select: glob or globs of datasets; default: all.
            exclude: glob or globs of datasets to leave out.
            startpoints: count instead of those that are stored, by dataset.urn.

        Raises:
            SourceError: the source cannot be listed. Faults of a dataset are in its plan.
            TransientError: source or state store cannot be reached.

        Example:
            >>> for dataset in open_project(example).plan():
            ...     print(dataset.dataset_urn, dataset.low, dataset.expected_high, dataset.rows)
            a 0 3 3
            b 0 2 2
        """
        session, spec = self._session, self._session.job(job)
        with session.use_store() as store:
            return plan_job(session.project, spec, selected(select, exclude), session.spark(), startpoints, store=store)

    def run(
        self,
        job: str | None = None,
        *,
        select: str | Sequence[str] = (),
        exclude: str | Sequence[str] = (),
        run_id: str | None = None,
        listeners: Sequence[RunListener] = (),
        commit_listener: CommitListener | None = None,
        stop: threading.Event | None = None,
    ) -> RunResult:
        """Run a job: finish what an earlier run left, read what is new, check it and publish it.

        A dataset that fails is told in the result and does not stop the others; look at `RunResult.status`.

        Args:
            job: the job's name.
            select: glob or globs of datasets; default: all.
            exclude: glob or globs of datasets to leave out.
            run_id: names the run in the state store, in Dagster and in the staging folder; default: a new one.
            listeners: are called as the run goes on; what one raises is logged.
            commit_listener: is called between the steps of a commit; what it raises ends that commit as a crash would.
            stop: set it from another thread to end the run early; what is whole is committed.

        Raises:
            SourceError, TransientError: the source cannot be listed, source or state store cannot be reached.
            UsageError: the job cannot run, or has run under `run_id` before.
            EnvironmentFaultError: Spark does not start.

        Example:
            >>> from gobblin_dagster.testing.inline_runner import InlineRunner
            >>> result = open_project(example, runner=InlineRunner()).run("numbers", select="a")
            >>> result.to_arrow().column("dataset").to_pylist()
            ['a']
        """
        session, spec = self._session, self._session.job(job)
        try:
            with session.use_store() as store:
                return run_job(
                    session.project,
                    spec,
                    runner=session.runner(),
                    selection=selected(select, exclude),
                    listeners=listeners,
                    commit_listener=commit_listener,
                    stop=stop,
                    run_id=run_id,
                    store=store,
                )
        except EnvironmentFaultError:
            session.close()  # Java may be there at the next attempt
            raise

    # -- published data
    # ----------------------------------------------------------------------------------------------------
    def load_published(self, dataset: str, *, job: str | None = None, snapshot: int | None = None) -> PublishedSnapshot:
        """Return what is published of a dataset: whole commits, for any reader.

        Args:
            dataset: its dataset.urn.
            job: the job's name; may be left out if one job has the dataset.
            snapshot: its number; default: the newest.

        Raises:
            UsageError: there is no such snapshot, or it has expired; or several jobs have the dataset.

        Example:
            >>> from gobblin_dagster.testing.inline_runner import InlineRunner
            >>> project = open_project(example, runner=InlineRunner())
            >>> project.run().status.value
            'succeeded'
            >>> project.load_published("a").to_arrow().to_table().num_rows
            3
        """
        spec = self._session.job_of(dataset, job)
        with self._session.use_store() as store:
            return load_published(self.project, spec, dataset, snapshot, store=store)

    def snapshots(self, dataset: str, *, job: str | None = None) -> Listing[SnapshotInfo]:
        """Return every snapshot of a dataset that the store remembers, newest first."""
        spec = self._session.job_of(dataset, job)
        with self._session.use_store() as store:
            found = list_snapshots(store, spec.job, dataset)
        return Listing(f"dataset {dataset}: {count(len(found), 'snapshot')}", _SNAPSHOTS, found)

    def rollback(
        self, dataset: str, to: int, *, why: str = "", job: str | None = None, dry_run: bool = False
    ) -> RollbackPlan:
        """Go back to an older snapshot of a dataset, data and watermark together; another rollback undoes it.

        Args:
            dataset: its dataset.urn.
            to: the snapshot's number.
            why: kept in the dataset's history.
            job: the job's name; may be left out if one job has the dataset.
            dry_run: only return what would change.

        Raises:
            UsageError: there is no such snapshot, it is the newest, or it has expired; or a table holds a branch too.
            DatasetBusyError, UnfinishedSequenceError: a run works on the dataset, or left it unfinished.
        """
        spec, project = self._session.job_of(dataset, job), self.project
        with self._session.use_store() as store:
            if dry_run:
                return plan_rollback(store, spec, dataset, to, self._session.now())
            return rollback(project, spec, dataset, to, who=who(), why=why, store=store)

    # -- maintenance
    # -------------------------------------------------------------------------------------------------------
    def compact(
        self,
        job: str | None = None,
        datasets: str | Sequence[str] | None = None,
        *,
        target_bytes: int = TARGET_BYTES,
        min_files: int = MIN_FILES,
        dry_run: bool = False,
    ) -> Listing[Compaction]:
        """Merge the small files of a job's datasets; the failure of one does not stop the others. Needs no Spark.

        Args:
            job: the job's name.
            datasets: dataset.urn or urns; default: all.
            target_bytes: files below half of this are merged into files of about this size.
            min_files: fewest files that are merged into one.
            dry_run: only return what would be merged.

        Raises:
            UsageError: a dataset was never published.
        """
        spec = self._session.job(job)
        with self._session.use_store() as store:
            done = compact(
                self.project,
                spec,
                several(datasets),
                target_bytes=target_bytes,
                min_files=min_files,
                dry_run=dry_run,
                who=who(),
                store=store,
            )
        words = "would be merged" if dry_run else "merged"
        return Listing(f"job {spec.job}: files of {count(len(done), 'dataset')} {words}", _COMPACTIONS, done)

    def clean(self, job: str | None = None, *, dry_run: bool = False) -> CleanResult:
        """Delete what killed runs of a job staged, what only expired snapshots hold, and expired startpoints.

        Raises:
            OSError: the storage refused; a later call goes on.
        """
        with self._session.use_store() as store:
            return clean(self.project, self._session.job(job), dry_run=dry_run, store=store)

    def verify(
        self,
        job: str | None = None,
        datasets: str | Sequence[str] | None = None,
        *,
        checksum: bool = False,
        repair: bool = False,
    ) -> Verification:
        """Compare the published files and manifests of a job with the state store; files are never changed.

        Args:
            job: the job's name.
            datasets: dataset.urn or urns; default: all, and files that no dataset knows.
            checksum: read every file and compare its content; default: sizes alone.
            repair: write manifests again that differ.
        """
        with self._session.use_store() as store:
            return verify(
                self.project, self._session.job(job), several(datasets), checksum=checksum, repair=repair, store=store
            )
