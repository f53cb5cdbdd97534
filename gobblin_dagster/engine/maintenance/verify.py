"""Verify published data: compare the state store, the manifests and the files of a job's output with each other.

The store is the reference. Files are compared with it by size or by content. Manifests are derived from it and can be
written again. Differing files cannot be repaired here: they are listed for a person.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum

from gobblin_dagster.core.commit import WAITING, FileHistory, PublishedFile, SequenceState, StoredSequence
from gobblin_dagster.core.constructs import HeldFile, ListsTableFiles
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError, EnvironmentFaultError, StepRefusedError, StorageError
from gobblin_dagster.core.storage import FoldingStorage, Storage
from gobblin_dagster.core.utils.parallel import in_parallel
from gobblin_dagster.core.utils.table import Column, Table
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.engine.commit.leases import LeaseKeeper, busy_error
from gobblin_dagster.engine.commit.links import folders_above, paths_inside, ways_out
from gobblin_dagster.engine.commit.manifest import (
    compare_manifest,
    derive_manifests,
    expiry_marker,
    files_of_strangers,
    list_all_manifests,
    manifest_dir,
    manifest_path,
)
from gobblin_dagster.engine.commit.step_runner import folders_of
from gobblin_dagster.engine.layout import MANIFEST_DIR, internal_dir, staging_dir
from gobblin_dagster.engine.maintenance.table_files import commit_id_of, names_in_tables
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.publishers import file_listers
from gobblin_dagster.engine.snapshots.lost_store import StoreCheck, branch_folder, missing_commits
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.store import StateStore


class Differs(StrEnum):
    """Kinds of differences between the output and the state store."""

    FILE_MISSING = "file missing"
    FILE_ALTERED = "file altered"
    FILE_EXTRA = "file extra"
    """Readers of folders see it, but no snapshot lists it."""
    MANIFEST_MISSING = "manifest missing"
    MANIFEST_CUT = "manifest cut"
    """The manifest cannot be read."""
    MANIFEST_EDITED = "manifest edited"
    """The manifest can be read, but differs from the store."""
    MANIFEST_UNKNOWN = "manifest unknown"
    """The manifest of a snapshot that the store does not know."""
    MARKER_WRONG = "marker wrong"
    """Readers of manifests take other snapshots as expired than the store does."""
    FOLDER_OUTSIDE = "folder outside"
    """A folder is a link that leads outside of the output, where runs refuse to write."""
    FOLDER_UNREAD = "folder unread"
    """A folder cannot be listed, so nobody knows whether something else is in it."""
    COMMIT_MISSING = "commit missing"
    """A table or topic lacks the newest commit that the store knows."""
    TARGET_UNREAD = "target unread"
    """A table or topic cannot be asked, so it was not compared."""
    RECORD_DAMAGED = "record damaged"
    """The store's record of the dataset cannot be read, so nothing was compared."""


