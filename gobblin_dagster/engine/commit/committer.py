"""Committer: prepares, publishes and recovers commit sequences. The heart of exactly-once.

    prepare   sync staging folders; store the sequence (write-ahead)
    publish   roll forward: folders, steps, sync of folders; one store transaction; manifest; delete staging
    recover   the same for a sequence that another run left behind, trusting nothing but content

Nothing becomes true before the store transaction, and nothing in here writes a watermark but through it. A file is never
deleted unless it is provably ours and no snapshot names it. `undo.py` holds the way back.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gobblin_dagster.core.commit import CommitSequence, SequenceState, StoredSequence
from gobblin_dagster.core.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    CorruptRecordError,
    GobblinDagsterError,
    QuarantinedError,
    StagedFileLostError,
    StepRefusedError,
    StorageError,
    WatermarkMovedError,
)
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.commit.codec import decode_sequence, encode_sequence
from gobblin_dagster.engine.commit.listener import CommitListener, SilentListener
from gobblin_dagster.engine.commit.manifest import write_manifest
from gobblin_dagster.engine.commit.roll import StepRunner
from gobblin_dagster.engine.commit.roots import check_paths
from gobblin_dagster.engine.commit.steps import RenameFileStep
from gobblin_dagster.engine.commit.undo import undo_steps
from gobblin_dagster.state.store import StateStore

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Recovery:
    """What became of a stored sequence."""

    sequence_id: str
    dataset_urn: str
    outcome: SequenceState
    """Still PREPARED (or ABORTING) where the redo failed and is tried again by the next run."""
    steps_done: int = 0
    """Steps found done."""
    steps_redone: int = 0
    """Steps executed now."""
    reason: str = ""
    report: dict[str, Any] = field(default_factory=dict)


class Committer:
    """Commits datasets through a store and a storage; may be used from several threads.

    Args:
        store: the state store.
        storage: where staged and published files are.
        redo_limit: failed redos before a dataset is quarantined.
        parallelism: threads for datasets, and for the steps of a large dataset.
        listener: told of each step.

    Source: gobblin-runtime `CommitSequence` and `JobContext.commit`, with the exactly-once design. Differs: the watermark
    moves in one transaction with the end of the sequence, and one dataset's failure never stops another.
    """

    def __init__(
        self,
        store: StateStore,
        storage: Storage,
        *,
        redo_limit: int = 3,
        parallelism: int = 8,
        listener: CommitListener | None = None,
    ) -> None:
        self._store = store
        self._storage = storage
        self._redo_limit = redo_limit
        self._parallelism = parallelism
        self._listener = listener or SilentListener()
        self._runner = StepRunner(storage, parallelism, self._listener)

    def prepare(self, sequence: CommitSequence, epoch: int) -> None:
        """Make the staged files durable in their folders and store the sequence: from here on, recovery finishes it.

        Raises:
            StepRefusedError: a path of the sequence is not its own to touch.
            StaleEpochError, WatermarkMovedError, UnfinishedSequenceError: as `StateStore.prepare`; nothing was stored.
            StorageError: staging could not be synced; nothing was stored.
        """
        check_paths(sequence)
        try:
            self._runner.sync(step.source for step in sequence.steps if isinstance(step, RenameFileStep))
        except OSError as error:
            raise _storage_error("sync staging of", sequence, error) from error
        self._store.prepare(encode_sequence(sequence), epoch)
        self._listener.prepared(sequence)

    def publish(self, sequence: CommitSequence, epoch: int, *, verify_sources: bool) -> None:
        """Roll a prepared sequence forward and commit it.

        Args:
            sequence: a sequence that is PREPARED in the store.
            epoch: our epoch of its dataset.
            verify_sources: False right after `prepare` by the same run, whose writers hashed and synced every file; True
                after anything else.

        Raises:
            StorageError: the storage refused; the sequence stays PREPARED and the next run finishes it.
            StagedFileLostError: a staged file is lost; the sequence was ABORTED, nothing is published.
            QuarantinedError: the sequence can be neither finished nor undone safely.
            CommitConflictError: another run took the dataset over and has not committed this sequence.
            CommitStateUnknownError: whether it is committed is not known, not even after looking.
        """
        try:
            self._publish(sequence, epoch, verify_sources=verify_sources)
        except OSError as error:
            raise _storage_error("publish", sequence, error) from error

    def publish_all(self, items: Sequence[tuple[CommitSequence, int]]) -> dict[str, Exception | None]:
        """Prepare and publish datasets in parallel; one dataset's failure never stops another.

        Args:
            items: (sequence, epoch) of each dataset, one per dataset.

        Returns:
            By dataset.urn: None where it is committed, else the error as of `prepare` and `publish`.
        """

        def one(item: tuple[CommitSequence, int]) -> Exception | None:
            try:
                self.prepare(*item)
                self.publish(*item, verify_sources=False)
            except Exception as error:  # noqa: BLE001  # returned to the caller, who reports it for its dataset
                return error
            return None

        outcomes = self._parallel(one, items)
        return {sequence.dataset_urn: outcome for (sequence, _), outcome in zip(items, outcomes, strict=True)}

    def recover(self, stored: StoredSequence, epoch: int) -> Recovery:
        """Finish, undo or quarantine a stored sequence; done twice, it changes nothing.

        For one that is COMMITTED or ABORTED it catches up on what comes after the transaction: manifest and staging.

        Args:
            stored: as loaded from the store.
            epoch: our epoch of its dataset.

        Raises:
            CommitConflictError: another run took the dataset over.
            CommitStateUnknownError, TransientError: the store did not answer; nothing was decided.
        """
        try:
            sequence = decode_sequence(stored)
            check_paths(sequence)
        except (CorruptRecordError, StepRefusedError) as error:
            return self._quarantine_stored(stored, str(error))
        try:
            return self._recover(stored, sequence, epoch)
        except (StagedFileLostError, QuarantinedError) as error:
            return self._recovery(sequence, reason=str(error))
        except OSError as error:
            return self._count_failure(sequence, str(_storage_error("redo", sequence, error)))

    def recover_all(self, items: Sequence[tuple[StoredSequence, int]]) -> list[Recovery]:
        """Recover sequences in parallel; an error of one is its reason and leaves the others alone."""

        def one(item: tuple[StoredSequence, int]) -> Recovery:
            stored, epoch = item
            try:
                return self.recover(stored, epoch)
            except GobblinDagsterError as error:
                return Recovery(stored.id, stored.dataset_urn, stored.state, reason=str(error))

        return self._parallel(one, items)

    def _recover(self, stored: StoredSequence, sequence: CommitSequence, epoch: int) -> Recovery:
        done = redone = 0
        if stored.state is SequenceState.PREPARED:
            done, redone = self._publish(sequence, epoch, verify_sources=True)
        elif stored.state is SequenceState.ABORTING:
            self._finish_abort(sequence, epoch)
        elif stored.state is SequenceState.COMMITTED:
            self._after_commit(sequence)
        elif stored.state is SequenceState.ABORTED:
            self._delete_staging(sequence)
        return self._recovery(sequence, done, redone, stored.reason)

    # -- forward -------------------------------------------------------------------------------------------------------
    def _publish(self, sequence: CommitSequence, epoch: int, *, verify_sources: bool) -> tuple[int, int]:
        """Roll forward and commit; return (steps found done, steps executed). OSError passes: the sequence stays."""
        try:
            counts = self._runner.roll_forward(sequence, verify_content=verify_sources)
            if not self._commit(sequence, epoch):
                self._listener.committed(sequence)
        except StepRefusedError as error:
            raise self._quarantine(sequence, str(error)) from error
        except StagedFileLostError as error:
            if self._state(sequence) is not SequenceState.COMMITTED:
                self._abort(sequence, epoch, error)
                raise
            counts = (len(sequence.steps), 0)
        self._after_commit(sequence)
        return counts

    def _commit(self, sequence: CommitSequence, epoch: int) -> bool:
        raise NotImplementedError

    def _parallel(self, function: Callable[[T], Any], items: Iterable[T]) -> list[Any]:
        raise NotImplementedError
