"""Snapshots of a dataset as readers see them.

A snapshot holds the files of whole commits up to one moment, never half a commit. `history` lists the snapshots, and
`engine.maintenance.rollback` restores an older one by a new commit.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gobblin_dagster.core.commit import PublishedFile
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import StorageError, UsageError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.core.utils.arguments import checked
from gobblin_dagster.core.utils.parallel import in_parallel
from gobblin_dagster.core.utils.table import Column, ShownAsTable
from gobblin_dagster.core.utils.text import printable
from gobblin_dagster.engine.commit.manifest import list_manifests, read_manifest, read_schemas
from gobblin_dagster.engine.project import Project
from gobblin_dagster.spec.job import QUARANTINE_BRANCH, JobSpec
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.storage import open_storage

if TYPE_CHECKING:
    import pyarrow.dataset as ds


@dataclass(frozen=True, slots=True)
class _BranchFiles:
    branch: str
    files: int
    rows: int
    size_bytes: int


_BRANCHES: tuple[Column[_BranchFiles], ...] = (
    Column("branch", "text", lambda one: one.branch),
    Column("files", "number", lambda one: one.files),
    Column("rows", "number", lambda one: one.rows),
    Column("bytes", "number", lambda one: one.size_bytes),
)


@dataclass(frozen=True, slots=True, repr=False)
class PublishedSnapshot(ShownAsTable[_BranchFiles]):
    """The files of one snapshot of one dataset. Give them to any reader, and it sees whole commits only.

    Shown as a table of its branches. Methods take the name of a branch; it may be left out if only one branch has
    files, apart from the quarantine.
    """

    job: str
    dataset_urn: str
    snapshot: int
    """Number of the snapshot; 0 if nothing was published."""
    files: tuple[PublishedFile, ...]
    """Files of all branches, ordered by branch and path."""
    schemas: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Newest Arrow schema by branch, as text, before a writer turned columns into text or folders.

    Empty if an older version wrote the newest manifest."""
    writer_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, compare=False)
    """Options of the branches' writers, needed to read CSV; not in manifests."""

    def paths(self, branch: str | None = None) -> list[str]:
        """Return the paths (or URLs) of a branch's files; empty if the job has that branch, and no rows went there.

        Raises:
            UsageError: nothing shows that there is such a branch; or no branch is named and several have files.
        """
        name = self._branch(branch)
        return [file.path for file in self.files if file.branch == name]

    def folder(self, branch: str | None = None) -> str:
        """Return the folder that holds a branch's files; below it, folder names may be columns (`day=2013-02-06/`).

        If the branch's `path` has changed, this is the folder of the first of `paths`; others may be elsewhere.

        Raises:
            UsageError: as `paths`, or nothing was published.
        """
        return DatasetUrn(self.dataset_urn).folder_in(self._existing(self._branch(branch))[0])

    def to_arrow(self, branch: str | None = None) -> ds.Dataset:
        """Return a branch's files as one lazy pyarrow dataset, on whatever storage they are.

        Shape: the columns of all files in their widest types, null if a file lacks one; then the columns that became
        folders. Types that the files do not hold are taken from `schemas`. Without `schemas`, folders are text, and
        pyarrow guesses the types of CSV and JSON lines.

        Raises:
            UsageError: as `paths`, or nothing was published, or pyarrow cannot read the files, or there is no common
                type for a column.
            EnvironmentFaultError: the storage's package is not installed.
        """
        # Imported here because it is slow to load.
        from gobblin_dagster.engine.snapshots.formats import arrow_dataset, stored_types  # noqa: PLC0415

        urn = self.dataset_urn
        branch = self._branch(branch)
        paths = self._existing(branch)
        types = {urn: stored_types(self.schemas.get(branch, ""))}
        return arrow_dataset(
            {urn: paths}, types, self.writer_options.get(branch, {}), f"dataset {urn!r}, branch {branch!r}"
        )

    @property
    def rows(self) -> Mapping[str, int]:
        """Rows by branch."""
        branches = sorted({file.branch for file in self.files})
        return {name: sum(file.rows for file in self.files if file.branch == name) for name in branches}

    def _existing(self, branch: str) -> list[str]:
        """Return the paths of a branch's files; raises UsageError if it has none."""
        found = self.paths(branch)
        if not found:
            where = f" in branch {branch!r}" if self.files else ""
            raise UsageError(problem=f"Nothing was published of dataset {self.dataset_urn!r}{where}.")
        return found

    def _branch(self, wanted: str | None) -> str:
        """Return the branch that is meant."""
        if not self.files:
            return wanted or ""
        known = sorted({file.branch for file in self.files})
        if wanted is None:
            named = [name for name in known if name != QUARANTINE_BRANCH] or known
            if len(named) == 1:
                return named[0]
            problem = f"Dataset {self.dataset_urn!r} has several branches."
            raise UsageError(problem=problem, hint=f"Name one of {', '.join(known)}.")
        declared = {*known, *self.schemas, *self.writer_options}
        if wanted not in {*declared, QUARANTINE_BRANCH}:
            problem = f"Dataset {self.dataset_urn!r} has no branch {wanted!r}."
            raise UsageError(problem=problem, hint=f"It has {', '.join(sorted(declared))}.")
        return wanted

    def _title(self) -> str:
        what = f"snapshot {self.snapshot}" if self.snapshot else "nothing published"
        return f"dataset {printable(self.dataset_urn)} of job {self.job}: {what}"

    def _items(self) -> Sequence[_BranchFiles]:
        sizes: dict[str, list[PublishedFile]] = {}
        for file in self.files:
            sizes.setdefault(file.branch, []).append(file)
        return [
            _BranchFiles(name, len(files), sum(f.rows for f in files), sum(f.size_bytes for f in files))
            for name, files in sorted(sizes.items())
        ]

    def _columns(self) -> Sequence[Column[_BranchFiles]]:
        return _BRANCHES