_TRIES = 3
"""How often a dataset is compared again while runs commit."""
_OF_ONE_FILE = (
    errno.ELOOP,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
    errno.ENOTDIR,
    errno.ESTALE,
    errno.EUCLEAN,
    errno.EBADMSG,
)
"""Errors of a single file or folder: all others can still be compared."""
_UNREAD = (StorageError, StepRefusedError, EnvironmentFaultError)
"""Errors of a table or topic that cannot be asked: files can still be compared."""
_MANIFESTS = (Differs.MANIFEST_MISSING, Differs.MANIFEST_CUT, Differs.MANIFEST_EDITED)


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference."""

    what: Differs
    path: str
    detail: str = ""
    is_repaired: bool = False
    can_be_repaired: bool = False
    """True if `repair` mends it: it is derived from the store."""


@dataclass(frozen=True, slots=True)
class VerifiedDataset:
    """The result of one dataset."""

    dataset_urn: str
    snapshot: int
    """Number of the newest snapshot; all readable snapshots were compared."""
    files: int
    size_bytes: int
    differences: tuple[Difference, ...] = ()
    note: str = ""
    """Why the differences may be no fault, or were not repaired: a run works on the dataset."""


_VERIFIED: tuple[Column[VerifiedDataset], ...] = (
    Column("dataset", "text", lambda one: one.dataset_urn),
    Column("snapshot", "number", lambda one: one.snapshot),
    Column("files", "number", lambda one: one.files),
    Column("bytes", "number", lambda one: one.size_bytes),
    Column("differences", "number", lambda one: len(one.differences)),
    Column("note", "text", lambda one: one.note or None),
)


@dataclass(frozen=True, slots=True, repr=False)
class Verification(Table[VerifiedDataset]):
    """The result of one job; shown as a table of its datasets, and iterates them."""

    job: str
    datasets: tuple[VerifiedDataset, ...]
    extra: tuple[Difference, ...] = ()
    """Files that belong to no dataset, or to a table that datasets share, and tables that cannot be asked."""

    @property
    def is_whole(self) -> bool:
        """True if there is no difference, or all were repaired."""
        found = [*self.extra, *(one for dataset in self.datasets for one in dataset.differences)]
        return all(one.is_repaired for one in found)

    def _title(self) -> str:
        return f"job {self.job}: {'nothing differs' if self.is_whole else 'something differs'}"

    def _items(self) -> Sequence[VerifiedDataset]:
        return self.datasets

    def _columns(self) -> Sequence[Column[VerifiedDataset]]:
        return _VERIFIED


def verify(
    project: Project,
    job: JobSpec,
    datasets: Collection[str] | None = None,
    *,
    checksum: bool = False,
    repair: bool = False,
    store: StateStore | None = None,
) -> Verification:
    """Compare what is published of a job with the state store; changes nothing unless `repair`.

    Tables and topics are asked for the newest commits, and tables of files for the files that they list.

    Args:
        project: the project.
        job: one of its jobs.
        datasets: their urns; None takes all, and looks for extra files in the whole output, else beside those of the
            datasets.
        checksum: read every file and compare its content, not only its size.
        store: an open state store, which stays open; default: open one and close it.
        repair: write manifests again if they are missing or differ, under the leases of their datasets.

    Raises:
        TransientError: the store cannot be reached.
        OSError: the output cannot be read.
    """
    with project.use_store(store) as open_store:
        checked = _Verifier(project, job, open_store, checksum=checksum, repair=repair)
        found = checked.compare_all(datasets)
        if repair:
            project.tidy_ended(job, open_store)
            with project.lease_keeper(job, open_store) as leases:
                found = [checked.repaired(one, leases) for one in found]
        known = {checked.path_now(file.path) for one in found for file in checked.known.get(one.dataset_urn, ())}
        strangers = checked.strangers(known, None if datasets is None else folders_of(known))
        found, faults = checked.with_targets(found, known)
        outside = checked.folders_outside(known, (one.dataset_urn for one in found))
        return Verification(job.job, tuple(checked.with_notes(found)), (*outside, *strangers, *faults))


class _Verifier:
    def __init__(self, project: Project, job: JobSpec, store: StateStore, *, checksum: bool, repair: bool) -> None:
        self._project = project
        self._job = job
        self._store = store
        self._storage: Storage = project.storage(job)
        self._root = project.output_root(job)
        self.path_now = paths_inside(self._storage, self._root)
        self._is_by_content = checksum
        self._shall_repair = repair
        self._clock = project.clock
        self.known: dict[str, list[PublishedFile]] = {}
        """Every file that any snapshot ever added, by dataset.urn."""
        self._folds_case = isinstance(self._storage, FoldingStorage) and self._storage.folds_case(self._root)
        self._unlisted: dict[str, Difference] = {}
        """Folders of the output that cannot be listed."""
        self._in_table: dict[str, bool] = {}
        """By folder: whether it is, or lies in, the folder of a Delta or Iceberg table."""

    # -- what the store knows
    # --------------------------------------------------------------------------------------------
    def compare_all(self, datasets: Collection[str] | None) -> list[VerifiedDataset]:
        found = self._looked_at(datasets)[0]
        self._compare_at_rest(found)
        return sorted(found.values(), key=lambda one: one.dataset_urn)

    def _looked_at(
        self, datasets: Collection[str] | None
    ) -> tuple[dict[str, VerifiedDataset], Mapping[str, DatasetState]]:
        """Compare datasets; return the results by urn, and the states that the store had before."""
        states, damaged = self._store.load_readable_states(self._job.job, datasets)
        found = {urn: _unread(urn, error) for urn, error in damaged.items()}
        return found | {urn: self._try(state) for urn, state in states.items()}, states

    def _try(self, state: DatasetState) -> VerifiedDataset:
        try:
            return self._compare(state)
        except CorruptRecordError as error:
            return _unread(state.dataset_urn, error)

    def _compare_at_rest(self, found: dict[str, VerifiedDataset]) -> None:
        """Compare datasets that differ again until no run has worked on them meanwhile; all together, as leases are.

        The store is looked at before the output: what is committed in between makes the one unlike the other.
        """
        left = [urn for urn, one in found.items() if one.differences and not any(map(_is_unread, one.differences))]
        for _ in range(_TRIES):
            if not left:
                return
            leases = self._leases()
            found |= {urn: replace(found[urn], note=leases[urn]) for urn in left if urn in leases}
            left = [urn for urn in left if urn not in leases]
            looked, before = self._looked_at(left)
            forgotten = [urn for urn in left if urn not in looked]
            found |= {urn: replace(found[urn], note="the job has forgotten it meanwhile") for urn in forgotten}
            found |= looked
            left = [urn for urn in before if looked[urn].differences]
            leases = self._leases() if left else {}
            after = self._store.load_readable_states(self._job.job, left)[0]
            left = [urn for urn in left if urn in leases or after.get(urn) != before[urn]]
        worked_on = "runs worked on it each time that it was compared"
        found |= {urn: replace(found[urn], note=worked_on) for urn in left}

    def _compare(self, state: DatasetState) -> VerifiedDataset:
        history = self._store.load_history(state.job, state.dataset_urn)
        self.known[state.dataset_urn] = [one.file for one in history]
        files = [one.file for one in history if _is_readable(state, one)]
        faults = in_parallel(self._file_fault, files, self._job.commit.parallelism)
        differences = [*filter(None, faults), *self._manifest_faults(state)]
        differences += self._faults_in_folder(state, differences)
        size = sum(file.size_bytes for file in files)
        found = VerifiedDataset(state.dataset_urn, state.snapshot, len(files), size, tuple(differences))
        return found if self._shall_repair else self._without_former(found, files)

    def _without_former(self, found: VerifiedDataset, files: Sequence[PublishedFile]) -> VerifiedDataset:
        """Return the result without missing manifests, if all files are whole in a former output of the job.

        Nothing of the dataset is in this output yet, and nothing is lost: its next commit writes all manifests here.
        """
        outside = [file.path for file in files if not self.path_now(file.path).startswith(f"{self._root}/")]
        lacks_all = len(found.differences) == found.snapshot and {one.what for one in found.differences} == {
            Differs.MANIFEST_MISSING
        }
        if not files or len(outside) < len(files) or not lacks_all:
            return found
        note = (
            f"its files are in a former output, such as {outside[0]}: readers of {self._root} find it after its next "
            "commit, or `gobblin verify --repair`, which write its manifests there"
        )
        return replace(found, differences=(), note=note)

    def _file_fault(self, file: PublishedFile) -> Difference | None:
        try:
            return self._difference(file)
        except OSError as error:
            if error.errno not in _OF_ONE_FILE:
                raise
            return Difference(Differs.FILE_ALTERED, file.path, f"it cannot be read: {error.strerror}")

    def _difference(self, file: PublishedFile) -> Difference | None:
        size = self._storage.size(file.path)
        if size is None:
            detail = f"snapshot {file.snapshot} added it to branch {file.branch!r}, {file.rows:,} rows"
            if not self.path_now(file.path).startswith(f"{self._root}/"):
                detail += f"; it lies outside of {self._root}, which was moved, or is another output since"
            return Difference(Differs.FILE_MISSING, file.path, detail)
        if size != file.size_bytes:
            return Difference(Differs.FILE_ALTERED, file.path, f"{file.size_bytes:,} bytes became {size:,}")
        if self._is_by_content and (found := self._storage.sha256(file.path)) != file.sha256:
            return Difference(Differs.FILE_ALTERED, file.path, f"SHA-256 {file.sha256[:12]}... became {found[:12]}...")
        return None

    # -- manifests
    # -------------------------------------------------------------------------------------------------------
    def _manifest_faults(self, state: DatasetState) -> Iterator[Difference]:
        job, urn = state.job, state.dataset_urn
        numbers, newest_version = range(1, state.snapshot + 1), 0
        for number, expected in derive_manifests(self._storage, self._store, self._root, job, urn, numbers):
            path = manifest_path(self._root, job, urn, number)
            try:
                content = self._storage.read(path)
            except (FileNotFoundError, IsADirectoryError):
                yield Difference(Differs.MANIFEST_MISSING, path, can_be_repaired=True)
                continue
            except OSError as error:
                if error.errno not in _OF_ONE_FILE:
                    raise
                detail = f"it cannot be read: {error.strerror}"
                yield Difference(Differs.MANIFEST_CUT, path, detail, can_be_repaired=True)
                continue
            found = compare_manifest(content, expected, self._root, number)
            fault = found.fault
            if not fault and number == state.snapshot and not self._has_schemas(state, found.schemas):
                fault = "it tells readers other types of columns than the state store does"
            if not fault and number == state.snapshot and found.version < newest_version:
                fault = "it has the form of an older version than a manifest below it"
            newest_version = max(0 if fault else found.version, newest_version)
            if fault:
                what = Differs.MANIFEST_CUT if fault.startswith("it cannot be read") else Differs.MANIFEST_EDITED
                yield Difference(what, path, fault, can_be_repaired=True)

    def _faults_in_folder(self, state: DatasetState, others: Collection[Difference]) -> Iterator[Difference]:
        """Yield what lies too much in the folder of manifests, or is missing beside them."""
        job, urn = state.job, state.dataset_urn
        try:
            numbers, markers = list_all_manifests(self._storage, self._root, job, urn)
        except OSError as error:
            yield _unlisted(manifest_dir(self._root, job, urn), error)
            return
        unknown = [
            Difference(
                Differs.MANIFEST_UNKNOWN,
                manifest_path(self._root, job, urn, number),
                f"the newest snapshot that the state store knows is {state.snapshot}",
            )
            for number in numbers
            if number > state.snapshot
        ]
        yield from unknown
        yield from self._marker_faults(state, numbers, markers, [*others, *unknown])

    def _marker_faults(
        self, state: DatasetState, numbers: Sequence[int], markers: Sequence[int], others: Collection[Difference]
    ) -> Iterator[Difference]:
        """Yield the markers of expired snapshots that hide too many, and the one that is missing."""
        job, urn, oldest = state.job, state.dataset_urn, state.oldest_snapshot
        too_high = [number for number in markers if number > oldest]
        # A `clean` that was stopped has written its marker, and is finished by the next run.
        if too_high and oldest < (waiting := self._oldest_of_waiting(state)):
            too_high = [number for number in too_high if number > waiting]
        # The store itself may be the older one: then its manifests or files tell that.
        is_store_older = any(one.what in {Differs.MANIFEST_UNKNOWN, Differs.FILE_MISSING} for one in others)
        for number in too_high:
            detail = f"it marks snapshots below {number} as expired; the oldest that the state store keeps is {oldest}"
            path, is_false = expiry_marker(self._root, job, urn, number), number > max(numbers, default=0)
            yield Difference(Differs.MARKER_WRONG, path, detail, can_be_repaired=is_false or not is_store_older)
        if max(markers, default=1) < oldest and any(number < oldest for number in numbers):
            path = expiry_marker(self._root, job, urn, oldest)
            detail = f"it is missing: readers of manifests find expired snapshots below {oldest}"
            yield Difference(Differs.MARKER_WRONG, path, detail, can_be_repaired=True)

    def _oldest_of_waiting(self, state: DatasetState) -> int:
        stored = self._store.load_sequences(state.job, WAITING, [state.dataset_urn])
        after = [decode_sequence(one, self._store.places, skip_unknown_steps=True).after for one in stored]
        return max((one.oldest_snapshot for one in after), default=0)

    def _has_schemas(self, state: DatasetState, found: Mapping[str, str] | None) -> bool:
        """True if the newest manifest, which tells the types of all, tells those of its commit."""
        if found is None or found == state.schemas:
            return True
        # Commits without files have changed them since.
        stored = self._store.load_sequences(state.job, {SequenceState.COMMITTED}, [state.dataset_urn])
        after = [decode_sequence(one, self._store.places, skip_unknown_steps=True).after for one in stored]
        return any(one.snapshot == state.snapshot and one.schemas == found for one in after)

    def repaired(self, dataset: VerifiedDataset, leases: LeaseKeeper) -> VerifiedDataset:
        """Write the differing manifests of a dataset again, unless a run holds it or the storage refuses."""
        try:
            return self._repaired(dataset, leases)
        except OSError as error:
            path = manifest_dir(self._root, self._job.job, dataset.dataset_urn)
            return replace(dataset, note=str(StorageError.of(error, "repair", path)))

    def _repaired(self, dataset: VerifiedDataset, leases: LeaseKeeper) -> VerifiedDataset:
        urn = dataset.dataset_urn
        if not any(one.can_be_repaired for one in dataset.differences):
            return dataset
        if busy := leases.acquire([urn]).busy:
            return replace(dataset, note=str(busy_error(busy[urn])))
        state = self._store.load_dataset_states(self._job.job, [urn])[urn]
        # Compared again under the lease: a run may have written some of them since.
        dataset = self._compare(state)
        mendable = [one for one in dataset.differences if one.can_be_repaired]
        broken = {one.path for one in mendable if one.what in _MANIFESTS}
        markers = {one.path for one in mendable} - broken
        folder = manifest_dir(self._root, state.job, urn)
        # Markers first, the right one before false ones go: manifests are written from those that they leave readable.
        if (marker := expiry_marker(self._root, state.job, urn, state.oldest_snapshot)) in markers:
            self._storage.put_if_absent(marker, b"")
        for path in sorted(markers - {marker}):
            self._storage.delete(path)
        # One after the other: a repair that is killed leaves no manifest missing but one, which the next repair
        # writes. Ascending, because a manifest lists paths of older files as the manifests below it do.
        numbers = [int(posixpath.basename(path).removesuffix(".json")) for path in sorted(broken)]
        for number, (content, *_) in derive_manifests(self._storage, self._store, self._root, state.job, urn, numbers):
            path = manifest_path(self._root, state.job, urn, number)
            self._storage.delete(path)
            self._storage.put_if_absent(path, content)
        self._storage.sync_dir(folder)
        leases.settle([urn])
        mended = tuple(replace(one, is_repaired=one.path in broken | markers) for one in dataset.differences)
        return replace(dataset, differences=mended)

    # -- tables and topics ---------------------------------------------------------------------------------------------
    def with_targets(
        self, found: list[VerifiedDataset], known: set[str]
    ) -> tuple[list[VerifiedDataset], list[Difference]]:
        """Return the results with commits that tables and topics lack, and what is wrong with the tables themselves.

        Args:
            found: the results.
            known: published files, which were compared.
        """
        check = StoreCheck.of(self._project, self._job, self._store)
        urns = [one.dataset_urn for one in found if not any(_is_unread(diff) for diff in one.differences)]
        faults: list[Difference] = []
        lacking: Mapping[str, str] = {}
        listers: Sequence[tuple[ListsTableFiles, str]] = ()
        try:
            listers = file_listers(self._job, check.context)
            lacking = missing_commits(check, urns)
        except _UNREAD as error:
            faults.append(Difference(Differs.TARGET_UNREAD, "", str(error)))
        for publisher, branch in listers:
            folders = {urn: branch_folder(check, branch, urn) for urn in urns}
            try:
                held = [one for one in publisher.held_files(folders) if self.path_now(one.path) not in known]
            except _UNREAD as error:
                faults.append(Difference(Differs.TARGET_UNREAD, "", str(error)))
                continue
            faults += filter(None, (_fault_of(one, branch) for one in held))
        return [_with(one, lacking.get(one.dataset_urn, "")) for one in found], list(dict.fromkeys(faults))

    # -- links
    # -------------------------------------------------------------------------------------------------------
    def folders_outside(self, known: Iterable[str], urns: Iterable[str]) -> Iterator[Difference]:
        """Yield the folders of files, manifests and staging that lead outside of the output.

        Args:
            known: published files.
            urns: the datasets.
        """
        ours = {folder for folder in folders_of(known) if f"{folder}/".startswith(f"{self._root}/")}
        ours |= {manifest_dir(self._root, self._job.job, urn) for urn in urns}
        ours |= {internal_dir(self._root), staging_dir(self._root)}
        outside = dict(ways_out(self._storage, self._root, ours))
        for folder, real in outside.items():
            if outside.keys().isdisjoint(folders_above(folder)):
                detail = f"it leads to {real}, outside of {self._root}; runs refuse to write there: remove the link"
                yield Difference(Differs.FOLDER_OUTSIDE, folder, detail)

    # -- what the store does not know
    # --------------------------------------------------------------------------------------
    def strangers(self, known: set[str], folders: Collection[str] | None) -> Iterable[Difference]:
        """Return files that readers of folders see but no snapshot of any job lists, of other projects neither."""
        links = {above for folder in folders_of(known) for above in (folder, *folders_above(folder))}
        others = (path for path in self._visible(folders) if path not in known and path not in links)
        found = {path: self._name_of(path) for path in others if not self._is_of_a_table(path)}
        owned = {self._name_of(path) for path in known} if found else set()
        if not owned.issuperset(found.values()):
            owned.update(map(self._name_of, self._owned()))
        if not owned.issuperset(found.values()):  # another project, with a store of its own, may publish here too
            ours = [self._job.job, *self._store.list_jobs()]
            try:
                owned.update(map(self._name_of, files_of_strangers(self._storage, self._root, ours)))
            except OSError as error:
                self._note_unlisted(error.filename or internal_dir(self._root, MANIFEST_DIR), error)
        extra = (path for path, name in found.items() if name not in owned)
        return [*self._unlisted.values(), *(Difference(Differs.FILE_EXTRA, path, self._told(path)) for path in extra)]

    def _name_of(self, path: str) -> str:
        """Return a path as file systems compare it that ignore case: a folder has the case of who made it."""
        return path.casefold() if self._folds_case else path

    def _told(self, path: str) -> str:
        """Say of a file that no snapshot lists whether a table may list it."""
        name = posixpath.basename(path)
        commit_id = commit_id_of(name)
        try:
            stored = self._store.load_sequence(commit_id) if commit_id else None
        except CorruptRecordError:
            return "no snapshot lists it, but the record of its commit is damaged: keep it until that is restored"
        if stored is None or name not in names_in_tables(self._store, self._job, stored):
            return "no snapshot lists it"
        return "no snapshot lists it; keep it if the table lists it to which its commit, which was abandoned, added it"

    def _visible(self, folders: Collection[str] | None) -> Iterator[str]:
        if folders is None:
            paths: Iterable[str] = self._walked(self._root)
        else:
            inside = [folder for folder in folders if f"{folder}/".startswith(f"{self._root}/")]
            joined = (path for folder in inside for path in self._listed(folder))
            paths = (path for path in joined if self._is_file(path))
        return filter(self._is_visible, paths)

    def _is_visible(self, path: str) -> bool:
        return not any(part.startswith((".", "_")) for part in path.removeprefix(f"{self._root}/").split("/"))

    def _walked(self, folder: str) -> Iterator[str]:
        """Yield all files below a folder; if a folder cannot be listed, those of the others, and some of them twice."""
        try:
            yield from self._storage.walk_files(folder)
        except OSError as error:
            if error.errno not in _OF_ONE_FILE:
                raise
        else:
            return
        for path in filter(self._is_visible, self._listed(folder)):
            if self._is_file(path):
                yield path
            else:
                yield from self._walked(path)

    def _listed(self, folder: str) -> list[str]:
        try:
            return [posixpath.join(folder, name) for name in self._storage.list_names(folder)]
        except OSError as error:
            self._note_unlisted(folder, error)
            return []

    def _note_unlisted(self, folder: str, error: OSError) -> None:
        self._unlisted[folder] = _unlisted(folder, error)

    def _is_file(self, path: str) -> bool:
        try:
            return self._storage.size(path) is not None
        except OSError as error:
            if error.errno not in _OF_ONE_FILE:
                raise
            return True  # a link to itself

    def _is_of_a_table(self, path: str) -> bool:
        """Return whether the log of a Delta or Iceberg table tells its readers about a file, whose name is not ours."""
        folder, name = posixpath.split(path)
        return not commit_id_of(name) and self._is_in_table(folder)

    def _is_in_table(self, folder: str) -> bool:
        if not f"{folder}/".startswith(f"{self._root}/"):
            return False
        if folder not in self._in_table:
            is_table = bool(self._storage.list_names(f"{folder}/_delta_log")) or any(
                name.endswith(".metadata.json") for name in self._storage.list_names(f"{folder}/metadata")
            )
            self._in_table[folder] = is_table or self._is_in_table(posixpath.dirname(folder))
        return self._in_table[folder]

    def _owned(self) -> set[str]:
        """Return the files of all jobs in the store, and of unfinished sequences, because outputs may be nested.

        It is asked after the output was listed, because runs go on: unfinished sequences first, which may be committed
        while it is asked for what is.
        """
        owned = self._added_by(self._store.load_sequences(None, WAITING))
        for job in self._store.list_jobs():
            states, damaged = self._store.load_readable_states(job)
            for urn in (*states, *damaged):
                try:
                    owned.update(self.path_now(one.file.path) for one in self._store.load_history(job, urn))
                except CorruptRecordError:
                    owned |= self._added_by(self._store.load_sequences(job, {SequenceState.COMMITTED}, [urn]))
        return owned

    def _added_by(self, found: Iterable[StoredSequence]) -> set[str]:
        """Return the files of sequences; a damaged one is quarantined, and `gobblin commit list` says so."""
        added: set[str] = set()
        for stored in found:
            with suppress(CorruptRecordError):
                sequence = decode_sequence(stored, self._store.places, skip_unknown_steps=True)
                added.update(self.path_now(file.path) for file in sequence.files)
        return added

    def with_notes(self, found: Sequence[VerifiedDataset]) -> Iterator[VerifiedDataset]:
        """Add the runs that work on datasets with differences: they may be between two steps of a commit."""
        differing = {
            one.dataset_urn for one in found if not one.note and any(not d.is_repaired for d in one.differences)
        }
        leases = self._leases() if differing else {}
        for one in found:
            yield replace(one, note=leases[one.dataset_urn]) if one.dataset_urn in differing & leases.keys() else one

    def _leases(self) -> Mapping[str, str]:
        now = self._clock.now()
        held = self._store.load_leases(self._job.job)
        return {urn: str(busy_error(lease)) for urn, lease in held.items() if lease.is_held(now)}


def _fault_of(held: HeldFile, branch: str) -> Difference | None:
    listed = f"the table of branch {branch!r} lists it, {held.size_bytes:,} bytes"
    if held.found_bytes is None:
        return Difference(Differs.FILE_MISSING, held.path, listed)
    if held.found_bytes != held.size_bytes:
        return Difference(Differs.FILE_ALTERED, held.path, f"{listed} became {held.found_bytes:,}")
    return None


def _with(found: VerifiedDataset, lacking: str) -> VerifiedDataset:
    """Return the result with the commit that a target lacks, which `lacking` says; empty if none is lacking."""
    if not lacking:
        return found
    return replace(found, differences=(*found.differences, Difference(Differs.COMMIT_MISSING, "", lacking)))


def _unlisted(folder: str, error: OSError) -> Difference:
    """Return that a folder cannot be listed; raise an error that may be one of all folders, as of a server."""
    if error.errno not in _OF_ONE_FILE:
        raise error
    return Difference(Differs.FOLDER_UNREAD, folder, f"it cannot be listed: {error.strerror}")


def _is_unread(found: Difference) -> bool:
    """Return whether a dataset was not compared at all."""
    return found.what is Differs.RECORD_DAMAGED


def _unread(urn: str, error: CorruptRecordError) -> VerifiedDataset:
    return VerifiedDataset(urn, 0, 0, 0, (Difference(Differs.RECORD_DAMAGED, "", str(error)),))


def _is_readable(state: DatasetState, one: FileHistory) -> bool:
    """True if a snapshot that has not expired holds a file."""
    return any(held.stop > state.oldest_snapshot for held in state.holding(one.file.snapshot, one.removed))
