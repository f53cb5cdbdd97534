"""Undo a sequence that cannot be finished: delete its sources first, then the targets that are certainly its own.

Sources go first because a frozen run may wake at any moment and go on moving files: after the last source is deleted,
no target can appear any more. (Targets first was searched exhaustively: it publishes duplicates.)
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable

from gobblin_dagster.core.commit import CommitSequence
from gobblin_dagster.core.errors import StepRefusedError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.commit.step_runner import folders_of
from gobblin_dagster.engine.commit.steps import RenameFileStep, renames_of


def undo_steps(storage: Storage, sequence: CommitSequence, published: Collection[str]) -> None:
    """Delete what a sequence staged or moved; a second call changes nothing.

    A source of a `CommitStepStore` that holds other bytes than the prepared ones stays: the program that put the steps
    has written it since then.

    Args:
        storage: holds the files; its moves must be atomic.
        sequence: ABORTING in the store, so that no run may commit it any more.
        published: paths that snapshots of the dataset list.

    Raises:
        StepRefusedError: a target exists that is not certainly the sequence's own; only sources were deleted.
        OSError: the storage refused; try again.
    """
    steps = list(renames_of(sequence.steps))
    for step in steps:
        is_foreign = sequence.is_staged_beside and not step.is_source_sound(storage)
        if not is_foreign:
            storage.delete(step.source)
    _sync(storage, (step.source for step in steps))
    ours = [step for step in steps if _is_ours(storage, sequence, step, published)]
    for step in ours:
        storage.delete(step.target)
    _sync(storage, (step.target for step in steps))


def _is_ours(storage: Storage, sequence: CommitSequence, step: RenameFileStep, published: Collection[str]) -> bool:
    """True if the target exists and is ours: it has our commit id and our bytes, and no snapshot lists it."""
    if storage.size(step.target) is None:
        return False
    if step.target in published:
        raise StepRefusedError(step=step.describe(), problem="a snapshot names the target")
    if sequence.id not in posixpath.basename(step.target):
        raise StepRefusedError(step=step.describe(), problem=f"the target's name lacks the commit id {sequence.id}")
    if not step.verify(storage):
        raise StepRefusedError(step=step.describe(), problem="the target holds other bytes")
    return True


def _sync(storage: Storage, paths: Iterable[str]) -> None:
    for folder in folders_of(paths):
        try:
            storage.sync_dir(folder)
        except FileNotFoundError:
            continue  # never made, or deleted with staging: no file in it can come back
