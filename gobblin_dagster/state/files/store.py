"""FileStateStore: the state store as plain files, for lakes without a database.

    format.json, former_base.json       see `files.folder`
    sequences/<id>.jsonl                job, dataset and body of a sequence; written before a head names it
    jobs/<job>/datasets/<urn>/...       see `files.dataset`
    jobs/<job>/startpoints/...          see `files.startpoints`
    jobs/<job>/startpoint_events/...    see `files.startpoints`
    jobs/<job>/runs/...                 see `files.runs`

A transaction is one put-if-absent of a dataset's next head. Methods for many datasets use one transaction per dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta

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
    TransientError,
)
from gobblin_dagster.core.lease import Lease, LeaseOwner
from gobblin_dagster.core.places import Places
from gobblin_dagster.core.run_record import RunRecord
from gobblin_dagster.core.startpoint import ALL_JOBS, Startpoint, StartpointChange, StartpointEvent
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.utils.json_text import parse_json
from gobblin_dagster.state.files import changes
from gobblin_dagster.state.files import leases as file_leases
from gobblin_dagster.state.files import runs as file_runs
from gobblin_dagster.state.files.dataset import AnswerLostError, DatasetFiles
from gobblin_dagster.state.files.folder import StoreFolder, segment
from gobblin_dagster.state.files.records import DatasetHead, SequenceEntry
from gobblin_dagster.state.files.startpoints import StartpointFiles
from gobblin_dagster.state.store import LeaseGrant

_SYSTEM_CLOCK = SystemClock()


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
        address: the folder as a person writes it, with its file system, for messages; empty: `root`.

    Raises:
        StoreVersionError: the store has a newer layout; nothing was changed.
        StorageError: the folder cannot be used.

    Source: gobblin-runtime `FsDatasetStateStore`. Differs: files are never overwritten, and a writer must have read the
    newest version to write the next one.
    """

    def __init__(
        self,
        root: str,
        storage: Storage,
        clock: Clock = _SYSTEM_CLOCK,
        threads: int = 8,
        base: str = "",
        address: str = "",
    ) -> None:
        self._folder = StoreFolder(root, storage, threads, base, address)
        self._clock = clock
        self._startpoints = StartpointFiles(self._folder, clock)

    def __repr__(self) -> str:
        return f"FileStateStore({self._folder.root!r}, {self._folder.storage!r})"

    @property
    def places(self) -> Places:
        return self._folder.places

    @property
    def url(self) -> str:
        return self._folder.url

    def close(self) -> None:
        """Do nothing: no file stays open between calls."""

    def now(self) -> datetime:
        return self._clock.now()

    # -- finding sequences ---------------------------------------------------------------------------------------------
    def _sequence_path(self, sequence_id: str) -> str:
        return self._folder.path("sequences", f"{segment(sequence_id)}.jsonl")

    def _find(self, sequence_id: str) -> DatasetFiles | None:
        """Return the dataset of a sequence, which it may yet have failed to reach."""
        path = self._sequence_path(sequence_id)
        try:
            content = self._folder.storage.read(path)
        except FileNotFoundError:
            return None
        try:
            owner = parse_json(content.partition(b"\n")[0])
            return self._folder.dataset(owner["job"], owner["dataset_urn"])
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptRecordError(what=f"The record {path}", problem=f"it names no dataset: {error}") from error

    def _stored_body(self, sequence_id: str) -> str:
        """Return a body as it is stored; empty if it is lost."""
        with suppress(FileNotFoundError):
            return (
                self._folder.storage.read(self._sequence_path(sequence_id)).partition(b"\n")[2].decode(errors="replace")
            )
        return ""

    def _with_body(self, entry: SequenceEntry) -> StoredSequence | None:
        """Return the sequence with its body; None if it was pruned after it was found.

        A body that was damaged or lost is handed out as it is: its digest tells, for this dataset alone.
        """
        dataset = self._folder.dataset(entry.sequence.job, entry.sequence.dataset_urn)
        body = self._stored_body(entry.sequence.id)
        if not body and entry.sequence.version_read < dataset.pruned_below():
            return None
        return replace(entry.sequence, body=dataset.whole_body(body))

    def _with_bodies(self, entries: Iterable[SequenceEntry]) -> list[StoredSequence]:
        return [one for one in self._folder.each(self._with_body, entries) if one is not None]

    # -- dataset states ------------------------------------------------------------------------------------------------
    def load_dataset_states(self, job: str, urns: Collection[str] | None = None) -> dict[str, DatasetState]:
        states, damaged = self.load_readable_states(job, urns)
        for error in damaged.values():
            raise error
        return states

    def load_readable_states(
        self, job: str, urns: Collection[str] | None = None
    ) -> tuple[dict[str, DatasetState], dict[str, CorruptRecordError]]:
        heads, damaged = self._folder.heads(job, urns)
        return {head.dataset_urn: head.state for head in heads if head.state is not None}, damaged

    def restore(self, job: str, dataset_urn: str) -> bool:
        with self._folder.errors():
            return self._folder.dataset(job, dataset_urn).restore()

    def list_jobs(self, urns: Collection[str] | None = None, besides: Collection[str] = ()) -> list[str]:
        with self._folder.errors():
            jobs = [job for job in self._folder.jobs() if job != ALL_JOBS and job not in besides]
            if urns is not None:
                there: dict[str, list[str]] = {}
                for dataset in self._folder.existing(jobs, urns):
                    there.setdefault(dataset.job, []).append(dataset.dataset_urn)
                return [job for job in jobs if job in there and any(self.load_readable_states(job, there[job]))]
            return [job for job in jobs if self._is_known(job)]

    def _is_known(self, job: str) -> bool:
        """Return whether the store holds more of a job than leases."""
        if self._folder.storage.list_names(self._folder.path("jobs", segment(job), "runs")):
            return True
        if self._folder.storage.list_names(self._folder.path("jobs", segment(job), "startpoint_events")):
            return True
        heads, damaged = self._folder.heads(job)
        return bool(damaged) or any(head.entry is not None or head.all_startpoints for head in heads)

    # -- leases --------------------------------------------------------------------------------------------------------
    def acquire_leases(self, job: str, urns: Collection[str], owner: LeaseOwner, ttl: timedelta) -> LeaseGrant:
        return file_leases.acquire(self._folder, self._clock, job, urns, owner, ttl)

    def renew_leases(self, job: str, leases: Collection[Lease], ttl: timedelta) -> dict[str, Lease]:
        return file_leases.renew(self._folder, self._clock, job, leases, ttl)

    def release_leases(self, job: str, leases: Collection[Lease]) -> None:
        file_leases.release(self._folder, job, leases)

    def leave_leases(self, job: str, epochs: Mapping[str, int]) -> None:
        file_leases.leave(self._folder, job, epochs)

    def load_leases(self, job: str) -> dict[str, Lease]:
        return file_leases.load(self._folder, job)

    # -- commit protocol -----------------------------------------------------------------------------------------------
    def prepare(self, sequence: StoredSequence, epoch: int) -> None:
        dataset = self._folder.dataset(sequence.job, sequence.dataset_urn)

        def prepare(head: DatasetHead, number: int) -> DatasetHead:
            return self._prepared(dataset, head, sequence, epoch, number)

        with self._folder.errors():
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
        self._startpoints.archive_events(head)

    def _put_body(self, head: DatasetHead, sequence: StoredSequence) -> None:
        path = self._sequence_path(sequence.id)
        owner = canonical_json({"job": sequence.job, "dataset_urn": sequence.dataset_urn})
        body = self._folder.dataset(sequence.job, sequence.dataset_urn).store_apart(head, sequence.body)
        content = f"{owner}\n{body}".encode()
        if not self._folder.storage.put_if_absent(path, content) and self._folder.storage.read(path) != content:
            raise CorruptRecordError(what=f"The record {path}", problem="another sequence of this id was stored before")

    def commit(self, sequence_id: str, epoch: int, effect: CommitEffect) -> None:
        def commit(dataset: DatasetFiles, head: DatasetHead) -> DatasetHead | None:
            return _committed(dataset, head, epoch, effect)

        with _fate_of(effect.after.dataset_urn, sequence_id):
            self._change(sequence_id, commit)
        self._startpoints.forget(effect.after.job, effect.startpoints)

    def commit_all(self, items: Sequence[tuple[str, int, CommitEffect]]) -> None:
        for sequence_id, epoch, effect in items:
            self.commit(sequence_id, epoch, effect)

    def record(self, sequence: StoredSequence, epoch: int, effect: CommitEffect) -> None:
        dataset = self._folder.dataset(sequence.job, sequence.dataset_urn)

        def record(head: DatasetHead, number: int) -> DatasetHead | None:
            return _committed(dataset, self._prepared(dataset, head, sequence, epoch, number), epoch, effect)

        with _fate_of(sequence.dataset_urn, sequence.id), self._folder.errors():
            dataset.change(record)
        self._startpoints.forget(sequence.job, effect.startpoints)

    def adopt(self, sequence: StoredSequence, epoch: int, after: DatasetState, history: Sequence[FileHistory]) -> None:
        dataset = self._folder.dataset(sequence.job, sequence.dataset_urn)

        def adopt(head: DatasetHead, number: int) -> DatasetHead:
            adopted = changes.adopt(head, sequence, epoch, after, number)
            self._archive(dataset, head)
            self._put_body(head, sequence)
            return dataset.add_base(adopted, after.snapshot, history)

        with _fate_of(sequence.dataset_urn, sequence.id), self._folder.errors():
            dataset.change(adopt)

    def prune_sequences(self, job: str, dataset_urn: str, below: int) -> int:
        dataset = self._folder.dataset(job, dataset_urn)
        with self._folder.errors():
            head = dataset.prune(below, self._stored_body)
            old = dataset.vanished(head)

        def delete(sequence_id: str) -> None:
            # The body first: what is still in the archive is found by the next call.
            self._folder.storage.delete(self._sequence_path(sequence_id))
            dataset.forget(sequence_id)

        self._folder.each(delete, old)
        with self._folder.errors():
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
        with self._folder.errors():
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
        with self._folder.errors():
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
        with self._folder.errors():
            if job is not None:
                datasets = self._folder.datasets(job, urns)
            else:
                datasets = self._folder.existing(self._folder.jobs(), urns)
        entries = self._folder.each(lambda dataset: dataset.entries(is_ended_too=bool(wanted & ENDED)), datasets)
        found = [entry for some in entries for entry in some if entry.sequence.state in wanted]
        if below is not None:
            found = [entry for entry in found if entry.sequence.version_read < below]
        return self._with_bodies(sorted(found, key=_age, reverse=True)[:limit])

    def misplaced(self, job: str, versions: Mapping[str, int]) -> dict[str, CorruptRecordError]:
        # A head holds the state too: in the place of another one, nothing is left in its own.
        new = {urn for urn, version in versions.items() if not version}
        if not new:
            return {}
        known = versions.keys() - new
        with self._folder.errors():
            beside = [one for one in self._folder.jobs() if one not in {job, ALL_JOBS}]
        others = [one for one in self._folder.datasets(job) if one.dataset_urn not in known]
        others += self._folder.existing(beside, new)
        found = [one for one in self._folder.each(DatasetFiles.stranger, others) if one is not None]
        return {urn: error for of_job, urn, error in found if of_job == job and urn in new}

    # -- snapshots -----------------------------------------------------------------------------------------------------
    def load_snapshot(self, job: str, dataset_urn: str, snapshot: int | None = None) -> list[PublishedFile]:
        with self._folder.errors():
            files = self._folder.dataset(job, dataset_urn).files(snapshot)
        return sorted(files, key=lambda file: (file.branch, file.path))

    def load_history(self, job: str, dataset_urn: str) -> list[FileHistory]:
        with self._folder.errors():
            return self._folder.dataset(job, dataset_urn).history()

    # -- startpoints ---------------------------------------------------------------------------------------------------
    def save_startpoint(self, startpoint: Startpoint) -> None:
        self._startpoints.save(startpoint)

    def fan_out_startpoint(self, copy: Startpoint, run_id: str) -> bool:
        return self._startpoints.fan_out(copy, run_id)

    def pin_startpoint(self, startpoint: Startpoint, run_id: str) -> bool:
        return self._startpoints.pin(startpoint, run_id)

    def load_startpoints(self, job: str, urns: Collection[str] | None = None) -> dict[str, Startpoint]:
        return {one.dataset_urn: one for one in self.list_startpoints(job, urns) if not one.partition}

    def list_startpoints(self, job: str, urns: Collection[str] | None = None) -> list[Startpoint]:
        return self._startpoints.load(job, urns)

    def delete_startpoint(self, startpoint: Startpoint, who: str, change: StartpointChange = "removed") -> bool:
        return self._startpoints.delete(startpoint, who, change)

    def import_startpoints(
        self, job: str, dataset_urn: str, startpoints: Sequence[Startpoint], events: Sequence[StartpointEvent]
    ) -> None:
        self._startpoints.bring(job, dataset_urn, startpoints, events)

    def load_startpoint_events(self, job: str, urns: Collection[str] | None = None) -> list[StartpointEvent]:
        return self._startpoints.load_events(job, urns)

    # -- reporting to Dagster ------------------------------------------------------------------------------------------
    def load_unreported(self, job: str, limit: int | None = None) -> list[StoredSequence]:
        entries = self._folder.each(DatasetFiles.unreported, self._folder.datasets(job))
        found = [entry for some in entries for entry in some if entry.sequence.state is SequenceState.COMMITTED]
        return self._with_bodies(sorted(found, key=_age)[:limit])

    def mark_reported(self, sequence_ids: Collection[str]) -> None:
        self._folder.each(self._mark_reported, sequence_ids)

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
        file_runs.save(self._folder, record)

    def prune_runs(self, job: str, keep: int) -> None:
        file_runs.prune(self._folder, job, keep)

    def load_runs(self, job: str | None = None, limit: int = 20) -> list[RunRecord]:
        return file_runs.load(self._folder, job, limit)

    def find_runs(self, job: str, run_ids: Collection[str]) -> list[RunRecord]:
        return file_runs.find(self._folder, job, run_ids)


def _committed(dataset: DatasetFiles, head: DatasetHead, epoch: int, effect: CommitEffect) -> DatasetHead | None:
    committed = changes.commit(head, epoch, effect)
    return None if committed is None else dataset.add_part(committed, effect)


def _age(entry: SequenceEntry) -> tuple[datetime, int, str]:
    return entry.sequence.created_at, entry.number, entry.sequence.id
