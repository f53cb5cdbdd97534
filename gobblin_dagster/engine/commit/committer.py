"""Committer: prepares, publishes and recovers commit sequences. The core of exactly-once.

    prepare   sync staging folders; store the sequence (write-ahead)
    publish   roll forward: folders, steps, sync of folders; one store transaction; manifest; delete staging
    recover   the same for a sequence that another run left behind, trusting nothing but content

Only the store transaction publishes data and moves the watermark. `step_runner.py` runs the steps forward, `undo.py`
undoes them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

from gobblin_dagster.core.commit import UNFINISHED, CommitSequence, SequenceState, StoredSequence
from gobblin_dagster.core.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    CorruptRecordError,
    EnvironmentFaultError,
    GobblinDagsterError,
    QuarantinedError,
    SequenceChangedError,
    StagedFileLostError,
    StepRefusedError,
    StorageError,
    TransientError,
    UnfinishedSequenceError,
    UsageError,
    WatermarkMovedError,
    WatermarkTypeError,
)
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.traits import StepTraits, traits_of
from gobblin_dagster.core.utils.parallel import in_parallel
from gobblin_dagster.engine.commit.batches import (
    Errors,
    Leased,
    Look,
    each,
    no_look,
    share_transactions,
    without_faults,
)
from gobblin_dagster.engine.commit.codec import decode_sequence, encode_sequence
from gobblin_dagster.engine.commit.listener import CommitListener, SilentListener
from gobblin_dagster.engine.commit.manifest import manifest_dir, manifest_path, write_manifest
from gobblin_dagster.engine.commit.path_guard import check_paths
from gobblin_dagster.engine.commit.staging import delete_staging
from gobblin_dagster.engine.commit.step_distribution import StepDistribution, StepExecutor
from gobblin_dagster.engine.commit.step_runner import NONE_MADE, StepRunner, make_shared_folders
from gobblin_dagster.engine.commit.steps import renames_of
from gobblin_dagster.engine.commit.undo import undo_steps
from gobblin_dagster.spec.job import CommitSpec
from gobblin_dagster.state.store import StateStore

Delivery: TypeAlias = Literal["exactly_once", "at_least_once"]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recovery:
    """The result of recovering a stored sequence."""

    sequence_id: str
    dataset_urn: str
    outcome: SequenceState
    """Still PREPARED or ABORTING if the redo failed and the next run tries again."""
    steps_done: int = 0
    """Number of steps found done."""
    steps_redone: int = 0
    """Number of steps executed now."""
    reason: str = ""
    """Why it is not committed; empty if it is."""

    @classmethod
    def failed(cls, stored: StoredSequence, error: GobblinDagsterError) -> Recovery:
        """Return the result of a recovery that an error ended; the error knows the state if another one changed it."""
        state = stored.state
        if isinstance(error, SequenceChangedError) and error.sequence_id == stored.id:
            state = SequenceState(error.found)
        return cls(stored.id, stored.dataset_urn, state, reason=str(error))


class Committer:
    """Commits datasets through a store and a storage; may be used from several threads.

    Args:
        store: the state store.
        storage: holds the staged and published files.
        redo_limit: number of failed redos before a dataset is quarantined.
        parallelism: threads for datasets, and for the steps of a large dataset.
        delivery: whether a sequence is stored before its steps are run, see `docs/concepts/commit.md`.
        listener: called after each step.
        spread: moves the files of very large sequences in other processes; None leaves all to threads of this process.

    Source: gobblin-runtime `CommitSequence` and the exactly-once design. Differs: the watermark moves in one
    transaction with the end of the sequence, runs are fenced by epoch and version, and no dataset stops another.
    """

    def __init__(
        self,
        store: StateStore,
        storage: Storage,
        *,
        redo_limit: int = 3,
        parallelism: int = 8,
        delivery: Delivery = "exactly_once",
        listener: CommitListener | None = None,
        spread: StepDistribution | None = None,
    ) -> None:
        self._store = store
        self._storage = storage
        self._redo_limit = redo_limit
        self._parallelism = parallelism
        self._delivery = delivery
        self._listener = listener or SilentListener()
        self._runner = StepRunner(storage, parallelism, self._listener, spread)
        self.unseen: dict[str, Exception] = {}
        """Why committed datasets have no manifest yet, by urn: the next run writes it, and readers of manifests wait
        for it."""
        self.unfinished: set[str] = set()
        """Datasets whose commit stands, or may stand, while their manifest is missing or their staging lies there.
        Whoever holds their leases must not release them (`LeaseKeeper.leave`), so that the next run finishes the
        work."""

    @classmethod
    def of(
        cls,
        commit: CommitSpec,
        store: StateStore,
        storage: Storage,
        *,
        listener: CommitListener | None = None,
        executor: StepExecutor | None = None,
    ) -> Committer:
        """Return the committer with the settings that the job file has below `commit`.

        Runs, recovery and all commands that change published data use it. `executor` moves the files of very large
        sequences in other processes.
        """
        return cls(
            store,
            storage,
            redo_limit=commit.redo_limit,
            parallelism=commit.parallelism,
            delivery=commit.delivery,
            listener=listener,
            spread=StepDistribution(executor, commit.spark_threshold) if executor is not None else None,
        )

    def prepare(self, sequence: CommitSequence, epoch: int) -> None:
        """Make the staged files durable in their folders and store the sequence: from here on, recovery finishes it.

        Raises:
            StepRefusedError: the sequence must not touch one of its paths.
            StorageError: staging could not be synced.
            StaleEpochError, WatermarkMovedError, UnfinishedSequenceError: as `StateStore.prepare`. In all these cases
                nothing was stored.
        """
        self._sync_staging(sequence, epoch)
        self._store.prepare(encode_sequence(sequence, self._store.places), epoch)
        self._listener.prepared(sequence)

    def prepare_all(self, items: Sequence[Leased]) -> Errors:
        """Prepare datasets; many share a transaction of the store. One dataset's failure never stops another.

        Returns:
            By dataset.urn: None if it is prepared, else the error as of `prepare`.
        """
        return self._together(items, self._prepare_batch)

    def _sync_staging(self, sequence: CommitSequence, _: int) -> None:
        check_paths(sequence)
        sources = [rename.source for rename in renames_of(sequence.steps)]
        if any(traits_of(step, StepTraits).reads_staging for step in sequence.steps):
            # Staged files that are not published as files: rows for a table or a topic.
            sources += [f"{folder}/" for folder in sequence.staging_dirs if self._storage.list_names(folder)]
        try:
            self._runner.sync_folders(sources)
        except OSError as error:
            raise _storage_error("sync the staging of", sequence, error) from error

    def publish(self, sequence: CommitSequence, epoch: int, *, verify_sources: bool) -> None:
        """Roll a prepared sequence forward and commit it.

        Args:
            sequence: PREPARED in the store.
            epoch: our epoch of its dataset.
            verify_sources: False right after `prepare` by the same run, whose writers hashed and synced every file;
                True after anything else.

        Raises:
            StorageError: the storage refused; the sequence stays and the next run finishes it.
            StagedFileLostError: a staged file is lost; the sequence was undone (ABORTED) and nothing is published.
            QuarantinedError: the sequence can be neither finished nor undone safely.
            CommitConflictError: another run took the dataset over and did not commit this sequence.
            CommitStateUnknownError: it is unknown whether the sequence is committed, even after asking the store.
        """
        try:
            self._publish(sequence, epoch, verify_content=verify_sources)
        except OSError as error:
            raise _storage_error("publish", sequence, error) from error

    def roll_forward(self, sequence: CommitSequence, *, verify_content: bool) -> tuple[int, int]:
        """Run the steps of a prepared sequence and nothing more; return (steps found done, steps executed).

        Raises:
            StepRefusedError, StagedFileLostError: the sequence can never be finished.
            StorageError: the storage refused; a later try may succeed.
        """
        try:
            return self._runner.roll_forward(sequence, verify_content=verify_content)
        except OSError as error:
            raise _storage_error("publish", sequence, error) from error

    def conclude(self, sequence: CommitSequence, epoch: int) -> None:
        """Commit a prepared sequence whose steps are done.

        Raises:
            QuarantinedError, CommitConflictError, CommitStateUnknownError: as `publish`.
        """
        try:
            self._commit_or_quarantine(sequence, epoch)
        except (CommitConflictError, CorruptRecordError):
            if self._state(sequence) is not SequenceState.COMMITTED:
                raise
        self._committed(sequence)

    def conclude_all(self, items: Sequence[Leased]) -> Errors:
        """Commit prepared sequences whose steps are done; many share a transaction of the store.

        Returns:
            By dataset.urn: None if it is committed, else the error as of `conclude`.
        """
        return self._together(items, self._conclude_batch)

    def publish_unlogged(self, sequence: CommitSequence, epoch: int) -> None:
        """Run the steps, then store the sequence as committed: at-least-once delivery.

        Saves the write-ahead transaction. If the run is killed between the two, the files are in the output, but no
        snapshot lists them. The next run reads the same rows again, so a reader of the folder finds them twice, a
        reader of snapshots once.

        Raises:
            StepRefusedError, StagedFileLostError, StorageError: nothing is published; moved files stay.
            StaleEpochError, WatermarkMovedError, UnfinishedSequenceError, CommitStateUnknownError: as
                `StateStore.record`.

        Source: gobblin-api `DeliverySemantics.AT_LEAST_ONCE`.
        """
        check_paths(sequence)
        try:
            self._runner.roll_forward(sequence, verify_content=False)
        except OSError as error:
            raise _storage_error("publish", sequence, error) from error
        stored = encode_sequence(sequence, self._store.places)
        self.unfinished.add(sequence.dataset_urn)
        try:
            self._store.record(stored, epoch, sequence.effect)
        except CommitStateUnknownError:
            if self._store.load_sequence(sequence.id) is None:
                self._store.record(stored, epoch, sequence.effect)
        self._committed(sequence)

    def abandon(self, stored: StoredSequence, epoch: int, reason: str) -> SequenceState:
        """Give a sequence up because a person asked for it; its dataset is planned again from its watermark.

        An unfinished sequence is undone if that is safe. A quarantined sequence is marked ABORTED and all its files
        stay for that person; no snapshot lists those in the output.

        Args:
            stored: as loaded from the store.
            epoch: our epoch of its dataset.
            reason: kept with the sequence.

        Returns:
            ABORTED, or QUARANTINED if undoing turned out to be unsafe; then abandon it again.

        Raises:
            UsageError: the sequence has ended already.
            CorruptRecordError: the sequence cannot be read, and is not quarantined.
            CommitConflictError: another run took the dataset over.
            StorageError: the storage refused; try again.
        """
        if stored.state is SequenceState.QUARANTINED:
            self._store.abandon(stored.id, epoch, f"{reason}; it was quarantined because: {stored.reason}")
            return SequenceState.ABORTED
        if stored.state not in UNFINISHED:
            raise UsageError(
                problem=f"Commit sequence {stored.id} has ended as {stored.state}.",
                hint="Only unfinished and quarantined sequences can be abandoned.",
            )
        sequence = decode_sequence(stored, self._store.places)
        check_paths(sequence)
        try:
            if stored.state is SequenceState.PREPARED:
                self._abort(sequence, epoch, reason)
            else:
                self._finish_abort(sequence, epoch)
        except QuarantinedError:
            return SequenceState.QUARANTINED
        except OSError as error:
            raise _storage_error("undo", sequence, error) from error
        return SequenceState.ABORTED

    def publish_all(self, items: Sequence[Leased], look: Look = no_look) -> Errors:
        """Prepare and publish datasets in parallel; one dataset's failure never stops another.

        Many small datasets share transactions of the store, see `batches`.

        Args:
            items: (sequence, epoch), one per dataset of one job.
            look: says which prepared sequences must not be published; they are taken back.

        Returns:
            By dataset.urn: None if it is committed, else the error as of `prepare`, `publish` and `look`.
        """
        return self._together(items, partial(self._publish_batch, look=look))

    def take_back(self, items: Sequence[Leased], errors: Mapping[str, Exception | None]) -> Errors:
        """Give up sequences that this run has prepared, and whose steps it has not begun, because of these errors.

        Returns:
            By dataset.urn: the error, or the one that kept the sequence from being given up: it stays.
        """

        def one(sequence: CommitSequence, epoch: int) -> None:
            self._store.start_abort(sequence.id, epoch, str(errors[sequence.dataset_urn]))
            self._store.finish_abort(sequence.id, epoch)
            delete_staging(self._storage, sequence)

        refused = [item for item in items if errors.get(item[0].dataset_urn) is not None]
        return {**errors, **{urn: error for urn, error in each(refused, one).items() if error is not None}}

    def recover(self, stored: StoredSequence, epoch: int, undo_because: str = "") -> Recovery:
        """Finish, undo or quarantine a stored sequence; a second call changes nothing.

        For a COMMITTED or ABORTED sequence, finish the work after the transaction: manifest and staging.

        Args:
            stored: as loaded from the store.
            epoch: our epoch of its dataset.
            undo_because: why a PREPARED sequence is undone instead of finished; empty to finish it.

        Raises:
            CommitConflictError: another run took the dataset over.
            CommitStateUnknownError, TransientError: the store did not answer; nothing was decided.

        If a redo fails because this machine lacks something (EnvironmentFaultError, a user's watermark type), the
        sequence waits and no failure is counted.
        """
        try:
            sequence = decode_sequence(stored, self._store.places)
            check_paths(sequence)
        except (CorruptRecordError, StepRefusedError) as error:
            if isinstance(error.__cause__, WatermarkTypeError):
                # The stored sequence is sound; it waits until the class of its watermarks can be imported.
                return Recovery(stored.id, stored.dataset_urn, stored.state, reason=str(error))
            self._store.quarantine(stored.id, str(error))
            return Recovery(stored.id, stored.dataset_urn, SequenceState.QUARANTINED, reason=str(error))
        try:
            done, redone = self._resume(stored.state, sequence, epoch, undo_because)
        except (CommitConflictError, CommitStateUnknownError, TransientError):
            raise
        except (StagedFileLostError, QuarantinedError) as error:
            return self._recovery(sequence, reason=str(error))
        except Exception as error:  # noqa: BLE001  # every error is counted, so that no redo is tried for ever
            return self.count_failure(sequence, error)
        return self._recovery(sequence, done, redone, stored.reason or undo_because)

    def recover_all(self, items: Sequence[tuple[StoredSequence, int]]) -> list[Recovery]:
        """Recover sequences in parallel; an error that `recover` raises becomes the reason in the sequence's result."""

        def one(item: tuple[StoredSequence, int]) -> Recovery:
            stored, epoch = item
            try:
                return self.recover(stored, epoch)
            except GobblinDagsterError as error:
                return Recovery.failed(stored, error)

        return in_parallel(one, items, self._parallelism)

    # -- many datasets -------------------------------------------------------------------------------------------------
    def _together(self, items: Sequence[Leased], work: Callable[[Sequence[Leased]], Errors]) -> Errors:
        batches = share_transactions(items, self._parallelism, self._storage)
        errors = {urn: error for done in in_parallel(work, batches, self._parallelism) for urn, error in done.items()}
        return {sequence.dataset_urn: errors[sequence.dataset_urn] for sequence, _ in items}

    def _publish_batch(self, batch: Sequence[Leased], look: Look) -> Errors:
        if self._delivery == "at_least_once":
            errors = Errors(look([sequence for sequence, _ in batch]))
            free = [item for item in batch if errors.get(item[0].dataset_urn) is None]
            return errors | each(free, self.publish_unlogged)
        errors = self._prepare_batch(batch)
        ready = without_faults(batch, errors)
        errors |= self.take_back(ready, look([sequence for sequence, _ in ready]))
        ready = without_faults(ready, errors)
        made = self._runner.make_folders([sequence for sequence, _ in ready]) if len(ready) > 1 else NONE_MADE
        errors |= each(ready, lambda sequence, epoch: self._roll(sequence, epoch, made))
        return errors | self._conclude_batch(without_faults(batch, errors))

    def _prepare_batch(self, batch: Sequence[Leased]) -> Errors:
        if len(batch) <= 1:
            return each(batch, self.prepare)
        stored: dict[str, StoredSequence] = {}

        def begin(sequence: CommitSequence, epoch: int) -> None:
            self._sync_staging(sequence, epoch)
            stored[sequence.dataset_urn] = encode_sequence(sequence, self._store.places)

        def prepare_alone(sequence: CommitSequence, epoch: int) -> None:
            try:
                self._store.prepare(stored[sequence.dataset_urn], epoch)
            except UnfinishedSequenceError as error:
                if error.sequence_id != sequence.id:  # else the batch stored it, and only the answer was lost
                    raise

        errors = each(batch, begin)
        ready = without_faults(batch, errors)
        if not ready:
            return errors
        try:
            self._store.prepare_all([(stored[sequence.dataset_urn], epoch) for sequence, epoch in ready])
        except Exception:  # noqa: BLE001  # alone, each dataset gets its own answer, and the others are prepared
            errors |= each(ready, prepare_alone)
        ready = without_faults(ready, errors)
        return errors | each(ready, lambda sequence, _: self._listener.prepared(sequence))

    def _roll(self, sequence: CommitSequence, epoch: int, made: Mapping[str, OSError | None]) -> None:
        """Run the steps of a sequence that this run has prepared, or undo it."""
        try:
            self._roll_or_undo(sequence, epoch, verify_content=False, made=made)
        except (CommitConflictError, CorruptRecordError):
            # The run that took the dataset over may have finished our sequence.
            if self._state(sequence) is not SequenceState.COMMITTED:
                raise
        except OSError as error:
            raise _storage_error("publish", sequence, error) from error

    def _conclude_batch(self, batch: Sequence[Leased]) -> Errors:
        if len(batch) <= 1:
            return each(batch, self.conclude)
        self.unfinished.update(sequence.dataset_urn for sequence, _ in batch)
        try:
            self._store.commit_all([(sequence.id, epoch, sequence.effect) for sequence, epoch in batch])
        except Exception:  # noqa: BLE001  # alone, each dataset gets its own answer; committed ones do not change
            return each(batch, self.conclude)
        folders = {
            one.dataset_urn: manifest_dir(one.output_root, one.job, one.dataset_urn)
            for one, _ in batch
            if one.files or one.removed
        }
        made = make_shared_folders(self._storage, folders.values())

        def committed(sequence: CommitSequence, _: int) -> None:
            self._committed(sequence, made.get(folders.get(sequence.dataset_urn, "")))

        return each(batch, committed)

    # -- forward or undo -----------------------------------------------------------------------------------------------
    def _publish(self, sequence: CommitSequence, epoch: int, *, verify_content: bool) -> tuple[int, int]:
        """Roll forward and commit, or undo; return (steps found done, steps executed)."""
        try:
            counts = self._roll_and_commit(sequence, epoch, verify_content=verify_content)
        except (CommitConflictError, CorruptRecordError):
            # The run that took the dataset over finished our sequence first; that is as good as finishing it here.
            if self._state(sequence) is not SequenceState.COMMITTED:
                raise
            counts = (len(sequence.steps), 0)
        self._committed(sequence)
        return counts

    def _roll_and_commit(self, sequence: CommitSequence, epoch: int, *, verify_content: bool) -> tuple[int, int]:
        counts = self._roll_or_undo(sequence, epoch, verify_content=verify_content)
        self._commit_or_quarantine(sequence, epoch)
        return counts

    def _roll_or_undo(
        self,
        sequence: CommitSequence,
        epoch: int,
        *,
        verify_content: bool,
        made: Mapping[str, OSError | None] = NONE_MADE,
    ) -> tuple[int, int]:
        try:
            return self._runner.roll_forward(sequence, verify_content=verify_content, made=made)
        except StepRefusedError as error:
            raise self._quarantine(sequence, str(error)) from error
        except StagedFileLostError as error:
            self._abort(sequence, epoch, str(error))
            raise

    def _commit_or_quarantine(self, sequence: CommitSequence, epoch: int) -> None:
        try:
            self._commit(sequence, epoch)
        except WatermarkMovedError as error:
            # Under a valid epoch this means that the state was changed outside of the protocol, so no retry can ever
            # commit.
            if self._state(sequence) is not SequenceState.COMMITTED:
                raise self._quarantine(sequence, str(error)) from error

    def _commit(self, sequence: CommitSequence, epoch: int) -> None:
        """Commit the sequence; after a lost answer, ask the store before trying again."""
        self.unfinished.add(sequence.dataset_urn)
        try:
            self._store.commit(sequence.id, epoch, sequence.effect)
        except CommitStateUnknownError as unknown:
            try:
                state = self._state(sequence)
            except TransientError as error:
                raise unknown from error
            if state is SequenceState.PREPARED:
                self._store.commit(sequence.id, epoch, sequence.effect)
            elif state is not SequenceState.COMMITTED:
                raise

    def _committed(self, sequence: CommitSequence, folder_fault: OSError | None = None) -> None:
        self._listener.committed(sequence)
        self._after_commit(sequence, folder_fault)

    def _after_commit(self, sequence: CommitSequence, folder_fault: OSError | None = None) -> None:
        """Write the manifest and delete staging. After an error here, the commit stands and the next run retries.

        `folder_fault` says why the folder of the manifest could not be made.
        """
        faults: list[Exception] = []
        try:
            if folder_fault is not None:
                raise folder_fault
            self._write_manifest(sequence)
        except (OSError, GobblinDagsterError) as error:
            faults.append(_manifest_error(sequence, error) if isinstance(error, OSError) else error)
            self.unseen[sequence.dataset_urn] = faults[0]
        try:
            delete_staging(self._storage, sequence)
        except OSError as error:
            faults.append(_storage_error("delete the staging of", sequence, error))
        if not faults:
            self.unfinished.discard(sequence.dataset_urn)
            return
        self.unfinished.add(sequence.dataset_urn)
        reasons = "; ".join(map(str, faults))
        log.warning("Dataset %r is committed; cleaning up is left to a later run: %s", sequence.dataset_urn, reasons)

    def _write_manifest(self, sequence: CommitSequence) -> None:
        is_changing = bool(sequence.files or sequence.removed)
        after = sequence.after
        path = manifest_path(sequence.output_root, after.job, after.dataset_urn, after.snapshot)
        # A rollback adds no file, but it makes a snapshot.
        if is_changing or (after.snapshot and self._storage.size(path) is None):
            write_manifest(
                self._storage,
                self._store,
                output_root=sequence.output_root,
                job=sequence.job,
                dataset_urn=sequence.dataset_urn,
                snapshot=after.snapshot,
                added=sequence.files if is_changing else None,
                removed=sequence.removed,
                schemas=after.schemas,
            )

    def _abort(self, sequence: CommitSequence, epoch: int, reason: str) -> None:
        """Undo a sequence with lost staged files; if that cannot be done safely, quarantine it."""
        because = f"{reason.rstrip('.')}."
        group = sequence.group
        leader = self._store.load_sequence(group.leader) if group is not None else None
        if leader is not None and leader.id != sequence.id and leader.state is SequenceState.COMMITTED:
            raise self._quarantine(sequence, f"{because} Other datasets of its run are published, so it is not undone")
        # The steps of a group begin only after its leader is stored. The caller holds the lease that storing it needs,
        # so no other run can store it now.
        has_begun = group is None or leader is not None
        if has_begun and not self._storage.is_move_atomic:
            # A copy by a run that is only frozen may appear after the undo: a duplicate for readers of the folder.
            raise self._quarantine(
                sequence, f"{because} Moves of this storage are copies, so it cannot be undone safely"
            )
        if has_begun and not all(traits_of(step, StepTraits).is_undoable for step in sequence.steps):
            raise self._quarantine(sequence, f"{because} It has steps that cannot be undone")
        self._store.start_abort(sequence.id, epoch, reason)
        self._finish_abort(sequence, epoch)

    def _finish_abort(self, sequence: CommitSequence, epoch: int) -> None:
        published = {file.path for file in self._store.load_snapshot(sequence.job, sequence.dataset_urn)}
        try:
            undo_steps(self._storage, sequence, published)
        except StepRefusedError as error:
            raise self._quarantine(sequence, str(error)) from error
        self._store.finish_abort(sequence.id, epoch)
        delete_staging(self._storage, sequence)

    # -- helpers -------------------------------------------------------------------------------------------------------
    def _resume(self, state: SequenceState, sequence: CommitSequence, epoch: int, undo_because: str) -> tuple[int, int]:
        if state is SequenceState.PREPARED and undo_because:
            self._abort(sequence, epoch, undo_because)
        elif state is SequenceState.PREPARED:
            return self._publish(sequence, epoch, verify_content=True)
        elif state is SequenceState.ABORTING:
            self._finish_abort(sequence, epoch)
        elif state is SequenceState.COMMITTED:
            self._after_commit(sequence)
        elif state is SequenceState.ABORTED:
            delete_staging(self._storage, sequence)
        return 0, 0

    def _state(self, sequence: CommitSequence) -> SequenceState:
        stored = self._store.load_sequence(sequence.id)
        if stored is None:
            raise CorruptRecordError(what=f"Commit sequence {sequence.id}", problem="the store does not hold it")
        return stored.state

    def _quarantine(self, sequence: CommitSequence, reason: str) -> QuarantinedError:
        self._store.quarantine(sequence.id, reason)
        return QuarantinedError(dataset_urn=sequence.dataset_urn, sequence_id=sequence.id, reason=reason)

    def count_failure(self, sequence: CommitSequence, error: Exception) -> Recovery:
        """Count a failed redo; at the limit, quarantine the sequence. An error of the environment is not counted."""
        reason = str(_storage_error("redo", sequence, error) if isinstance(error, OSError) else error)
        if isinstance(error, EnvironmentFaultError):
            # The sequence is sound; it waits for a package or a variable, however often it is tried.
            return self._recovery(sequence, reason=reason)
        count = self._store.record_redo_failure(sequence.id, reason)
        if count >= self._redo_limit:
            reason = f"{count} redos failed, the last one with: {reason}"
            self._store.quarantine(sequence.id, reason)
        return self._recovery(sequence, reason=reason)

    def _recovery(self, sequence: CommitSequence, done: int = 0, redone: int = 0, reason: str = "") -> Recovery:
        state = self._state(sequence)
        reason = "" if state is SequenceState.COMMITTED else reason
        return Recovery(sequence.id, sequence.dataset_urn, state, done, redone, reason)


def _manifest_error(sequence: CommitSequence, error: OSError) -> StorageError:
    number = sequence.after.snapshot
    return StorageError(
        operation=f"write the manifest of snapshot {number}, at",
        path=str(error.filename2 or error.filename or sequence.output_root),
        problem=f"{error.strerror or error}. The snapshot is committed; readers of manifests find it after the next "
        "run",
        dataset_urn=sequence.dataset_urn,
    )


def _storage_error(operation: str, sequence: CommitSequence, error: OSError) -> StorageError:
    path = error.filename2 or error.filename or sequence.output_root
    return StorageError(
        operation=f"{operation} sequence {sequence.id}, at",
        path=str(path),
        problem=error.strerror or str(error),
        dataset_urn=sequence.dataset_urn,
    )