def load_published(
    project: Project,
    job: JobSpec,
    dataset_urn: str,
    snapshot: int | None = None,
    *,
    store: StateStore | None = None,
) -> PublishedSnapshot:
    """Look up a snapshot in the state store.

    Args:
        project: the project.
        job: one of its jobs.
        dataset_urn: the dataset.
        snapshot: number of the snapshot; None means the newest.
        store: an open state store, which stays open; default: open one and close it.

    Raises:
        UsageError: there is no such snapshot, or it has expired.
        TransientError: the store cannot be reached.
    """
    with project.use_store(store) as open_store:
        state = open_store.load_dataset_states(job.job, [dataset_urn]).get(dataset_urn)
        if snapshot is not None:
            _require_readable(state, dataset_urn, snapshot)
        files = open_store.load_snapshot(job.job, dataset_urn, snapshot)
    if state is None:
        return PublishedSnapshot(job.job, dataset_urn, 0, ())
    number = state.snapshot if snapshot is None else snapshot
    return PublishedSnapshot(job.job, dataset_urn, number, tuple(files), state.schemas, writer_options(job))


def writer_options(job: JobSpec) -> dict[str, Mapping[str, Any]]:
    """Return the options of a job's writers by branch; readers of some formats need them."""
    return {branch.name: job.writer_of(branch).options for branch in job.fork.branches}


@checked
def read_published(
    output: str | PathLike[str],
    job: str,
    dataset_urn: str,
    snapshot: int | None = None,
    *,
    former_roots: Collection[str | PathLike[str]] = (),
) -> PublishedSnapshot:
    """Look up a snapshot in the manifests beside the data; needs no project and no state store.

    Works on a copy of the lake too.

    Args:
        output: path or URL of the job's output root.
        job: the job's name.
        dataset_urn: the dataset.
        snapshot: number of the snapshot; None means the newest.
        former_roots: earlier output roots of the job, if older files still lie there.

    Raises:
        UsageError: there is no such snapshot.
        CorruptRecordError: a manifest is damaged or missing, or lists a file outside of these folders.
        StorageError: the output cannot be read.
    """
    root = _root_of(output)
    storage = open_storage(root)
    if snapshot is None:
        known = list_manifests(storage, root, job, dataset_urn)
        if not known:
            return PublishedSnapshot(job, dataset_urn, 0, ())
        snapshot = known[-1]
    former = [_root_of(one) for one in former_roots]
    files = read_manifest(storage, root, job, dataset_urn, snapshot, former_roots=former)
    schemas = read_schemas(storage, root, job, dataset_urn)
    return PublishedSnapshot(job, dataset_urn, snapshot, tuple(files), schemas)


def _root_of(output: str | PathLike[str]) -> str:
    root = fspath(output)
    return root.rstrip("/") if "://" in root else str(Path(root).absolute())


def _require_readable(state: DatasetState | None, dataset_urn: str, snapshot: int) -> DatasetState:
    if state is None or not state.snapshot:
        raise UsageError(problem=f"Nothing was published of dataset {dataset_urn!r}.")
    if not 1 <= snapshot <= state.snapshot:
        raise UsageError(
            problem=f"Dataset {dataset_urn!r} has no snapshot {snapshot}.", hint=f"The newest is {state.snapshot}."
        )
    if snapshot < state.oldest_snapshot:
        raise UsageError(
            problem=f"Snapshot {snapshot} of dataset {dataset_urn!r} has expired; its files may be deleted.",
            hint=f"The oldest that is kept is {state.oldest_snapshot} (`commit.keep_snapshots`).",
        )
    return state


_NO_FILE = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EACCES, errno.ENAMETOOLONG, errno.EIO, errno.ESTALE})
"""What the system says of a path that a person has to look at."""


def _require_whole(storage: Storage, files: Sequence[PublishedFile], parallelism: int) -> None:
    def found(file: PublishedFile) -> int | OSError | None:
        try:
            return storage.size(file.path)
        except OSError as error:
            if error.errno not in _NO_FILE:
                raise
            return error

    what_to_do = "Restore it, or choose another snapshot; `gobblin verify` names all files that are gone or altered"
    for file, size in zip(files, in_parallel(found, files, parallelism), strict=True):
        if size != file.size_bytes:
            problem = "it is gone" if size is None else f"it has {size} bytes instead of {file.size_bytes}"
            if isinstance(size, OSError):
                problem = f"it cannot be read: {size.strerror}"
            raise StorageError(operation="roll back, because of", path=file.path, problem=f"{problem}. {what_to_do}")
