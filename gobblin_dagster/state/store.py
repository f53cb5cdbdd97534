"""StateStore: the protocol of stores for progress. Every method is one transaction, durable on return.

Implemented with SQL (SQLite, PostgreSQL) and with plain files. The store knows nothing of steps, sources or Spark. It
stores what it gets, and refuses changes that are based on an old epoch or an old version.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from gobblin_dagster.core.commit import (
    UNFINISHED,
    CommitEffect,
    FileHistory,
    PublishedFile,
    SequenceState,
    StoredSequence,
)
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.core.lease import Lease, LeaseOwner
from gobblin_dagster.core.places import Places
from gobblin_dagster.core.run_record import RunRecord
from gobblin_dagster.core.startpoint import Startpoint, StartpointChange, StartpointEvent


@dataclass(frozen=True, slots=True)
class LeaseGrant:
    """The result of `StateStore.acquire_leases`."""

    granted: Mapping[str, Lease] = field(default_factory=dict)
    """Leases that the caller holds now, by dataset.urn."""
    busy: Mapping[str, Lease] = field(default_factory=dict)
    """Leases that other owners hold, and damaged ones (`DamagedLease`), by dataset.urn."""
    inherited: frozenset[str] = frozenset()
    """Datasets of `granted` whose last holder did not release the lease, and so may have left work undone."""


def damaged_files(what: str, problem: str) -> CorruptRecordError:
    """Return the error for a damaged record of published files, which commit sequences name too."""
    remedy = "`gobblin state export`, imported into an empty store by `gobblin state import`, writes it again"
    return CorruptRecordError(what=what, problem=f"{problem}. {remedy}")


class StateStore(Protocol):
    """Stores dataset states, commit sequences, leases, snapshots, startpoints and run history.

    Called on the driver, from several threads. Times come from the store's own clock if it has one (PostgreSQL), else
    from the injected clock.

    All methods raise TransientError if the store cannot be reached, and StorageError if it refuses to work. Opening a
    store of a newer version raises StoreVersionError.

    Source: gobblin-metastore `StateStore`. Differs: changes are transactions that check epoch and version.
    """

    @property
    def url(self) -> str:
        """The store's URL without password, for messages."""

    @property
    def places(self) -> Places:
        """The stored form of paths. Paths in arguments and results are absolute, except inside of bodies."""

    def close(self) -> None:
        """Release connections."""

    def now(self) -> datetime:
        """Return the current instant by the clock that times come from."""

    # -- dataset states ------------------------------------------------------------------------------------------------
    def load_dataset_states(self, job: str, urns: Collection[str] | None = None) -> dict[str, DatasetState]:
        """Return states by dataset.urn, by one query; datasets that were never committed are absent.

        Args:
            job: name of the job.
            urns: the datasets; None for all datasets of the job.

        Raises:
            CorruptRecordError: one of these states is damaged.
        """

    def load_readable_states(
        self, job: str, urns: Collection[str] | None = None
    ) -> tuple[dict[str, DatasetState], dict[str, CorruptRecordError]]:
        """Return the states that can be read, and by dataset.urn the errors of those that are damaged."""

    def restore(self, job: str, dataset_urn: str) -> bool:
        """Replace a damaged dataset state by the last one that the store can still read; tell if anything was damaged.

        What a state and its commit sequences have in common is stored twice; a damaged copy is written again, also if
        the state itself can be read. A damaged lease is cleared. Changes nothing if nothing is damaged.

        This is the state after the last commit, or (plain files) before the damaged change. In the second case,
        recovery finishes the commit sequence of that change like after a crash.

        Raises:
            CorruptRecordError: the store holds no older state either.
        """

    def list_jobs(self, urns: Collection[str] | None = None, besides: Collection[str] = ()) -> list[str]:
        """Return the names of all jobs that the store knows, sorted; `ALL_JOBS` is none.

        A job that never ran is known by its startpoints, or by the history of those that it had.

        Args:
            urns: only jobs with a state, maybe a damaged one, of one of these datasets; None for all jobs.
            besides: jobs that are not looked for.
        """

    # -- leases --------------------------------------------------------------------------------------------------------
    def acquire_leases(self, job: str, urns: Collection[str], owner: LeaseOwner, ttl: timedelta) -> LeaseGrant:
        """Take the free leases of these datasets.

        A lease is free if nobody holds it, it is over (`Lease.is_over`), or its owner is provably dead. Taking it
        raises its epoch by one. A lease that `owner` already holds is renewed and keeps its epoch.

        Args:
            job: name of the job.
            urns: the datasets; they need not have a state yet.
            owner: the process that takes the leases.
            ttl: time until the leases expire, from now.
        """

    def renew_leases(self, job: str, leases: Collection[Lease], ttl: timedelta) -> dict[str, Lease]:
        """Extend leases to `ttl` from now; return them by dataset.urn, without those taken over meanwhile."""

    def release_leases(self, job: str, leases: Collection[Lease]) -> None:
        """Release leases, keeping their epochs; do nothing for leases that were taken over meanwhile."""

    def leave_leases(self, job: str, epochs: Mapping[str, int]) -> None:
        """End leases whose work is not finished: the next owner finds them in `LeaseGrant.inherited`.

        Args:
            job: name of the job.
            epochs: epochs of the leases, by dataset.urn. A lease with another epoch by now, or released, is not
                changed.
        """

    def load_leases(self, job: str) -> dict[str, Lease]:
        """Return all leases that were not released, by dataset.urn: also expired, left and damaged ones."""

    # -- commit protocol -----------------------------------------------------------------------------------------------
    def prepare(self, sequence: StoredSequence, epoch: int) -> None:
        """Store a sequence as PREPARED, before its first step runs.

        Raises:
            StaleEpochError: `epoch` is not the current epoch of the dataset's lease.
            WatermarkMovedError: the dataset's version is not `sequence.version_read`.
            UnfinishedSequenceError: another sequence of the dataset is unfinished or quarantined.
        """

    def prepare_all(self, items: Sequence[tuple[StoredSequence, int]]) -> None:
        """Call `prepare` for sequences of different datasets of one job, in as few transactions as the store can.

        After an error any of them may be stored, but none of them wrongly: call `prepare` for each to find out which
        is refused. A sequence that is stored already is then refused with an UnfinishedSequenceError of its own id.

        Args:
            items: (sequence, epoch), at least one.

        Raises:
            StaleEpochError, WatermarkMovedError, UnfinishedSequenceError: as `prepare`, for any of them.
        """

    def commit(self, sequence_id: str, epoch: int, effect: CommitEffect) -> None:
        """Commit a publication: replace the dataset's state, add the snapshot's files, set PREPARED to COMMITTED.

        All in one transaction. Only this method and `record` move a watermark. If the sequence is COMMITTED already,
        nothing changes.

        Raises:
            StaleEpochError: `epoch` is not the current epoch of the dataset's lease.
            WatermarkMovedError: the dataset's version is not the sequence's `version_read`.
            SequenceChangedError: its state is neither PREPARED nor COMMITTED.
            CorruptRecordError: the sequence is unknown.
            CommitStateUnknownError: the answer was lost. Load the sequence to see its state before doing anything else.
        """

    def commit_all(self, items: Sequence[tuple[str, int, CommitEffect]]) -> None:
        """Call `commit` for sequences of different datasets of one job, in as few transactions as the store can.

        Each of them is committed wholly or not at all. After an error any of them may be committed: call `commit` for
        each, which changes nothing if it is.

        Args:
            items: (id of the sequence, epoch, effect), at least one.

        Raises:
            StaleEpochError, WatermarkMovedError, SequenceChangedError, CorruptRecordError, CommitStateUnknownError: as
                `commit`, for any of them.
        """

    def record(self, sequence: StoredSequence, epoch: int, effect: CommitEffect) -> None:
        """Store a sequence as COMMITTED: `prepare` and `commit` in one transaction (`commit.delivery: at_least_once`).

        Raises:
            StaleEpochError, WatermarkMovedError, UnfinishedSequenceError: as `prepare`; nothing was stored.
            CommitStateUnknownError: as `commit`.
        """

    def start_abort(self, sequence_id: str, epoch: int, reason: str) -> None:
        """Set PREPARED to ABORTING; raises StaleEpochError."""

    def finish_abort(self, sequence_id: str, epoch: int) -> None:
        """Set ABORTING to ABORTED; raises StaleEpochError."""

    def quarantine(self, sequence_id: str, reason: str) -> None:
        """Set an unfinished sequence to QUARANTINED; runs do not plan its dataset until a person acts."""

    def abandon(self, sequence_id: str, epoch: int, reason: str) -> None:
        """Set QUARANTINED to ABORTED, by a person's decision: runs plan the dataset again. Raises StaleEpochError."""

    def retry(self, sequence_id: str, epoch: int) -> None:
        """Set QUARANTINED to PREPARED, by a person's decision: recovery tries it again. Raises StaleEpochError.

        Sets the count of failed redos to 0 and keeps the reason.
        """

    def record_redo_failure(self, sequence_id: str, reason: str) -> int:
        """Add one to the failed redos of a sequence, store the reason, and return the new count."""

    def adopt(self, sequence: StoredSequence, epoch: int, after: DatasetState, history: Sequence[FileHistory]) -> None:
        """Begin a dataset's history with a commit that is not its first one, in one transaction.

        Args:
            sequence: the commit, stored as COMMITTED.
            epoch: epoch of the dataset's lease.
            after: the dataset's state after the commit.
            history: all files of the snapshots up to `after.snapshot`.

        Raises:
            StaleEpochError: `epoch` is not the current epoch of the dataset's lease.
            WatermarkMovedError: the dataset has a state.
            UnfinishedSequenceError: another sequence of the dataset is unfinished or quarantined.
            CommitStateUnknownError: as `commit`.
        """

    def prune_sequences(self, job: str, dataset_urn: str, below: int) -> int:
        """Delete old sequences that have ended; return how many this call deleted.

        The newest commit always stays, and what sequences share with it or with the state. After a crash either all
        or none of these sequences can be found, and the next call deletes what is left of them.

        Args:
            job: name of the job.
            dataset_urn: the dataset.
            below: sequences with a lower `version_read` are deleted.
        """

    def load_sequence(self, sequence_id: str) -> StoredSequence | None:
        """Return one sequence; None if the store does not have it."""

    def load_sequences(
        self,
        job: str | None = None,
        states: Collection[SequenceState] = UNFINISHED,
        urns: Collection[str] | None = None,
        limit: int | None = None,
        below: int | None = None,
    ) -> list[StoredSequence]:
        """Return sequences in these states, newest first.

        Args:
            job: name of the job; None for all jobs.
            states: states to include.
            urns: datasets to include; None for all.
            limit: the most sequences to return; None for all.
            below: only sequences with a lower `version_read`; None for all.
        """

    def misplaced(self, job: str, versions: Mapping[str, int]) -> dict[str, CorruptRecordError]:
        """Return, by dataset.urn, why a commit of these datasets may wait where `load_sequences` does not find it.

        Another program wrote another job or dataset in place of its own.

        Args:
            job: name of the job.
            versions: of the datasets, as the caller knows them; 0: never committed.
        """

    # -- snapshots -----------------------------------------------------------------------------------------------------
    def load_snapshot(self, job: str, dataset_urn: str, snapshot: int | None = None) -> list[PublishedFile]:
        """Return the files of a snapshot (default: the newest), ordered by branch and path; empty if there is none."""

    def load_history(self, job: str, dataset_urn: str) -> list[FileHistory]:
        """Return every file that any snapshot ever added, also deleted ones, in any order."""

    # -- startpoints ---------------------------------------------------------------------------------------------------
    # Each change writes its events into the history in its own transaction. A call that changes nothing writes none, so
    # a call whose answer was lost can be repeated.
    def save_startpoint(self, startpoint: Startpoint) -> None:
        """Store a startpoint with a new id; it replaces the startpoint of its key if there is one."""

    def pin_startpoint(self, startpoint: Startpoint, run_id: str) -> bool:
        """Replace the stored startpoint that has the same key and id; return False if there is none.

        The first time, the history tells that the run has fanned it out.
        """

    def fan_out_startpoint(self, copy: Startpoint, run_id: str) -> bool:
        """Store the copy for one job of a startpoint for all jobs; return whether its key holds the copy now.

        A startpoint with another id that was created after it, or at the same instant, stays; an older one is replaced.
        The first time, the history tells that the run has fanned it out.
        """

    def load_startpoints(self, job: str, urns: Collection[str] | None = None) -> dict[str, Startpoint]:
        """Return the startpoints of whole datasets by dataset.urn; see `list_startpoints`."""

    def list_startpoints(self, job: str, urns: Collection[str] | None = None) -> list[Startpoint]:
        """Return startpoints, also expired ones, of whole datasets and of partitions, by dataset and partition.

        Args:
            job: the job, or `ALL_JOBS` for the startpoints that are for all jobs (and only these).
            urns: the datasets; None means all.
        """

    def delete_startpoint(self, startpoint: Startpoint, who: str, change: StartpointChange = "removed") -> bool:
        """Delete the startpoint with this key and id; return False if its key has another one or none.

        One that expired is not deleted if a run has fanned it out since it was read.

        Args:
            startpoint: the startpoint, as it is told in the history.
            who: the person, or the id of the run, for the history.
            change: `removed` or `expired`, for the history.
        """

    def load_startpoint_events(self, job: str, urns: Collection[str] | None = None) -> list[StartpointEvent]:
        """Return the history of startpoints, oldest first; `job` and `urns` as for `list_startpoints`."""

    def import_startpoints(
        self, job: str, dataset_urn: str, startpoints: Sequence[Startpoint], events: Sequence[StartpointEvent]
    ) -> None:
        """Add startpoints and history of another store in one transaction, without events of the import itself.

        Args:
            job: the job, or `ALL_JOBS`.
            dataset_urn: the dataset.
            startpoints: startpoints of the dataset; a key that holds one already keeps it.
            events: events of the dataset's startpoints that the history does not have yet, oldest first.
        """

    # -- reporting to Dagster ------------------------------------------------------------------------------------------
    def load_unreported(self, job: str, limit: int | None = None) -> list[StoredSequence]:
        """Return COMMITTED sequences whose materialization was not reported to Dagster yet, oldest first.

        At most the oldest `limit` of them; None for all.
        """

    def mark_reported(self, sequence_ids: Collection[str]) -> None:
        """Record that the materializations of these sequences were reported to Dagster."""

    # -- run history ---------------------------------------------------------------------------------------------------
    def save_run(self, record: RunRecord) -> None:
        """Insert a run's record, or replace it."""

    def prune_runs(self, job: str, keep: int) -> None:
        """Delete the records of all but the newest `keep` runs of a job; its commit sequences stay."""

    def load_runs(self, job: str | None = None, limit: int = 20) -> list[RunRecord]:
        """Return the newest runs of a job, or of all jobs, newest first."""

    def find_runs(self, job: str, run_ids: Collection[str]) -> list[RunRecord]:
        """Return the stored runs of a job with these ids, newest first, however old they are.

        Tries of a run are found with it: their ids have `.1`, `.2` and so on behind that of the run.
        """
