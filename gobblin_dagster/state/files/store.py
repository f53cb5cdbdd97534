"""FileStateStore: the state store as plain files, for lakes without a database.

    format.json                                     version of this layout
    former_base.json                                the project's folder when paths were absolute; in stores of layout 1
    sequences/<id>.jsonl                            job, dataset and body of a sequence; written before a head names it
    jobs/<job>/datasets/<urn>/...                   see `files.dataset`
    jobs/<job>/startpoints/<id>                     the dataset.urn that has, or had, this startpoint
    jobs/<job>/startpoint_events/<urn>/<time>-...   what happened to startpoints, for the history; the newest events
                                                    are in the head
    jobs/<job>/startpoint_events/<urn>/.begun       there before the first event of the dataset
    jobs/<job>/runs/<started>-<run id>/<n>.json     run history; the highest number counts

A transaction is one put-if-absent of a dataset's next head. Methods for many datasets use one transaction per dataset.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
from typing import TypeVar

from gobblin_dagster.core.clock import Clock, SystemClock
from gobblin_dagster.core.commit import (
    ENDED,
    UNFINISHED,
    CommitEffect,
    FileHistory,
    PublishedFile,
    SequenceState,
    StoredSequence,
    canonical_json,
)
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import (
    CommitStateUnknownError,
    CorruptRecordError,
    StorageError,
    StoreVersionError,
    TransientError,
)
from gobblin_dagster.core.lease import Lease, LeaseOwner
from gobblin_dagster.core.places import Places
from gobblin_dagster.core.run_record import RunRecord, is_run
from gobblin_dagster.core.startpoint import ALL_JOBS, Startpoint, StartpointChange, StartpointEvent, events_of
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.core.utils.json_text import parse_json
from gobblin_dagster.state.files import changes
from gobblin_dagster.state.files.dataset import AnswerLostError, DatasetFiles
from gobblin_dagster.state.files.log import VersionLog
from gobblin_dagster.state.files.records import DatasetHead, SequenceEntry, decode, encode
from gobblin_dagster.state.store import LeaseGrant

LAYOUT_VERSION = 6
"""1 stored absolute paths; 2 knew only startpoints of whole datasets, and would lose those of partitions; 3 kept all
sequences, and had one folder for parts; 4 had no events of startpoints in heads, and would lose them; 5
wrote heads that a program of layout 4, if it had opened the store before, took for its own."""
_WITHOUT_BASE = 2
"""The first version that stored paths relative to the project's folder."""
_FORMER_BASE = "former_base.json"
_SYSTEM_CLOCK = SystemClock()
_STAYS = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENAMETOOLONG,
        errno.ELOOP,
    }
)
"""Errors that a retry cannot help."""
S = TypeVar("S")
T = TypeVar("T")


def _segment(text: str) -> str:
    """Return an id or job name as a folder name."""
    return DatasetUrn(text).path_segment


def _text(segment: str) -> str:
    return DatasetUrn.from_key(segment).value


def _event_order(key: tuple[str, str]) -> tuple[str, int, str]:
    """Return what orders events by their file and dataset: an import may bring more than ten, and 9 is before 10.

    Files of layout 4 end with the startpoint's id in place of a number.
    """
    begin, _, index = key[0].removesuffix(".json").rpartition("-")
    return begin, int(index) if index.isdigit() else 0, key[1]


@contextmanager
def _fate_of(dataset_urn: str, sequence_id: str) -> Iterator[None]:
    """Raise CommitStateUnknownError if it is not known whether the head of a commit was written."""
    try:
        yield
    except (TransientError, StorageError) as error:
        if not isinstance(error.__cause__, AnswerLostError):
            raise
        raise CommitStateUnknownError(
            dataset_urn=dataset_urn, sequence_id=sequence_id, problem=str(error.__cause__)
        ) from error


