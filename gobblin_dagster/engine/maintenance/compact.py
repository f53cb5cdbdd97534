"""Compaction: merge small files of a dataset's branch into fewer large ones, by the usual commit protocol.

Rows, their order inside a folder and the folders stay the same; older snapshots hold the small files until they expire.
After a crash at any moment, readers see the small files or the large ones, never both.

Source: gobblin-compaction `MRCompactor`. Differs: uses the same commit protocol, so no reader sees half of it; rows are
compared before anything is published; it merges files and removes no duplicates.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from gobblin_dagster.constructs.formats.published import ending_of
from gobblin_dagster.constructs.writers.quarantine import QUARANTINE_WRITER
from gobblin_dagster.core.commit import CommitSequence, ManualChange, PublishedFile
from gobblin_dagster.core.constructs import WriterContext
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import DatasetBusyError, GobblinDagsterError, StorageError, UsageError
from gobblin_dagster.core.ids import new_run_id
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.commit.branch_publishers import Move
from gobblin_dagster.engine.commit.committer import Committer
from gobblin_dagster.engine.commit.leases import busy_error
from gobblin_dagster.engine.commit.manifest import fill_manifests
from gobblin_dagster.engine.commit.path_guard import is_below
from gobblin_dagster.engine.maintenance.file_merger import FileMerger, likeness
from gobblin_dagster.engine.maintenance.rewrite import Rewriting
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.publishers import load_step_types, publisher_traits
from gobblin_dagster.engine.snapshots.lost_store import StoreCheck
from gobblin_dagster.spec.job import QUARANTINE_BRANCH, JobSpec
from gobblin_dagster.state.store import StateStore

log = logging.getLogger(__name__)
TARGET_BYTES = 128 << 20
"""Default size of merged files: a size that Spark and Trino read well in one task."""
MIN_FILES = 2


@dataclass(frozen=True, slots=True)
class Merge:
    """Files of one branch and folder that become one file, in their order."""

    branch: str
    folder: str
    """Absolute."""
    files: tuple[PublishedFile, ...]

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(file.rows for file in self.files)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class Compaction:
    """The merges of one dataset, done or planned."""

    dataset_urn: str
    merges: tuple[Merge, ...]
    bytes_after: int = 0
    """Bytes of the merged files; 0 in a dry run."""
    snapshot: int = 0
    """Number of the snapshot with the merged files; 0 if nothing was published."""
    problem: str = ""
    """Why the dataset was not changed, or why readers of manifests do not see its new `snapshot` yet; else empty."""
    is_busy: bool = False
    """Whether the problem is only that another run holds the dataset."""
    files_elsewhere: int = 0
    """Small files that could be merged, but lie in a former output of the job, where nothing is written."""

    @property
    def files(self) -> int:
        """Number of files that are merged."""
        return sum(len(merge.files) for merge in self.merges)


def compact(
    project: Project,
    job: JobSpec,
    urns: Sequence[str] | None = None,
    *,
    target_bytes: int = TARGET_BYTES,
    min_files: int = MIN_FILES,
    dry_run: bool = False,
    who: str = "",
    on_done: Callable[[Compaction], None] = lambda _: None,
    store: StateStore | None = None,
) -> list[Compaction]:
    """Merge the small files of a job's datasets, one dataset after the other; an error of one does not stop the others.

    Args:
        project: the project.
        job: one of its jobs.
        urns: datasets; default: all published ones.
        target_bytes: files below half of this size are merged, in their order, into files of about this size.
        min_files: smallest number of files that are merged into one.
        dry_run: merge nothing, only return what would be merged.
        who: the person who asks for it; stored in the dataset's history.
        on_done: called for each dataset that has, or had, something to merge.
        store: an open state store, which stays open; default: open one and close it.

    Returns:
        One entry for each dataset with something to merge or a problem, by dataset.urn.

    Raises:
        TransientError: the store cannot be reached.
        UsageError: a dataset was never published, or a publisher or step of the job cannot be loaded.
    """
    load_step_types(job)
    with project.use_store(store) as open_store:
        states, damaged = open_store.load_readable_states(job.job, urns)
        if missing := sorted(set(urns or ()) - {*states, *damaged}):
            known = ", ".join(sorted(open_store.load_readable_states(job.job)[0])[:20]) or "none"
            raise UsageError(
                problem=f"Nothing was published of dataset {missing[0]!r} of job {job.job!r}.",
                hint=f"Datasets: {known}.",
            )
        work = _Compactor(project, job, open_store, target_bytes, min_files, who)
        done = [Compaction(urn, (), problem=str(error)) for urn, error in sorted(damaged.items())]
        for one in done:
            on_done(one)
        if not dry_run:
            project.tidy_ended(job, open_store)
        for urn, state in sorted(states.items()):
            compaction = work.plan(state) if dry_run else work.run(urn)
            if compaction.merges or compaction.problem or compaction.files_elsewhere:
                done.append(compaction)
                on_done(compaction)
    return done


class _Compactor:
    """Compacts the datasets of one job."""

    def __init__(
        self, project: Project, job: JobSpec, store: StateStore, target_bytes: int, min_files: int, who: str
    ) -> None:
        self._project = project
        self._job = job
        self._store = store
        self._target = target_bytes
        self._min_files = max(2, min_files)
        self._who = who
        self._storage: Storage = project.storage(job)
        self._root = project.output_root(job)
        self._run_id = new_run_id(project.clock.now())
        self._check = StoreCheck.of(project, job, store)
        self._committer = Committer.of(job.commit, store, self._storage)
        self._writers = {branch.name: job.writer_of(branch) for branch in job.fork.branches}
        self._writers[QUARANTINE_BRANCH] = QUARANTINE_WRITER
        self._open = {QUARANTINE_BRANCH, *_branches_of_files(job)}

    def plan(self, state: DatasetState) -> Compaction:
        """Find the files to merge; opens files if several small ones are in one folder."""
        try:
            held = self._store.load_snapshot(self._job.job, state.dataset_urn, state.snapshot)
            merges = list(self._merges(held))
            here = tuple(merge for merge in merges if is_below(merge.folder, self._root))
            found = Compaction(state.dataset_urn, here)
            return replace(found, files_elsewhere=sum(len(merge.files) for merge in merges) - found.files)
        except (GobblinDagsterError, OSError) as error:
            return Compaction(state.dataset_urn, (), problem=str(error))

    def run(self, urn: str) -> Compaction:
        """Merge and publish; an error of this dataset is in the result, never raised."""
        with self._project.lease_keeper(self._job, self._store, self._run_id) as leases:
            if busy := leases.acquire([urn]).busy:
                error = busy_error(busy[urn])
                return Compaction(urn, (), problem=str(error), is_busy=isinstance(error, DatasetBusyError))
            # Under the lease, so the commit demands the state that is read here.
            state = self._store.load_dataset_states(self._job.job, [urn])[urn]
            compaction = self.plan(state)
            try:
                if compaction.merges:
                    self._check.require_snapshots(urn)
                # If the lease was inherited from a killed run, only this call knows that its manifest may be missing.
                fill_manifests(self._storage, self._store, self._root, self._job.job, {urn: state})
                return self._publish(compaction, state, leases.epoch(urn)) if compaction.merges else compaction
            except GobblinDagsterError as error:
                return replace(compaction, problem=str(error))
            except OSError as error:
                return replace(compaction, problem=str(StorageError.of(error, "compact, at", self._root)))
            finally:
                leases.leave(self._committer.unfinished)

    # -- files to merge ------------------------------------------------------------------------------------------------
    def _merges(self, held: Iterable[PublishedFile]) -> Iterator[Merge]:
        folders: dict[tuple[str, str, tuple[str, str]], list[PublishedFile]] = {}
        for file in sorted(held, key=lambda one: (one.snapshot, one.path)):
            if file.branch in self._open and 2 * file.size_bytes < self._target:
                key = (file.branch, file.path.rpartition("/")[0], ending_of(file.path))
                folders.setdefault(key, []).append(file)
        for (branch, folder, _), files in sorted(folders.items()):
            if len(files) < self._min_files:
                continue
            alike: dict[str, list[PublishedFile]] = {}
            for file in files:
                likes = likeness(self._storage, file, self._writers[branch].options)
                if likes is not None:
                    alike.setdefault(likes, []).append(file)
            for group in alike.values():
                yield from (Merge(branch, folder, tuple(part)) for part in self._parts(group))

    def _parts(self, files: Sequence[PublishedFile]) -> Iterator[list[PublishedFile]]:
        """Cut files, in their order, into parts of about the target size."""
        part: list[PublishedFile] = []
        size = 0
        for file in files:
            if part and size + file.size_bytes > self._target:
                if len(part) >= self._min_files:
                    yield part
                part, size = [], 0
            part.append(file)
            size += file.size_bytes
        if len(part) >= self._min_files:
            yield part

    # -- publishing ----------------------------------------------------------------------------------------------------
    def _publish(self, compaction: Compaction, state: DatasetState, epoch: int) -> Compaction:
        rewriting = Rewriting(self._job, state, self._run_id, self._root)

        def stage() -> CommitSequence:
            moves = [
                move
                for number, merge in enumerate(compaction.merges, 1)
                for move in self._merge(merge, rewriting, number)
            ]
            return rewriting.sequence(
                moves,
                [file.path for merge in compaction.merges for file in merge.files],
                self._project.clock.now(),
                change=ManualChange("compaction", self._who),
                note=f"{compaction.files} files merged into {len(moves)}",
            )

        sequence = rewriting.commit(self._committer, self._storage, epoch, stage)
        # Readers see the same rows as before, so Dagster need not report it.
        try:
            self._store.mark_reported([sequence.id])
        except GobblinDagsterError as error:
            log.warning(
                "Dataset %r is compacted, and Dagster will report it as published: %s", state.dataset_urn, error
            )
        bytes_after = sum(file.size_bytes for file in sequence.files)
        unseen = self._committer.unseen.get(state.dataset_urn)
        problem = "" if unseen is None else str(unseen)
        return replace(compaction, bytes_after=bytes_after, snapshot=sequence.after.snapshot, problem=problem)

    def _merge(self, merge: Merge, rewriting: Rewriting, number: int) -> list[Move]:
        where = WriterContext(
            storage=self._storage,
            staging_dir=rewriting.staging_dir,
            target_dir=merge.folder.removeprefix(self._root + "/"),
            file_stem=f"{rewriting.commit_id}-compact-{number:04d}",
            branch=merge.branch,
            dataset_urn=rewriting.before.dataset_urn,
            schema=pa.schema([]),
        )
        merger = FileMerger(self._storage, where, self._writers[merge.branch])
        return [Move(file, f"{self._root}/{file.target}") for file in merger.merge(merge.files)]


def _branches_of_files(job: JobSpec) -> set[str]:
    """Return the branches whose files are read only through snapshots; tables may list the files of others."""
    return {name for name, traits in publisher_traits(job).items() if traits.allows_compaction}
