"""Clean up: delete abandoned staging, files that only expired snapshots hold, expired startpoints and old commits.

Nothing is deleted that a stored commit sequence lists, that a run may still work on, or that a readable snapshot holds.
Before the staging of a dead run is deleted, its leases are taken over, so that it cannot commit any more.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

from gobblin_dagster.core.clock import Clock
from gobblin_dagster.core.commit import WAITING, CommitReport, CommitSequence, PublishedFile, SequenceState
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError, GobblinDagsterError, StorageError
from gobblin_dagster.core.ids import new_commit_id, new_run_id, run_began_at, who
from gobblin_dagster.core.lease import Lease
from gobblin_dagster.core.run_record import RECENT_RUNS
from gobblin_dagster.core.startpoint import ALL_JOBS, Startpoint
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.utils.table import ShownAsFacts
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.engine.commit.committer import Committer
from gobblin_dagster.engine.commit.crash_cleanup import end_records
from gobblin_dagster.engine.commit.leases import LeaseKeeper, busy_error
from gobblin_dagster.engine.commit.manifest import expiry_marker, write_missing_manifests
from gobblin_dagster.engine.commit.steps import DeleteFilesStep, MarkExpiredStep
from gobblin_dagster.engine.layout import staging_dir
from gobblin_dagster.engine.maintenance.prune import PrunedCommits, prune
from gobblin_dagster.engine.maintenance.table_files import commit_id_of, names_in_tables
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.snapshots.lost_store import StoreCheck
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.startpoints import StartpointManager
from gobblin_dagster.state.store import StateStore

_FILES_PER_STEP = 500


@dataclass(frozen=True, slots=True)
class StagingFolder:
    """The staging folder of one run."""

    run_id: str
    path: str
    kept_because: str
    """Empty if it is deleted."""


@dataclass(frozen=True, slots=True)
class ExpiredSnapshots:
    """Expired snapshots of one dataset, and the files that only they hold."""

    dataset_urn: str
    snapshots: tuple[int, ...]
    files: tuple[PublishedFile, ...]
    kept_because: str = ""
    """Empty if they are deleted."""
    in_tables: tuple[PublishedFile, ...] = ()
    """Further files of these snapshots, which stay: a Delta or Iceberg table to which the branch was published before
    lists them, and nobody could read it without them."""


@dataclass(frozen=True, slots=True, repr=False)
class CleanResult(ShownAsFacts):
    """The result of cleaning a job, or its preview."""

    job: str
    staging: tuple[StagingFolder, ...]
    expired: tuple[ExpiredSnapshots, ...]
    startpoints: tuple[Startpoint, ...] = ()
    """Expired startpoints, also of datasets that no run plans."""
    commits: tuple[PrunedCommits, ...] = ()
    """Old commits that left the state store."""
    faults: tuple[Exception, ...] = ()
    """What the storage refused to write or delete, one error per folder or dataset; the rest of the job was cleaned."""

    def _facts(self) -> Mapping[str, object]:
        kept = sum(bool(one.kept_because) for one in self.staging) + sum(bool(one.kept_because) for one in self.expired)
        return {
            "job": self.job,
            "staging": count(len(self.staging), "folder"),
            "expired": f"{count(sum(len(one.snapshots) for one in self.expired), 'snapshot')}, "
            f"{count(sum(len(one.files) for one in self.expired), 'file')}",
            "startpoints": len(self.startpoints),
            "old commits": sum(one.commits for one in self.commits),
            "kept": f"{kept:,}; `kept_because` says why" if kept else None,
            "faults": "; ".join(map(str, self.faults)) or None,
        }


def clean(project: Project, job: JobSpec, *, dry_run: bool = False, store: StateStore | None = None) -> CleanResult:
    """Delete what nobody needs any more of a job.

    Args:
        project: the project.
        job: one of its jobs.
        dry_run: only say what would be deleted.
        store: an open state store, which stays open; default: open one and close it.

    Raises:
        TransientError: the store cannot be reached.
    """
    with project.use_store(store) as open_store, project.lease_keeper(job, open_store) as leases:
        faults: list[Exception] = []
        staging = _Staging(project, job, open_store, leases, faults).clean(dry_run=dry_run)
        if not dry_run:
            project.tidy_ended(job, open_store)
            # Manifests that a killed run left out after its leases were taken over, or that an error kept from being
            # written.
            states, _ = open_store.load_readable_states(job.job)
            storage, root = project.storage(job), project.output_root(job)
            _, unwritten = write_missing_manifests(
                states, job=job.job, store=open_store, storage=storage, output_root=root
            )
            # `gobblin verify` tells of damaged records.
            faults += [error for error in unwritten.values() if not isinstance(error, CorruptRecordError)]
        expired = _Expiry(project, job, open_store, leases, faults).clean(dry_run=dry_run)
        startpoints = _expired_startpoints(job, open_store, dry_run=dry_run)
        commits: list[PrunedCommits] = []
        with _noted(faults, "delete old commits in", open_store.url):
            commits.extend(prune(job, open_store, project.spec.history_runs, dry_run=dry_run))
    return CleanResult(job.job, tuple(staging), tuple(expired), tuple(startpoints), tuple(commits), tuple(faults))


@contextmanager
def _noted(faults: list[Exception], operation: str, path: str) -> Iterator[None]:
    """Keep an error of the storage for the end; what comes after this block does not depend on it."""
    try:
        yield
    except OSError as error:
        faults.append(StorageError.of(error, operation, path))
    except StorageError as error:
        faults.append(error)


def _expired_startpoints(job: JobSpec, store: StateStore, *, dry_run: bool) -> Iterable[Startpoint]:
    now = store.now()
    manager = StartpointManager(store)
    found = [one for name in (job.job, ALL_JOBS) for one in manager.find(name) if one.is_expired(now)]
    return found if dry_run else [one for one in found if manager.expire(one, who())]


# -- staging -----------------------------------------------------------------------------------------------------------
class _Staging:
    """Finds the staging folders of a job's runs that have ended."""

    def __init__(
        self, project: Project, job: JobSpec, store: StateStore, leases: LeaseKeeper, faults: list[Exception]
    ) -> None:
        self._faults = faults
        self._job = job.job
        self._store = store
        self._leases = leases
        self._clock: Clock = project.clock
        self._patience = timedelta(seconds=2 * project.spec.lease_ttl_s)
        self._storage: Storage = project.storage(job)
        self._folder = staging_dir(project.output_root(job))
        self._other_jobs = {*store.list_jobs(), *(one.job for one in project.jobs)} - {job.job}

    def clean(self, *, dry_run: bool) -> Iterable[StagingFolder]:
        names: Collection[str] = ()
        with _noted(self._faults, "list", self._folder):
            names = self._storage.list_names(self._folder)
        ours = self._known(names, [self._job])
        others = self._known(names, self._other_jobs) - ours
        found = []
        for run_id in names:
            if run_id in others:
                continue  # its job has the same output
            reason = self._reason_to_keep(run_id) if run_id in ours else "this state store does not know the run"
            if not reason and not dry_run:
                reason = self._fence(run_id)
            path = f"{self._folder}/{run_id}"
            if not reason and not dry_run:
                known = len(self._faults)
                with _noted(self._faults, "delete", path):
                    self._storage.delete_tree(path)
                reason = "".join(map(str, self._faults[known:]))
            found.append(StagingFolder(run_id, path, reason))
        return found

    def _known(self, run_ids: Collection[str], jobs: Collection[str]) -> set[str]:
        """Return the runs that this store has records of; runs of another store may share the output."""
        known: set[str] = set()
        for job in jobs:
            known.update(lease.owner.run_id for lease in self._store.load_leases(job).values())
            known.update(record.run_id for record in self._store.load_runs(job, RECENT_RUNS))
        if set(run_ids) - known:
            # A killed run wrote no record, and another run finished its sequences.
            states = set(SequenceState)
            known.update(
                one.run_id for job in jobs for one in self._store.load_sequences(job, states, limit=RECENT_RUNS)
            )
        return known & set(run_ids)

    def _reason_to_keep(self, run_id: str) -> str:
        """Return why a run's staging must stay; empty if it need not."""
        now = self._clock.now()
        if needed := self._needed(run_id):
            return needed
        held = self._held(run_id)
        for lease in held:
            if not lease.owner.is_provably_dead() and lease.until + self._patience > now:
                return f"{lease.owner} may be alive"
        started = run_began_at(run_id)  # None for an id that Dagster gave
        is_dead = bool(held) and all(lease.owner.is_provably_dead() for lease in held)
        if started is not None and started + self._patience > now and not is_dead:
            return f"the run began less than {self._patience.total_seconds():.0f} s ago"
        return ""

    def _needed(self, run_id: str) -> str:
        for sequence in self._store.load_sequences(self._job, WAITING):
            if sequence.run_id == run_id:
                return f"commit sequence {sequence.id} needs it"
        return ""

    def _held(self, run_id: str) -> list[Lease]:
        return [lease for lease in self._store.load_leases(self._job).values() if lease.owner.run_id == run_id]

    def _fence(self, run_id: str) -> str:
        """Take over the leases of a dead run, so that it cannot prepare a sequence any more; then check again."""
        if held := self._held(run_id):
            busy = self._leases.acquire([lease.dataset_urn for lease in held]).busy
            if busy:
                return str(busy_error(next(iter(busy.values()))))
            end_records(held, job=self._job, store=self._store, now=self._clock.now())
        return self._needed(run_id)


