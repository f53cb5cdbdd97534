"""The API of the exactly-once design, as a thin layer over the state store and the committer.

    steps = CommitStepStore(store, storage, "/lake/job-output")
    done = (
        steps.begin("kafka_to_lake", "MyTopic")
        .rename("/lake/task-output/MyTopic/1.avro", "/lake/job-output/MyTopic/1.avro")
        .high_watermark("0", 100)
        .end()
        .commit()
    )

`docs/concepts/commit.md` says what differs from the design, and why. Jobs do not use this module: they use the
committer itself.
"""

from __future__ import annotations

import logging
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeAlias

from gobblin_dagster.core.clock import Clock, SystemClock
from gobblin_dagster.core.commit import (
    WAITING,
    CommitSequence,
    CommitStep,
    PublishedFile,
    SequenceState,
    StoredSequence,
)
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import (
    CorruptRecordError,
    GobblinDagsterError,
    StagedFileLostError,
    StepRefusedError,
    UsageError,
)
from gobblin_dagster.core.ids import new_commit_id, new_run_id
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.storage import LinkStorage, Storage
from gobblin_dagster.core.watermark import CompositeWatermark, Watermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges, WatermarkInterval
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.engine.commit.committer import Committer
from gobblin_dagster.engine.commit.leases import LeaseKeeper
from gobblin_dagster.engine.commit.manifest import write_missing_manifests
from gobblin_dagster.engine.commit.path_guard import check_paths
from gobblin_dagster.engine.commit.staging import delete_staging
from gobblin_dagster.engine.commit.steps import RenameFileStep, renames_of
from gobblin_dagster.engine.commit.steps.transaction import DatasetStateStep, HighWatermarkStep, watermark_steps
from gobblin_dagster.spec.job import NAME_PATTERN
from gobblin_dagster.state.store import StateStore

log = logging.getLogger(__name__)
AnyStep: TypeAlias = CommitStep | HighWatermarkStep | DatasetStateStep
_SYSTEM_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class _Draft:
    """Steps that were put and not stored yet."""

    id: str
    steps: list[AnyStep]


@dataclass(frozen=True, slots=True)
class BoundStep:
    """A step with its store and storage, so that it is verified and executed without arguments, as in the design."""

    step: AnyStep
    _store: StateStore
    _storage: Storage

    def verify(self) -> bool:
        """True if the step is done."""
        if isinstance(self.step, HighWatermarkStep | DatasetStateStep):
            return self.step.verify_in(self._store)
        return self.step.verify(self._storage)

    is_completed = verify
    """The original's name."""

    def execute(self) -> bool:
        """Run the step alone; returns True.

        Raises:
            StepRefusedError: it sets a watermark, which only the commit transaction of the whole sequence does.
            OSError, StagedFileLostError: as the step's own `execute`.
        """
        if isinstance(self.step, HighWatermarkStep | DatasetStateStep):
            raise StepRefusedError(step=self.step.describe(), problem="only `commit` of the sequence moves a watermark")
        self.step.execute(self._storage)
        return True


class StepSequence:
    """All steps of one dataset; made by `CommitStepStore`.

    Source: `CommitSequence` of the exactly-once design.
    """

    def __init__(
        self, store: CommitStepStore, store_name: str, dataset_urn: str, steps: Sequence[BoundStep], commit_id: str
    ) -> None:
        self.store_name = store_name
        self.dataset_urn = dataset_urn
        self.steps = tuple(steps)
        self._store = store
        self._id = commit_id

    def commit(self) -> bool:
        """Run the steps that are not done and end the sequence; False if that failed, which is logged.

        If it returned True, or the sequence was removed, another call verifies the steps and does nothing else. If it
        returned False, the sequence waits for the next `commit` of `get_commit_sequence`, also in another process.
        After the third failed redo it is quarantined, and each further call fails until it is removed. If a file that
        it moves is lost or holds other bytes, it is undone as by `CommitStepStore.remove`.
        """
        try:
            if self._store.waiting_id(self.store_name, self.dataset_urn) != self._id:
                return all(step.verify() for step in self.steps)
            return self._store.commit(self.store_name, self.dataset_urn)
        except Exception:
            log.exception("Commit failed for dataset %r of %s", self.dataset_urn, self.store_name)
            return False


