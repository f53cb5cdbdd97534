"""Run the folders, steps and syncs of one sequence, in several threads if there are many."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from gobblin_dagster.core.commit import CommitSequence, CommitStep
from gobblin_dagster.core.errors import StagedFileLostError, StepRefusedError
from gobblin_dagster.core.storage import FolderStorage, Storage, UploadStorage
from gobblin_dagster.core.traits import StepTraits, traits_of
from gobblin_dagster.core.utils.parallel import in_parallel
from gobblin_dagster.engine.commit.links import require_no_way_out
from gobblin_dagster.engine.commit.listener import CommitListener
from gobblin_dagster.engine.commit.step_distribution import FILES_PER_BATCH, StepDistribution, run_rename
from gobblin_dagster.engine.commit.steps import is_rename, renames_of

log = logging.getLogger(__name__)
STEPS_PER_CHUNK = 128
"""Number of single-file steps that one thread runs at a time; a batch counts as its files."""
SLOW_STEP_S = 0.0005
"""Seconds per step above which threads are faster. A local rename takes a hundredth of it, so threads would only wait
for the interpreter's lock; copies, remote file systems and comparing content take more."""
NONE_MADE: Mapping[str, OSError | None] = MappingProxyType({})
"""No folder was made yet."""


def folders_of(paths: Iterable[str]) -> list[str]:
    """Return the distinct folders of files, sorted."""
    return sorted({path.rpartition("/")[0] for path in paths})


def make_shared_folders(storage: Storage, folders: Collection[str]) -> dict[str, OSError | None]:
    """Make folders at once and return their errors; return nothing if the storage cannot make many at once."""
    if not isinstance(storage, FolderStorage) or not folders:
        return {}
    try:
        return storage.make_all_dirs(folders)
    except OSError as error:
        return dict.fromkeys(folders, error)


