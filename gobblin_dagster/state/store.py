"""StateStore: where progress is kept. Every method is one transaction, durable on return.

Two implementations stand behind it: SQL (SQLite, PostgreSQL) and plain files. The store knows nothing of steps, sources
or Spark; it keeps what it is given and refuses what comes from a stale epoch or a stale version.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
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
from gobblin_dagster.core.run_record import RunRecord
from gobblin_dagster.core.startpoint import Startpoint


@dataclass(frozen=True, slots=True)
class LeaseGrant:
    """Which leases were given, and who holds the others."""

    granted: Mapping[str, Lease] = field(default_factory=dict)
    busy: Mapping[str, Lease] = field(default_factory=dict)
    inherited: frozenset[str] = frozenset()
    """Datasets of `granted` whose last holder did not give the lease back: it may have left something undone."""


class StateStore(Protocol):
    """Dataset states, commit sequences, leases, snapshots, startpoints and run history.

    Called on the driver, from several threads. Times come from the store's own clock where it has one (PostgreSQL), else
    from the injected clock.

    Raises (all methods): StoreVersionError on opening a newer store; TransientError where the store cannot be reached;
    CommitStateUnknownError where a transaction's fate is not known (`commit` only).
    """

    @property
    def url(self) -> str:
        """Where the store is, without a password."""

    def close(self) -> None:
        """Release connections."""

    # -- dataset states ------------------------------------------------------------------------------------------------
    def load_dataset_states(self, job: str, urns: Collection[str] | None = None) -> dict[str, DatasetState]:
        """Return states by dataset.urn (one query); datasets never committed are absent.

        Raises:
            CorruptRecordError: one of these states is damaged.
        """

    def load_readable_states(
        self, job: str, urns: Collection[str] | None = None
    ) -> tuple[dict[str, DatasetState], dict[str, CorruptRecordError]]:
        """Return states as `load_dataset_states`, and apart from them why others cannot be read."""

    def restore(self, job: str, dataset_urn: str) -> None:
        """Bring a dataset whose state is damaged back to what else the store holds of it; one that can be read stays as it is.

        What was true of it after its last commit is true again, or after the change before the damaged one, whose commit
        sequence is then recovered as after a crash.

        Raises:
            CorruptRecordError: nothing else tells.
        """

    def list_jobs(self) -> list[str]:
        """Return the names of all jobs that the store knows, sorted."""

    # -- leases --------------------------------------------------------------------------------------------------------
    def acquire_leases(self, job: str, urns: Collection[str], owner: LeaseOwner, ttl: timedelta) -> LeaseGrant:
        """Take the lease of each dataset, in one transaction.

        A lease is free where there is none, it is over (`Lease.is_over`), or its owner is provably dead; taking it raises its
        epoch by one. A lease that `owner` holds already is renewed and keeps its epoch.
        """

    def renew_leases(self, job: str, leases: Collection[Lease], ttl: timedelta) -> dict[str, Lease]:
        """Prolong leases; those taken over meanwhile are absent from the result."""

    def release_leases(self, job: str, leases: Collection[Lease]) -> None:
        """Give leases back; those taken over meanwhile are left alone. The epoch is kept."""

    def leave_leases(self, job: str, epochs: Mapping[str, int]) -> None:
        """End leases without giving them back: whoever takes one next has inherited it.

        Args:
            job: the job's name.
            epochs: by dataset.urn; leases that were given back or taken over since are left alone.
        """

    def load_leases(self, job: str) -> dict[str, Lease]:
        """Return all leases that were not given back, by dataset.urn; expired ones and those that were left too."""

    # -- commit protocol -----------------------------------------------------------------------------------------------
    def prepare(self, sequence: StoredSequence, epoch: int) -> None:
        """Store a sequence as PREPARED: the write-ahead.

        Raises:
            StaleEpochError: `epoch` is not the dataset's current one.
            WatermarkMovedError: the dataset's version is not `sequence.version_read`.
            UnfinishedSequenceError: another sequence of the dataset is unfinished or quarantined.
        """

    def commit(self, sequence_id: str, epoch: int, effect: CommitEffect) -> None:
        """Make a publication true: swap the dataset's state, add the snapshot's files, flip PREPARED to COMMITTED.

        One transaction, the only one that moves a watermark. A sequence that is COMMITTED already is left as it is.

        Raises:
            StaleEpochError: `epoch` is not the dataset's current one.
            WatermarkMovedError: the dataset's version is not the sequence's `version_read`.
            CorruptRecordError: the sequence is unknown or in another state than PREPARED or COMMITTED.
            CommitStateUnknownError: the answer was lost; read the sequence's state before anything else.
        """

    def record(self, sequence: StoredSequence, epoch: int, effect: CommitEffect) -> None:
        """Store a sequence as COMMITTED at once: `prepare` and `commit` in one transaction, for delivery without write-ahead.

        Raises:
            StaleEpochError, WatermarkMovedError, UnfinishedSequenceError: as `prepare`; nothing was stored.
            CommitStateUnknownError: the answer was lost; read the sequence's state before anything else.
        """

    def start_abort(self, sequence_id: str, epoch: int, reason: str) -> None:
        """Flip PREPARED to ABORTING; raises StaleEpochError."""

    def finish_abort(self, sequence_id: str, epoch: int) -> None:
        """Flip ABORTING to ABORTED; raises StaleEpochError."""

    def quarantine(self, sequence_id: str, reason: str) -> None:
        """Flip an unfinished sequence to QUARANTINED; its dataset is not planned until a person acts."""

    def abandon(self, sequence_id: str, epoch: int, reason: str) -> None:
        """Flip QUARANTINED to ABORTED, because a person said so: its dataset is planned again. Raises StaleEpochError."""

    def retry(self, sequence_id: str, epoch: int) -> None:
        """Flip QUARANTINED to PREPARED, because a person said so: recovery tries it again. Raises StaleEpochError.

        Its failed redos are forgotten, its reason is kept.
        """

    def record_redo_failure(self, sequence_id: str, reason: str) -> int:
        """Count a failed redo and return the count."""

    def load_sequence(self, sequence_id: str) -> StoredSequence | None:
        """Return one sequence."""

    def load_sequences(
        self,
        job: str | None = None,
        states: Collection[SequenceState] = UNFINISHED,
        urns: Collection[str] | None = None,
        limit: int | None = None,
    ) -> list[StoredSequence]:
        """Return sequences, newest first."""

    # -- snapshots -----------------------------------------------------------------------------------------------------
    def load_snapshot(self, job: str, dataset_urn: str, snapshot: int | None = None) -> list[PublishedFile]:
        """Return the files of a snapshot (default: the newest), ordered by branch and path."""

    def load_history(self, job: str, dataset_urn: str) -> list[FileHistory]:
        """Return every file that any snapshot ever added, in any order; deleted ones are among them."""

    # -- startpoints ---------------------------------------------------------------------------------------------------
    def save_startpoint(self, startpoint: Startpoint) -> None:
        """Store a startpoint, of an id never stored before, in place of the one that its dataset has."""

    def pin_startpoint(self, startpoint: Startpoint) -> bool:
        """Replace the stored startpoint of the same id by this one; False if the dataset has another one or none."""

    def load_startpoints(self, job: str, urns: Collection[str] | None = None) -> dict[str, Startpoint]:
        """Return startpoints by dataset.urn, expired ones too."""

    def delete_startpoint(self, startpoint: Startpoint) -> bool:
        """Delete a startpoint by its id; False if the dataset has another one or none."""

    # -- reporting to Dagster ------------------------------------------------------------------------------------------
    def load_unreported(self, job: str) -> list[StoredSequence]:
        """Return COMMITTED sequences whose materialization was not logged yet, oldest first."""

    def mark_reported(self, sequence_ids: Collection[str]) -> None:
        """Note that materializations were logged."""

    # -- run history ---------------------------------------------------------------------------------------------------
    def save_run(self, record: RunRecord) -> None:
        """Insert or replace a run's record."""

    def prune_runs(self, job: str, keep: int) -> None:
        """Forget all but the newest `keep` runs of a job; what moved watermarks (its commit sequences) stays."""

    def load_runs(self, job: str | None = None, limit: int = 20) -> list[RunRecord]:
        """Return runs, newest first."""