class FileStateStore:
    """Implements `StateStore` on any `Storage`; opening creates the store if it does not exist.

    Args:
        root: absolute folder of the store inside `storage`.
        storage: holds the files.
        clock: decides when leases end. The clocks of all machines should differ much less than a lease lasts.
        threads: number of datasets that methods for many datasets work on at once.
        base: the project's folder, absolute. Paths inside it are stored relative to it; empty stores all paths as they
            are.

    Raises:
        StoreVersionError: the store has a newer layout; nothing was changed.
        StorageError: the folder cannot be used.

    Source: gobblin-runtime `FsDatasetStateStore`. Differs: files are never overwritten, and a writer must have read the
    newest version to write the next one.
    """

    def __init__(
        self, root: str, storage: Storage, clock: Clock = _SYSTEM_CLOCK, threads: int = 8, base: str = ""
    ) -> None:
        self._root = root
        self._storage = storage
        self._clock = clock
        self._threads = threads
        with self._errors():
            self._check_format(base)
            self._places = Places(base, self._former_base())

    def __repr__(self) -> str:
        return f"FileStateStore({self._root!r}, {self._storage!r})"

    @property
    def places(self) -> Places:
        return self._places

    @property
    def url(self) -> str:
        return f"files:{self._root}"

    def close(self) -> None:
        """Do nothing: no file stays open between calls."""

    def now(self) -> datetime:
        return self._clock.now()

    def _path(self, *parts: str) -> str:
        return posixpath.join(self._root, *parts)

    def _check_format(self, base: str) -> None:
        version = self._layout_version()
        if version > LAYOUT_VERSION:
            raise StoreVersionError(store=self.url, found=str(version), known=str(LAYOUT_VERSION))
        if version < LAYOUT_VERSION:
            try:
                if version < _WITHOUT_BASE:
                    # First, so that it is there whenever the newer version is.
                    self._storage.put_if_absent(self._path(_FORMER_BASE), canonical_json({"base": base}).encode())
                self._storage.delete(self._path("format.json"))
                self._layout_version()
            except OSError as error:
                if error.errno not in _STAYS:
                    raise
                # Whoever may only read, or has no room left, can still look at the store.

    def _layout_version(self) -> int:
        """Return the version of the layout, making a store where there is none."""
        path = self._path("format.json")
        try:
            # Read first, so that the store can be looked at without write permission or free space.
            content = self._storage.read(path)
        except FileNotFoundError:
            content = canonical_json({"store": "gobblin", "version": LAYOUT_VERSION}).encode()
            if not self._storage.put_if_absent(path, content):
                content = self._storage.read(path)
        try:
            return int(parse_json(content)["version"])
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptRecordError(what=f"The record {path}", problem=f"no version in {content[:80]!r}") from error

    def _former_base(self) -> str:
        """Return the project's folder while paths were absolute; empty where they never were."""
        path = self._path(_FORMER_BASE)
        try:
            content = self._storage.read(path)
        except FileNotFoundError:
            return ""
        try:
            return str(parse_json(content)["base"])
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptRecordError(what=f"The record {path}", problem=f"no folder in {content[:80]!r}") from error

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of the storage into ours."""
        try:
            yield
        except OSError as error:
            if error.errno in _STAYS:
                raise StorageError(operation="use the state store", path=self.url, problem=str(error)) from error
            raise TransientError(problem=f"State store {self.url} cannot be used now: {error}.") from error

    def _each(self, function: Callable[[S], T], items: Iterable[S]) -> list[T]:
        """Call a function for each item, in threads: most of the time is waiting for a disk or a network."""
        work = list(items)
        with self._errors():
            if min(self._threads, len(work)) <= 1:
                return [function(item) for item in work]
            with ThreadPoolExecutor(min(self._threads, len(work))) as pool:
                return list(pool.map(function, work))

    # -- finding things ------------------------------------------------------------------------------------------------
    def _names(self, *parts: str) -> list[str]:
        """Return the decoded names in a folder, without hidden files, which belong to other programs."""
        return [_text(name) for name in self._storage.list_names(self._path(*parts)) if not name.startswith(".")]

    def _jobs(self) -> list[str]:
        return sorted(self._names("jobs"))

    def _dataset(self, job: str, urn: str) -> DatasetFiles:
        folder = self._path("jobs", _segment(job), "datasets", _segment(urn))
        return DatasetFiles(self._storage, folder, job, urn, self._places)

    def _datasets(self, job: str, urns: Collection[str] | None = None) -> list[DatasetFiles]:
        if urns is None:
            with self._errors():
                urns = self._names("jobs", _segment(job), "datasets")
        return [self._dataset(job, urn) for urn in dict.fromkeys(urns)]

    def _sequence_path(self, sequence_id: str) -> str:
        return self._path("sequences", f"{_segment(sequence_id)}.jsonl")

    def _find(self, sequence_id: str) -> DatasetFiles | None:
        """Return the dataset of a sequence, which it may yet have failed to reach."""
        path = self._sequence_path(sequence_id)
        try:
            content = self._storage.read(path)
        except FileNotFoundError:
            return None
        try:
            owner = parse_json(content.partition(b"\n")[0])
            return self._dataset(owner["job"], owner["dataset_urn"])
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptRecordError(what=f"The record {path}", problem=f"it names no dataset: {error}") from error

    def _stored_body(self, sequence_id: str) -> str:
        """Return a body as it is stored; empty if it is lost."""
        with suppress(FileNotFoundError):
            return self._storage.read(self._sequence_path(sequence_id)).partition(b"\n")[2].decode(errors="replace")
        return ""

    def _with_body(self, entry: SequenceEntry) -> StoredSequence | None:
        """Return the sequence with its body; None if it was pruned after it was found.

        A body that was damaged or lost is handed out as it is: its digest tells, for this dataset alone.
        """
        dataset = self._dataset(entry.sequence.job, entry.sequence.dataset_urn)
        body = self._stored_body(entry.sequence.id)
        if not body and entry.sequence.version_read < dataset.pruned_below():
            return None
        return replace(entry.sequence, body=dataset.whole_body(body))

    def _with_bodies(self, entries: Iterable[SequenceEntry]) -> list[StoredSequence]:
        return [one for one in self._each(self._with_body, entries) if one is not None]

    # -- dataset states ------------------------------------------------------------------------------------------------
    def load_dataset_states(self, job: str, urns: Collection[str] | None = None) -> dict[str, DatasetState]:
        states, damaged = self.load_readable_states(job, urns)
        for error in damaged.values():
            raise error
        return states

    def load_readable_states(
        self, job: str, urns: Collection[str] | None = None
    ) -> tuple[dict[str, DatasetState], dict[str, CorruptRecordError]]:
        heads, damaged = self._heads(job, urns)
        return {head.dataset_urn: head.state for head in heads if head.state is not None}, damaged

    def _heads(
        self, job: str, urns: Collection[str] | None = None
    ) -> tuple[list[DatasetHead], dict[str, CorruptRecordError]]:
        """Return heads and, apart from them, why those of other datasets cannot be read."""
        damaged: dict[str, CorruptRecordError] = {}

        def head(dataset: DatasetFiles) -> DatasetHead | None:
            try:
                return dataset.head()
            except CorruptRecordError as error:
                damaged[dataset.dataset_urn] = error
                return None

        found = self._each(head, self._datasets(job, urns))
        return [one for one in found if one is not None], damaged

    def restore(self, job: str, dataset_urn: str) -> bool:
        with self._errors():
            return self._dataset(job, dataset_urn).restore()

    def list_jobs(self) -> list[str]:
        with self._errors():
            return [job for job in self._jobs() if job != ALL_JOBS and self._is_known(job)]

    def _is_known(self, job: str) -> bool:
        """Return whether the store holds more of a job than leases."""
        if self._storage.list_names(self._path("jobs", _segment(job), "runs")):
            return True
        if self._storage.list_names(self._path("jobs", _segment(job), "startpoint_events")):
            return True
        heads, damaged = self._heads(job)
        return bool(damaged) or any(head.entry is not None or head.all_startpoints for head in heads)

    # -- leases --------------------------------------------------------------------------------------------------------
    def acquire_leases(self, job: str, urns: Collection[str], owner: LeaseOwner, ttl: timedelta) -> LeaseGrant:
        is_dead = cache(LeaseOwner.is_provably_dead)

        inherited: set[str] = set()

        def acquire(dataset: DatasetFiles) -> Lease | None:
            now = self._clock.now()

            def taken(head: DatasetHead, _: int) -> DatasetHead | None:
                if changes.is_inherited(head, owner):
                    inherited.add(dataset.dataset_urn)
                else:  # added by an earlier try, before another writer was faster
                    inherited.discard(dataset.dataset_urn)
                return changes.acquire(head, owner, now, now + ttl, is_dead)

            return dataset.change(taken).lease

        leases = [lease for lease in self._each(acquire, self._datasets(job, urns)) if lease is not None]
        granted = {lease.dataset_urn: lease for lease in leases if lease.owner == owner}
        busy = {lease.dataset_urn: lease for lease in leases if lease.owner != owner}
        return LeaseGrant(granted, busy, frozenset(inherited & granted.keys()))

    def renew_leases(self, job: str, leases: Collection[Lease], ttl: timedelta) -> dict[str, Lease]:
        def renew(lease: Lease) -> Lease | None:
            until = self._clock.now() + ttl
            dataset = self._dataset(job, lease.dataset_urn)
            head = dataset.change(lambda head, _: changes.renew(head, lease, until))
            return head.lease if changes.holds(head, lease) else None

        return {lease.dataset_urn: lease for lease in self._each(renew, leases) if lease is not None}

    def release_leases(self, job: str, leases: Collection[Lease]) -> None:
        def release(lease: Lease) -> None:
            self._dataset(job, lease.dataset_urn).change(lambda head, _: changes.release(head, lease))

        self._each(release, leases)

    def leave_leases(self, job: str, epochs: Mapping[str, int]) -> None:
        def leave(dataset: DatasetFiles) -> None:
            dataset.change(lambda head, _: changes.leave(head, epochs[dataset.dataset_urn]))

        self._each(leave, self._datasets(job, epochs))

    def load_leases(self, job: str) -> dict[str, Lease]:
        return {head.dataset_urn: head.lease for head in self._heads(job)[0] if head.lease is not None}

    # -- commit protocol -----------------------------------------------------------------------------------------------
    def prepare(self, sequence: StoredSequence, epoch: int) -> None:
        dataset = self._dataset(sequence.job, sequence.dataset_urn)

        def prepare(head: DatasetHead, number: int) -> DatasetHead:
            return self._prepared(dataset, head, sequence, epoch, number)

        with self._errors():
            dataset.change(prepare)

    def prepare_all(self, items: Sequence[tuple[StoredSequence, int]]) -> None:
        for sequence, epoch in items:
            self.prepare(sequence, epoch)

    def _prepared(
        self, dataset: DatasetFiles, head: DatasetHead, sequence: StoredSequence, epoch: int, number: int
    ) -> DatasetHead:
        prepared = changes.prepare(head, sequence, epoch, number)
        self._archive(dataset, head)
        self._put_body(head, sequence)
        return prepared

    def _archive(self, dataset: DatasetFiles, head: DatasetHead) -> None:
        """Write the sequence and the events of a head to files, before another head takes its place without them."""
        if head.entry is not None:
            dataset.archive(head.entry)
        self._archive_events(head)

    def _put_body(self, head: DatasetHead, sequence: StoredSequence) -> None:
        path = self._sequence_path(sequence.id)
        owner = canonical_json({"job": sequence.job, "dataset_urn": sequence.dataset_urn})
        body = self._dataset(sequence.job, sequence.dataset_urn).store_apart(head, sequence.body)
        content = f"{owner}\n{body}".encode()
        if not self._storage.put_if_absent(path, content) and self._storage.read(path) != content:
            raise CorruptRecordError(what=f"The record {path}", problem="another sequence of this id was stored before")

    def commit(self, sequence_id: str, epoch: int, effect: CommitEffect) -> None:
        def commit(dataset: DatasetFiles, head: DatasetHead) -> DatasetHead | None:
            return _committed(dataset, head, epoch, effect)

        with _fate_of(effect.after.dataset_urn, sequence_id):
            self._change(sequence_id, commit)
        self._forget_markers(effect.after.job, effect.startpoints)

    def commit_all(self, items: Sequence[tuple[str, int, CommitEffect]]) -> None:
        for sequence_id, epoch, effect in items:
            self.commit(sequence_id, epoch, effect)

    def record(self, sequence: StoredSequence, epoch: int, effect: CommitEffect) -> None:
        dataset = self._dataset(sequence.job, sequence.dataset_urn)

        def record(head: DatasetHead, number: int) -> DatasetHead | None:
            return _committed(dataset, self._prepared(dataset, head, sequence, epoch, number), epoch, effect)

        with _fate_of(sequence.dataset_urn, sequence.id), self._errors():
            dataset.change(record)
        self._forget_markers(sequence.job, effect.startpoints)

    def adopt(self, sequence: StoredSequence, epoch: int, after: DatasetState, history: Sequence[FileHistory]) -> None:
        dataset = self._dataset(sequence.job, sequence.dataset_urn)

        def adopt(head: DatasetHead, number: int) -> DatasetHead:
            adopted = changes.adopt(head, sequence, epoch, after, number)
            self._archive(dataset, head)
            self._put_body(head, sequence)
            return dataset.add_base(adopted, after.snapshot, history)

        with _fate_of(sequence.dataset_urn, sequence.id), self._errors():
            dataset.change(adopt)

    def prune_sequences(self, job: str, dataset_urn: str, below: int) -> int:
        dataset = self._dataset(job, dataset_urn)
        with self._errors():
            head = dataset.prune(below, self._stored_body)
            old = dataset.vanished(head)

        def delete(sequence_id: str) -> None:
            # The body first: what is still in the archive is found by the next call.
            self._storage.delete(self._sequence_path(sequence_id))
            dataset.forget(sequence_id)

        self._each(delete, old)
        with self._errors():
            dataset.forget_parts(head)
        return len(old)

    def start_abort(self, sequence_id: str, epoch: int, reason: str) -> None:
        self._change(sequence_id, lambda _, head: changes.start_abort(head, epoch, reason))

    def finish_abort(self, sequence_id: str, epoch: int) -> None:
        self._change(sequence_id, lambda _, head: changes.finish_abort(head, epoch))

    def quarantine(self, sequence_id: str, reason: str) -> None:
        self._change(sequence_id, lambda _, head: changes.quarantine(head, reason))

    def abandon(self, sequence_id: str, epoch: int, reason: str) -> None:
        self._change(sequence_id, lambda _, head: changes.abandon(head, epoch, reason))

    def retry(self, sequence_id: str, epoch: int) -> None:
        self._change(sequence_id, lambda _, head: changes.retry(head, epoch))

    def record_redo_failure(self, sequence_id: str, reason: str) -> int:
        entry = self._change(sequence_id, lambda _, head: changes.count_redo_failure(head, reason)).entry
        return entry.sequence.redo_failures if entry else 0

    def _change(
        self, sequence_id: str, apply: Callable[[DatasetFiles, DatasetHead], DatasetHead | None]
    ) -> DatasetHead:
        """Change the head that holds a sequence.

        A sequence in the archive has ended: raise CorruptRecordError if `apply` would change it.
        """
        unknown = CorruptRecordError(what=f"Commit sequence {sequence_id}", problem="the state store does not hold it")
        with self._errors():
            dataset = self._find(sequence_id)
            if dataset is None:
                raise unknown

            def change(head: DatasetHead, _: int) -> DatasetHead | None:
                if head.entry is not None and head.entry.sequence.id == sequence_id:
                    return apply(dataset, head)
                entry = dataset.archived(head, sequence_id)
                if entry is None:
                    raise unknown
                if apply(dataset, replace(head, entry=entry)) is not None:
                    problem = f"it has ended as {entry.sequence.state} and cannot change"
                    raise CorruptRecordError(what=f"Commit sequence {sequence_id}", problem=problem)
                return None

            return dataset.change(change)

    def load_sequence(self, sequence_id: str) -> StoredSequence | None:
        with self._errors():
            dataset = self._find(sequence_id)
            if dataset is None:
                return None
            head = dataset.head()
            entry = head.entry
            if entry is None or entry.sequence.id != sequence_id:
                entry = dataset.archived(head, sequence_id)
            return self._with_body(entry) if entry else None

    def load_sequences(
        self,
        job: str | None = None,
        states: Collection[SequenceState] = UNFINISHED,
        urns: Collection[str] | None = None,
        limit: int | None = None,
        below: int | None = None,
    ) -> list[StoredSequence]:
        wanted = frozenset(states)
        with self._errors():
            jobs = self._jobs() if job is None else [job]
        datasets = [dataset for name in jobs for dataset in self._datasets(name, urns)]
        entries = self._each(lambda dataset: dataset.entries(is_ended_too=bool(wanted & ENDED)), datasets)
        found = [entry for some in entries for entry in some if entry.sequence.state in wanted]
        if below is not None:
            found = [entry for entry in found if entry.sequence.version_read < below]
        return self._with_bodies(sorted(found, key=_age, reverse=True)[:limit])

    # -- snapshots -----------------------------------------------------------------------------------------------------
    def load_snapshot(self, job: str, dataset_urn: str, snapshot: int | None = None) -> list[PublishedFile]:
        with self._errors():
            files = self._dataset(job, dataset_urn).files(snapshot)
        return sorted(files, key=lambda file: (file.branch, file.path))

    def load_history(self, job: str, dataset_urn: str) -> list[FileHistory]:
        with self._errors():
            return self._dataset(job, dataset_urn).history()

    # -- startpoints ---------------------------------------------------------------------------------------------------
    def save_startpoint(self, startpoint: Startpoint) -> None:
        self._store_startpoint(startpoint, lambda _: True, "set", startpoint.who)

    def fan_out_startpoint(self, copy: Startpoint, run_id: str) -> bool:
        return self._store_startpoint(copy, copy.replaces, "fanned out", run_id)

    def _store_startpoint(
        self, startpoint: Startpoint, may_replace: Callable[[Startpoint], bool], change: StartpointChange, who: str
    ) -> bool:
        def save(head: DatasetHead, found: Startpoint | None) -> tuple[DatasetHead, list[StartpointEvent]] | None:
            if found is not None and not may_replace(found):
                return None
            return changes.save_startpoint(head, startpoint), events_of(change, startpoint, found, self.now(), who)

        with self._errors():
            self._mark(startpoint)
        is_stored, found = self._change_startpoint(startpoint, save)
        if is_stored and found is not None and found.id != startpoint.id:
            self._forget_markers(startpoint.job, [found.id])
        return is_stored

    def pin_startpoint(self, startpoint: Startpoint, run_id: str) -> bool:
        def pin(head: DatasetHead, found: Startpoint | None) -> tuple[DatasetHead, list[StartpointEvent]] | None:
            if found is None or found.id != startpoint.id:
                return None
            events = events_of("fanned out", startpoint, found, self.now(), run_id)
            return changes.save_startpoint(head, startpoint), events

        return self._change_startpoint(startpoint, pin)[0]

    def load_startpoints(self, job: str, urns: Collection[str] | None = None) -> dict[str, Startpoint]:
        return {one.dataset_urn: one for one in self.list_startpoints(job, urns) if not one.partition}

    def list_startpoints(self, job: str, urns: Collection[str] | None = None) -> list[Startpoint]:
        with self._errors():
            marked = self._each(self._marked, [self._marker(job, marker) for marker in self._names(*_markers(job))])
        wanted = {urn for urn in marked if urn is not None and (urns is None or urn in urns)}
        heads, _ = self._heads(job, wanted)
        return [one for head in sorted(heads, key=lambda head: head.dataset_urn) for one in head.all_startpoints]

    def delete_startpoint(self, startpoint: Startpoint, who: str, change: StartpointChange = "removed") -> bool:
        def delete(head: DatasetHead, found: Startpoint | None) -> tuple[DatasetHead, list[StartpointEvent]] | None:
            event = StartpointEvent(startpoint, change, self.now(), who)
            if found is None or not event.may_delete(found):
                return None
            return changes.delete_startpoint(head, startpoint.partition), [event]

        is_there, found = self._change_startpoint(startpoint, delete)
        if is_there or found is None or found.id != startpoint.id:
            self._forget_markers(startpoint.job, [startpoint.id])
        return is_there

    def _change_startpoint(
        self,
        startpoint: Startpoint,
        apply: Callable[[DatasetHead, Startpoint | None], tuple[DatasetHead, list[StartpointEvent]] | None],
    ) -> tuple[bool, Startpoint | None]:
        """Change the startpoint of a key.

        Args:
            startpoint: has the key.
            apply: takes the head and the startpoint that the key holds; returns the next head and the events of the
                change, or None if nothing is to be changed.

        Returns:
            Whether `apply` changed anything, and what the key held before.
        """
        is_changed, found = False, None

        def change(head: DatasetHead, number: int) -> DatasetHead | None:
            nonlocal is_changed, found
            found = changes.startpoint_of(head, startpoint.partition)
            changed = apply(head, found)
            is_changed = changed is not None
            return None if changed is None else self._with_events(head, *changed, number)

        with self._errors():
            self._dataset(startpoint.job, startpoint.dataset_urn).change(change)
        return is_changed, found

    def import_startpoints(
        self, job: str, dataset_urn: str, startpoints: Sequence[Startpoint], events: Sequence[StartpointEvent]
    ) -> None:
        def bring(head: DatasetHead, number: int) -> DatasetHead:
            # The later one of a key counts.
            brought = changes.with_startpoints(head, [*startpoints, *head.all_startpoints])
            return self._with_events(head, brought, events, number)

        with self._errors():
            for startpoint in startpoints:
                self._mark(startpoint)
            self._dataset(job, dataset_urn).change(bring)

    def _with_events(
        self, before: DatasetHead, after: DatasetHead, events: Sequence[StartpointEvent], number: int
    ) -> DatasetHead:
        """Return the head after a change with the change's events, and write those of the head before it to files."""
        if not events:
            return after
        self._archive_events(before)
        # Before the first event: `load_startpoint_events` reads only heads of datasets that have this file.
        self._storage.put_if_absent(self._event_path(after.job, after.dataset_urn, ".begun"), b"")
        return changes.with_events(after, events, number)

    def _mark(self, startpoint: Startpoint) -> None:
        """Write the marker of a startpoint, before its head: `list_startpoints` reads only heads that have a marker."""
        marker = self._marker(startpoint.job, startpoint.id)
        self._storage.put_if_absent(marker, startpoint.dataset_urn.encode())

    def _marker(self, job: str, startpoint_id: str) -> str:
        return self._path(*_markers(job), _segment(startpoint_id))

    def _marked(self, marker: str) -> str | None:
        try:
            return self._storage.read(marker).decode()
        except FileNotFoundError:
            return None  # deleted by a commit after it was listed

    def _forget_markers(self, job: str, ids: Collection[str]) -> None:
        """Delete the markers of startpoints that a commit deleted; a marker that stays only costs one more read."""
        for startpoint_id in ids:
            with suppress(OSError):
                self._storage.delete(self._marker(job, startpoint_id))

    def _event_path(self, job: str, urn: str, *name: str) -> str:
        return self._path("jobs", _segment(job), "startpoint_events", _segment(urn), *name)

    def _archive_events(self, head: DatasetHead) -> None:
        for noted in head.startpoint_events:
            path = self._event_path(head.job, head.dataset_urn, noted.file_name)
            self._storage.put_if_absent(path, encode(noted.event))

    def load_startpoint_events(self, job: str, urns: Collection[str] | None = None) -> list[StartpointEvent]:
        with self._errors():
            begun = self._names("jobs", _segment(job), "startpoint_events")
        wanted = [urn for urn in begun if urns is None or urn in urns]
        # The heads first: events that go to files meanwhile are then found twice instead of never.
        heads, _ = self._heads(job, wanted)
        found = {(noted.file_name, head.dataset_urn): noted.event for head in heads for noted in head.startpoint_events}
        with self._errors():
            keys = [
                (name, urn)
                for urn in wanted
                for name in self._storage.list_names(self._event_path(job, urn))
                if not name.startswith(".") and (name, urn) not in found
            ]
        paths = [self._event_path(job, urn, name) for name, urn in keys]
        contents = self._each(self._storage.read, paths)
        for key, content, path in zip(keys, contents, paths, strict=True):
            found[key] = decode(StartpointEvent, content, path)
        return [found[key] for key in sorted(found, key=_event_order)]

    # -- reporting to Dagster ------------------------------------------------------------------------------------------
    def load_unreported(self, job: str, limit: int | None = None) -> list[StoredSequence]:
        entries = self._each(DatasetFiles.unreported, self._datasets(job))
        found = [entry for some in entries for entry in some if entry.sequence.state is SequenceState.COMMITTED]
        return self._with_bodies(sorted(found, key=_age)[:limit])

    def mark_reported(self, sequence_ids: Collection[str]) -> None:
        self._each(self._mark_reported, sequence_ids)

    def _mark_reported(self, sequence_id: str) -> None:
        dataset = self._find(sequence_id)
        if dataset is None:
            return

        def mark(head: DatasetHead, _: int) -> DatasetHead | None:
            if head.entry is not None and head.entry.sequence.id == sequence_id:
                return changes.mark_reported(head)
            entry = dataset.archived(head, sequence_id)
            if entry is not None:
                dataset.archive(replace(entry, sequence=replace(entry.sequence, reported=True)))
            return None

        dataset.change(mark)

    # -- run history ---------------------------------------------------------------------------------------------------
    def save_run(self, record: RunRecord) -> None:
        # The name begins with the time, so that the newest runs are found without reading the others.
        name = f"{record.started_at.astimezone(UTC):%Y%m%dT%H%M%S%f}-{_segment(record.run_id)}"
        log = VersionLog(self._storage, self._path("jobs", _segment(record.job), "runs", name))
        with self._errors():
            log.write(encode(record))

    def prune_runs(self, job: str, keep: int) -> None:
        folder = self._path("jobs", _segment(job), "runs")
        with self._errors():
            for name in sorted(self._storage.list_names(folder), reverse=True)[keep:]:
                self._storage.delete_tree(posixpath.join(folder, name))

    def load_runs(self, job: str | None = None, limit: int = 20) -> list[RunRecord]:
        with self._errors():
            folders = [self._path("jobs", _segment(name), "runs") for name in (self._jobs() if job is None else [job])]
            runs = [(name, folder) for folder in folders for name in self._storage.list_names(folder)]
            logs = (VersionLog(self._storage, posixpath.join(at, name)) for name, at in sorted(runs, reverse=True))
            # If a run was killed while it wrote its first record, its folder is empty.
            newest = ((log, *log.read_newest()) for log in logs)
            records = (decode(RunRecord, content, log.path(n)) for log, n, content in newest if n)
            return list(islice(records, limit))

    def find_runs(self, job: str, run_ids: Collection[str]) -> list[RunRecord]:
        segments = {_segment(run_id) for run_id in run_ids}
        with self._errors():
            folder = self._path("jobs", _segment(job), "runs")
            names = self._storage.list_names(folder) if segments else []
            wanted = [name for name in sorted(names, reverse=True) if is_run(name.partition("-")[2], segments)]
            logs = [VersionLog(self._storage, posixpath.join(folder, name)) for name in wanted]
            newest = ((log, *log.read_newest()) for log in logs)
            return [decode(RunRecord, content, log.path(n)) for log, n, content in newest if n]


def _committed(dataset: DatasetFiles, head: DatasetHead, epoch: int, effect: CommitEffect) -> DatasetHead | None:
    committed = changes.commit(head, epoch, effect)
    return None if committed is None else dataset.add_part(committed, effect)


def _markers(job: str) -> tuple[str, str, str]:
    return "jobs", _segment(job), "startpoints"


def _age(entry: SequenceEntry) -> tuple[datetime, int, str]:
    return entry.sequence.created_at, entry.number, entry.sequence.id