# -- expired snapshots -------------------------------------------------------------------------------------------------
class _Expiry:
    """Lets snapshots expire, and deletes files that only they hold: later removed, or left by a rollback."""

    def __init__(
        self, project: Project, job: JobSpec, store: StateStore, leases: LeaseKeeper, faults: list[Exception]
    ) -> None:
        self._faults = faults
        self._job = job
        self._store = store
        self._leases = leases
        self._clock: Clock = project.clock
        self._root = project.output_root(job)
        self._check = StoreCheck.of(project, job, store)
        self._committer = Committer.of(job.commit, store, project.storage(job))

    def clean(self, *, dry_run: bool) -> Iterable[ExpiredSnapshots]:
        states, _ = self._store.load_readable_states(self._job.job)
        found = []
        for urn, state in sorted(states.items()):
            # Without a rollback or a removal, each snapshot holds all files of the ones before it.
            if not state.rollbacks and not state.totals.files_removed:
                continue
            after = self._expired(state)
            try:
                expired = self._find(urn, state, after)
            except CorruptRecordError as error:
                found.append(ExpiredSnapshots(urn, (), (), kept_because=str(error)))
                continue
            if expired.snapshots:
                found.append(expired if dry_run or expired.kept_because else self._delete(expired, state, after))
        return found

    def _expired(self, state: DatasetState) -> DatasetState:
        oldest = state.snapshot - self._job.commit.keep_snapshots + 1
        return replace(state.expire(oldest), version=state.version + 1)

    def _find(self, urn: str, state: DatasetState, after: DatasetState) -> ExpiredSnapshots:
        """Find the files in snapshots that expire now and in no later one."""
        files: list[PublishedFile] = []
        snapshots: set[int] = set()
        for one in self._store.load_history(state.job, urn):
            holding = state.holding(one.file.snapshot, one.removed)
            expiring = [n for held in holding for n in held if state.oldest_snapshot <= n < after.oldest_snapshot]
            if expiring and not any(held.stop > after.oldest_snapshot for held in holding):
                files.append(one.file)
                snapshots.update(expiring)
        in_tables = self._in_tables(files)
        files = [file for file in files if file not in in_tables]
        outside = next((file.path for file in files if not file.path.startswith(f"{self._root}/")), "")
        # A step that would delete it is refused, and then the dataset would wait for a person.
        because = f"{outside} lies outside of the output {self._root}, which was moved, or is another one since"
        return ExpiredSnapshots(urn, tuple(sorted(snapshots)), tuple(files), because if outside else "", in_tables)

    def _in_tables(self, files: list[PublishedFile]) -> tuple[PublishedFile, ...]:
        """Return the files that their commits added to a table."""
        ids = {commit_id_of(file.path) for file in files}
        stored = [found for one in ids if one and (found := self._store.load_sequence(one)) is not None]
        names = {name for one in stored for name in names_in_tables(self._store, self._job, one)}
        return tuple(file for file in files if posixpath.basename(file.path) in names)

    def _delete(self, expired: ExpiredSnapshots, state: DatasetState, after: DatasetState) -> ExpiredSnapshots:
        """Delete by a commit sequence, so that no rollback restores a snapshot meanwhile and a crash is recovered."""
        urn = expired.dataset_urn
        try:
            epoch = self._leases.take(urn)
            self._check.require_snapshots(urn)
            sequence = self._sequence(expired, state, after)
            self._committer.prepare(sequence, epoch)
            self._committer.publish(sequence, epoch, verify_sources=False)
        except (GobblinDagsterError, OSError) as error:
            if isinstance(error, OSError | StorageError):
                self._faults.append(error)
            return replace(expired, kept_because=str(error))
        finally:
            self._leases.leave(self._committer.unfinished)
        # Readers see the same rows as before, so Dagster need not report it.
        self._store.mark_reported([sequence.id])
        return expired

    def _sequence(self, expired: ExpiredSnapshots, state: DatasetState, after: DatasetState) -> CommitSequence:
        urn, commit_id, now = state.dataset_urn, new_commit_id(), self._clock.now()
        marker = expiry_marker(self._root, state.job, urn, after.oldest_snapshot).removeprefix(self._root + "/")
        # Manifests stay, also those that no later one refers to: a run finds the next one after an older copy of the
        # state store, and refuses to go on with that copy.
        paths = [file.path.removeprefix(self._root + "/") for file in expired.files]
        note = f"{len(expired.snapshots)} snapshots expired, {len(expired.files)} files deleted"
        return CommitSequence(
            id=commit_id,
            job=state.job,
            dataset_urn=urn,
            run_id=new_run_id(now),
            version_read=state.version,
            steps=(
                MarkExpiredStep(self._root, marker),
                *(
                    DeleteFilesStep(self._root, tuple(paths[start : start + _FILES_PER_STEP]))
                    for start in range(0, len(paths), _FILES_PER_STEP)
                ),
            ),
            files=(),
            after=after,
            output_root=self._root,
            created_at=now,
            report=CommitReport(low=state.watermark, notes=(note,)),
        )