class StepRunner:
    """Executes the steps of sequences; keeps no state between them."""

    def __init__(
        self, storage: Storage, parallelism: int, listener: CommitListener, spread: StepDistribution | None = None
    ) -> None:
        self._storage = storage
        self._spread = spread
        self._parallelism = parallelism
        self._listener = listener

    def sync_folders(self, paths: Iterable[str]) -> None:
        """Sync each distinct folder of the files once; raises OSError."""
        in_parallel(self._storage.sync_dir, folders_of(paths), self._parallelism)

    def make_folders(self, sequences: Sequence[CommitSequence]) -> dict[str, OSError | None]:
        """Make the folders of the targets of many sequences, where common parents need only one sync.

        Returns:
            Errors by folder; None if it is there and durable. Without an entry, `roll_forward` makes it.
        """
        wanted: list[str] = []
        for sequence in sequences:
            targets = [rename.target for rename in renames_of(sequence.steps)]
            with suppress(StepRefusedError, OSError):  # `roll_forward` raises it again, for this dataset
                require_no_way_out(self._storage, sequence.output_root, targets)
                wanted += folders_of(targets)
        return make_shared_folders(self._storage, wanted)

    def roll_forward(
        self, sequence: CommitSequence, *, verify_content: bool, made: Mapping[str, OSError | None] = NONE_MADE
    ) -> tuple[int, int]:
        """Run all steps and make them durable: renames first, in any order, then the others in their order.

        Args:
            sequence: prepared, its paths checked.
            verify_content: compare bytes before trusting a source or a target; False right after the files were staged.
            made: the result of `make_folders`, if it was called.

        Returns:
            (steps found done, steps executed).

        Raises:
            StepRefusedError, StagedFileLostError, OSError: the worst of the errors, in this order; the other steps ran
                as far as they could.
        """
        targets = [rename.target for rename in renames_of(sequence.steps)]
        touched = [*targets, *_changed_by_others(sequence)]
        require_no_way_out(self._storage, sequence.output_root, touched)
        folders = folders_of(targets)
        for folder in folders:
            if (fault := made.get(folder)) is not None:
                raise fault
        in_parallel(self._storage.make_dirs, [one for one in folders if one not in made], self._parallelism)
        renames = [step for step in sequence.steps if is_rename(step)]
        numbers = itertools.count(1)

        def run(steps: Sequence[CommitStep]) -> tuple[int, list[Exception]]:
            executed = 0
            for step in steps:
                try:
                    if self._run(step, verify_content=verify_content):
                        executed += 1
                        self._listener.step_done(sequence, step, next(numbers))
                except Exception as error:  # noqa: BLE001  # raised below, after the other threads have ended
                    return executed, [error]
            return executed, []

        if self._spread is not None and len(targets) >= self._spread.threshold and sequence.staging_dirs:
            results = self._run_elsewhere(self._spread, sequence, renames, verify_content=verify_content)
        else:
            # A large chunk of copies would keep one thread busy for half a minute.
            per_chunk = STEPS_PER_CHUNK if self._storage.is_move_atomic else 1
            chunks = list(_chunks(renames, per_chunk))
            started = time.perf_counter()
            results = [run(chunk) for chunk in chunks[:1]]
            is_slow = time.perf_counter() - started > SLOW_STEP_S * per_chunk
            results += in_parallel(run, chunks[1:], self._parallelism if is_slow else 1)
        errors = [error for _, found in results for error in found]
        if errors:
            raise min(errors, key=_gravity)
        # A program that replaced a folder while files were moved took them away.
        require_no_way_out(self._storage, sequence.output_root, touched)
        # The renames must survive a power loss before the watermark may move.
        self.sync_folders(targets)
        executed = sum(count for count, _ in results)
        for step in sequence.steps:
            if not is_rename(step) and self._run(step, verify_content=verify_content):
                executed += 1
                self._listener.step_done(sequence, step, executed)
        if verify_content:
            self._end_uploads(targets)
        return len(sequence.steps) - executed, executed

    def _end_uploads(self, targets: Collection[str]) -> None:
        """End uploads that an earlier run began: all targets are in place, and their names belong to this sequence."""
        if not isinstance(self._storage, UploadStorage) or not targets:
            return
        try:
            self._storage.end_uploads(targets)
        except OSError as error:
            # Unfinished uploads are invisible, so they are no reason to hold data back.
            log.warning("Uploads that a killed run left at %s ... could not be ended: %s", min(targets), error)

    def _run_elsewhere(
        self, spread: StepDistribution, sequence: CommitSequence, renames: Sequence[CommitStep], *, verify_content: bool
    ) -> list[tuple[int, list[Exception]]]:
        batches = list(_chunks(renames, FILES_PER_BATCH))
        results = spread.execute(
            self._storage, sequence.output_root, sequence.staging_dirs[0], batches, verify_content=verify_content
        )
        done = 0
        for batch, (executed, _) in zip(batches, results, strict=True):
            done += executed
            if executed:
                self._listener.step_done(sequence, batch[-1], done)
        return results

    def _run(self, step: CommitStep, *, verify_content: bool) -> bool:
        """Run a step unless it is done; return True if anything was executed."""
        if renames := list(renames_of([step])):
            return sum(run_rename(self._storage, one, verify_content=verify_content) for one in renames) > 0
        if step.verify(self._storage):
            return False
        step.execute(self._storage)
        return True


def _changed_by_others(sequence: CommitSequence) -> Iterator[str]:
    """Yield the files that steps change which are no renames."""
    for step in sequence.steps:
        if not is_rename(step):
            yield from traits_of(step, StepTraits).output_paths


def _chunks(steps: Sequence[CommitStep], size: int) -> Iterator[Sequence[CommitStep]]:
    """Yield steps in parts of about `size` files."""
    chunk: list[CommitStep] = []
    files = 0
    for step in steps:
        chunk.append(step)
        files += sum(1 for _ in renames_of([step]))
        if files >= size:
            yield chunk
            chunk, files = [], 0
    if chunk:
        yield chunk


def _gravity(error: Exception) -> int:
    """Order errors: first those for a person, then those that end the sequence, then those that a retry may solve."""
    return 0 if isinstance(error, StepRefusedError) else 1 if isinstance(error, StagedFileLostError) else 2