class SequenceBuilder:
    """Collects the steps of one dataset between `begin` and `end`."""

    def __init__(self, store: CommitStepStore, store_name: str, dataset_urn: str) -> None:
        self._store = store
        self._names = (store_name, dataset_urn)

    def step(self, step: AnyStep) -> SequenceBuilder:
        """Add a step; returns the builder."""
        self._store.put(*self._names, step)
        return self

    def rename(self, source: str, target: str) -> SequenceBuilder:
        """Add the move of a finished file, taking size and checksum from it; raises StagedFileLostError."""
        return self.step(self._store.rename_step(source, target))

    def high_watermark(self, partition: str, high: int) -> SequenceBuilder:
        """Add the next position to read of a partition."""
        return self.step(HighWatermarkStep(*self._names, partition, high, CompositeWatermark))

    def end(self) -> StepSequence:
        """Return the sequence; nothing is stored or done yet."""
        return self._store.get_commit_sequence(*self._names)


class CommitStepStore:
    """Commit steps by (store name, dataset.urn); a store name is a job name of the state store.

    Steps stay in this object until `StepSequence.commit` stores all of them in one transaction, before the first is
    run, so half a sequence is never stored. Names of targets are used as given. A file without the commit id in its
    name is never undone, so a sequence that loses such files is quarantined.

    Args:
        store: a state store of any kind.
        storage: holds the files. In a local one, links that lead out of the output are not followed: `commit` fails.
        output_root: absolute path; targets are below it, sources apart from it (`task-output` beside `job-output`) or
            below its `_gobblin` folder. After their sequence has ended, empty folders of sources are deleted.
        clock: gives the creation time of sequences.
        lease_ttl: time to live of the dataset's lease while `commit` and `remove` work.

    Source: `CommitStepStore` of the exactly-once design and gobblin-api `CommitSequenceStore`. Differs: runs are fenced
    by lease and version, and a sequence that is removed before its commit is undone.
    """

    def __init__(
        self,
        store: StateStore,
        storage: Storage,
        output_root: str,
        *,
        clock: Clock = _SYSTEM_CLOCK,
        lease_ttl: timedelta = timedelta(minutes=1),
    ) -> None:
        self._store = store
        self._root = output_root.rstrip("/")
        self._storage = storage.confined(self._root) if isinstance(storage, LinkStorage) else storage
        self._clock = clock
        self._ttl = lease_ttl
        self._committer = Committer(store, self._storage)
        self._drafts: dict[str, dict[str, _Draft]] = {}

    # -- the design's methods ------------------------------------------------------------------------------------------
    def create(self, store_name: str, dataset_urn: str | None = None) -> bool:
        """Make a store, or a dataset in a store; False if it exists.

        Raises UsageError for a bad name, and for a store whose newest sequence has another output.

        First finishes the work after a commit that a crash left, for all datasets of the store or this one: manifest
        and empty folders of sources. What cannot be finished is logged and waits for the next call.
        """
        if not re.fullmatch(NAME_PATTERN, store_name):
            raise UsageError(
                problem=f"{store_name!r} is not a store name.", hint="Letters, digits and _, as for a job."
            )
        if dataset_urn is None:
            self._require_own_output(store_name)
            self._finish_ended(store_name)
            is_new = store_name not in self._drafts and store_name not in self._store.list_jobs()
            self._drafts.setdefault(store_name, {})
            return is_new
        if self.exists(store_name, dataset_urn):
            return False
        self._require_own_output(store_name)
        self._finish_ended(store_name, dataset_urn)
        self._drafts.setdefault(store_name, {})[dataset_urn] = _Draft(new_commit_id(), [])
        return True

    def exists(self, store_name: str, dataset_urn: str = "") -> bool:
        """True if a dataset has waiting steps, stored or put here; the empty urn is legal."""
        return dataset_urn in self._drafts.get(store_name, {}) or bool(self._waiting(store_name, dataset_urn))

    def remove(self, store_name: str, dataset_urn: str | None = None) -> bool:
        """Give up the waiting steps of a dataset, or of a whole store; False if there were none or it is not safe.

        A stored sequence is undone: the files that it was to move are deleted where they are, unless other bytes were
        written there since then. A quarantined sequence is only ended, its files stay.
        """
        urns = self._urns(store_name) if dataset_urn is None else [dataset_urn]
        removed = [self._remove(store_name, urn) for urn in urns]
        if dataset_urn is None:
            return self._drafts.pop(store_name, None) is not None or (bool(removed) and all(removed))
        return removed[0]

    def put(self, store_name: str, dataset_urn: str, step: AnyStep) -> bool:
        """Add a step to a dataset; False if a stored sequence waits, which must be committed or removed first.

        Raises:
            StepRefusedError: no sequence with these paths could ever be committed, or the step moves the watermark of
                another dataset.
        """
        moved = step.after if isinstance(step, DatasetStateStep) else step
        if isinstance(moved, DatasetState | HighWatermarkStep) and (moved.job, moved.dataset_urn) != (
            store_name,
            dataset_urn,
        ):
            problem = f"it was put for dataset {dataset_urn!r} of {store_name}; each dataset has its own sequence"
            raise StepRefusedError(step=step.describe(), problem=problem)
        if self._waiting(store_name, dataset_urn):
            return False
        check_paths(self._sequence(store_name, dataset_urn, [step], None))
        draft = self._drafts.get(store_name, {}).get(dataset_urn)
        marks = [one.partition for one in draft.steps if isinstance(one, HighWatermarkStep)] if draft else []
        if isinstance(step, HighWatermarkStep) and step.partition in marks:
            raise StepRefusedError(step=step.describe(), problem="another step of the sequence sets this watermark")
        self.create(store_name, dataset_urn)
        self._drafts[store_name][dataset_urn].steps.append(step)
        return True

    def get_commit_sequence(self, store_name: str, dataset_urn: str = "") -> StepSequence:
        """Return the waiting steps of a dataset: stored ones, else those put here.

        Raises:
            UsageError: there are none, or the newest sequence of the store has another output.
            StepRefusedError: the steps that were put here could never be committed together.
        """
        self._require_own_output(store_name)
        stored = self._waiting(store_name, dataset_urn)
        if stored:
            sequence = decode_sequence(stored[0], self._store.places)
            commit_id = sequence.id
            steps: list[AnyStep] = [*sequence.steps, *watermark_steps(sequence)]
        elif self.exists(store_name, dataset_urn):
            draft = self._drafts[store_name][dataset_urn]
            commit_id, steps = draft.id, draft.steps
            check_paths(self._sequence(store_name, dataset_urn, steps, None))
        else:
            raise UsageError(problem=f"No commit steps wait for dataset {dataset_urn!r} of {store_name}.")
        bound = [BoundStep(step, self._store, self._storage) for step in steps]
        return StepSequence(self, store_name, dataset_urn, bound, commit_id)

    get = get_commit_sequence
    """The original's name."""
    delete = remove
    """The original's name."""

    def begin(self, store_name: str, dataset_urn: str = "") -> SequenceBuilder:
        """Begin a sequence, as `create` does; raises UsageError if one waits already."""
        if not self.create(store_name, dataset_urn):
            raise UsageError(
                problem=f"Commit steps wait for dataset {dataset_urn!r} of {store_name}.",
                hint="Commit or remove them first.",
            )
        return SequenceBuilder(self, store_name, dataset_urn)

    def rename_step(self, source: str, target: str) -> RenameFileStep:
        """Return the move of a finished file; raises StagedFileLostError if it does not exist."""
        size = self._storage.size(source)
        if size is None:
            raise StagedFileLostError(path=source, target=target, problem="is not there")
        return RenameFileStep(source, target, size, self._storage.sha256(source))

    # -- committing ----------------------------------------------------------------------------------------------------
    def commit(self, store_name: str, dataset_urn: str = "") -> bool:
        """Commit the waiting steps of a dataset; raises the errors that `StepSequence.commit` turns into False."""
        with self._lease(store_name, dataset_urn) as epoch:
            self._require_own_output(store_name)
            stored = self._waiting(store_name, dataset_urn)
            if not stored:
                before = self._store.load_dataset_states(store_name, [dataset_urn]).get(dataset_urn)
                draft = self._drafts[store_name][dataset_urn]
                sequence = replace(self._sequence(store_name, dataset_urn, draft.steps, before), id=draft.id)
                self._require_free_targets(sequence)
                self._committer.prepare(sequence, epoch)
                del self._drafts[store_name][dataset_urn]
                self._committer.publish(sequence, epoch, verify_sources=True)  # another program wrote the files
                return True
            recovery = self._committer.recover(stored[0], epoch)
        if recovery.outcome is not SequenceState.COMMITTED:
            log.error(
                "Commit of dataset %r of %s is %s: %s", dataset_urn, store_name, recovery.outcome, recovery.reason
            )
        return recovery.outcome is SequenceState.COMMITTED

    def _require_free_targets(self, sequence: CommitSequence) -> None:
        """Raise StepRefusedError if a target is there before the move: equal bytes would count as a move that is done.

        If the source is gone, the step was executed alone.
        """
        for rename in renames_of(sequence.steps):
            with suppress(NotADirectoryError):  # a file in place of a folder may go away until the next try
                if self._storage.size(rename.target) is not None and self._storage.size(rename.source) is not None:
                    raise StepRefusedError(step=rename.describe(), problem="the target exists already")

    def _sequence(
        self, store_name: str, dataset_urn: str, steps: Sequence[AnyStep], before: DatasetState | None
    ) -> CommitSequence:
        actions = tuple(step for step in steps if not isinstance(step, HighWatermarkStep | DatasetStateStep))
        renames = list(renames_of(actions))
        now = self._clock.now()
        commit_id = new_commit_id()
        committed, run_id = _committed(before, steps, dataset_urn), new_run_id(now)
        at = now if before is None else before.later(now)
        if before is None:
            before = DatasetState(store_name, dataset_urn, 0, committed, snapshot=0, run_id=run_id, updated_at=now)
        after = replace(
            before,
            version=before.version + 1,
            committed=committed,
            snapshot=before.snapshot + bool(renames),
            run_id=run_id,
            updated_at=at,
        )
        for step in steps:
            if isinstance(step, DatasetStateStep):
                after = replace(step.after, version=after.version, snapshot=after.snapshot)
        return CommitSequence(
            id=commit_id,
            job=store_name,
            dataset_urn=dataset_urn,
            run_id=after.run_id,
            version_read=after.version - 1,
            steps=actions,
            files=tuple(PublishedFile("main", r.target, r.size_bytes, r.sha256, 0, after.snapshot) for r in renames),
            after=after,
            output_root=self._root,
            staging_dirs=tuple(sorted({posixpath.dirname(rename.source) for rename in renames})),
            created_at=now,
            is_staged_beside=True,
        )

    @contextmanager
    def _lease(self, store_name: str, dataset_urn: str) -> Iterator[int]:
        owner = LeaseOwner.current(new_run_id(self._clock.now()))
        with LeaseKeeper(self._store, store_name, owner, self._ttl) as keeper:
            yield keeper.take(dataset_urn)
            keeper.leave(self._committer.unfinished)

    def _finish_ended(self, store_name: str, dataset_urn: str | None = None) -> None:
        """Do what the next run's recovery does for jobs: write missing manifests and delete folders of sources.

        Only empty folders, because the next task may have written its files there already. A lease that nobody holds
        shows the datasets. Those with a waiting sequence are left to its commit.
        """
        now = self._store.now()
        waiting = {sequence.dataset_urn for sequence in self._store.load_sequences(store_name, states=WAITING)}
        left = {
            urn
            for urn, lease in self._store.load_leases(store_name).items()
            if dataset_urn in (None, urn) and urn not in waiting and not lease.is_held(now)
        }
        if not left:
            return
        owner = LeaseOwner.current(new_run_id(self._clock.now()))
        with LeaseKeeper(self._store, store_name, owner, self._ttl) as keeper:
            urns = sorted(keeper.acquire(left).granted)
            states, _ = self._store.load_readable_states(store_name, urns)
            _, faults = write_missing_manifests(
                states, job=store_name, store=self._store, storage=self._storage, output_root=self._root
            )
            for urn in states.keys() - faults.keys():
                try:
                    self._delete_empty_folders(store_name, urn)
                    keeper.settle([urn])
                except (OSError, GobblinDagsterError) as error:
                    faults[urn] = error
        for urn, fault in faults.items():
            log.warning("Cleaning up after a commit of dataset %r of %s waits: %s", urn, store_name, fault)

    def _delete_empty_folders(self, store_name: str, dataset_urn: str) -> None:
        ended = self._store.load_sequences(store_name, {SequenceState.COMMITTED}, [dataset_urn], limit=1)
        for sequence in (decode_sequence(stored, self._store.places) for stored in ended):
            check_paths(sequence)
            delete_staging(self._storage, sequence, only_empty=True)

    # -- what waits ----------------------------------------------------------------------------------------------------
    def waiting_id(self, store_name: str, dataset_urn: str) -> str | None:
        """Return the commit id of the waiting steps of a dataset, stored or put here; None if there are none."""
        if stored := self._waiting(store_name, dataset_urn):
            return stored[0].id
        draft = self._drafts.get(store_name, {}).get(dataset_urn)
        return None if draft is None else draft.id

    def _require_own_output(self, store_name: str) -> None:
        """Raise UsageError if a store's newest sequence has another output: neither would have whole snapshots."""
        with suppress(CorruptRecordError):  # told where it is read
            for stored in self._store.load_sequences(store_name, set(SequenceState), limit=1):
                root = decode_sequence(stored, self._store.places, skip_unknown_steps=True).output_root.rstrip("/")
                if self._real(root) != self._real(self._root):
                    raise UsageError(
                        problem=f"The commit steps of {store_name!r} belong to the output {root}, not to {self._root}.",
                        hint="Give each output a store name of its own.",
                    )

    def _real(self, path: str) -> str:
        return self._storage.real_path(path) if isinstance(self._storage, LinkStorage) else path

    def _waiting(self, store_name: str, dataset_urn: str) -> list[StoredSequence]:
        return self._store.load_sequences(store_name, states=WAITING, urns=[dataset_urn])

    def _urns(self, store_name: str) -> list[str]:
        stored = self._store.load_sequences(store_name, states=WAITING)
        return sorted({*self._drafts.get(store_name, {}), *(sequence.dataset_urn for sequence in stored)})

    def _remove(self, store_name: str, dataset_urn: str) -> bool:
        had_draft = self._drafts.get(store_name, {}).pop(dataset_urn, None) is not None
        if not self._waiting(store_name, dataset_urn):
            return had_draft
        self._require_own_output(store_name)
        with self._lease(store_name, dataset_urn) as epoch:
            ended = [self._committer.abandon(s, epoch, "removed") for s in self._waiting(store_name, dataset_urn)]
        return all(state is SequenceState.ABORTED for state in ended)


def _committed(before: DatasetState | None, steps: Iterable[AnyStep], dataset_urn: str) -> CommittedRanges:
    """Return the ranges with the watermark of each partition moved to the position of its step."""
    marks = [step for step in steps if isinstance(step, HighWatermarkStep)]
    kind: type[Watermark] = marks[0].watermark_type if marks else CompositeWatermark
    committed = before.committed if before else CommittedRanges(kind, {})
    if not marks:
        return committed
    high = kind.from_components({mark.partition: mark.high for mark in marks})
    # The beginning of a partition is unknown here, so positions below its first watermark count as not committed.
    committed = committed.anchored(high)
    known = committed.high.components() if committed.high else {}
    low = kind.from_components({mark.partition: known[mark.partition] for mark in marks})
    return committed.add(WatermarkInterval(low, high), dataset_urn)


CommitSequenceStore = CommitStepStore
"""The original's name."""
