"""Batches: datasets of a run that share transactions of the state store, because each costs a sync of its disk.

Each dataset of a batch still stands alone: one that fails leaves the batch, see `Committer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from gobblin_dagster.core.commit import CommitSequence
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.traits import StepTraits, traits_of
from gobblin_dagster.engine.commit.steps import renames_of

MOST_DATASETS = 32
"""Most datasets of a batch. A crash leaves up to so many sequences for each thread to the next run."""
MOST_FILES = 100
"""Most files of a dataset that shares transactions: with more, its own work takes longer than the transactions."""

Leased: TypeAlias = tuple[CommitSequence, int]
"""A sequence and our epoch of its dataset."""
Errors: TypeAlias = dict[str, Exception | None]
"""Errors by dataset.urn; None if the dataset is fine."""
Look: TypeAlias = Callable[[Sequence[CommitSequence]], Mapping[str, Exception]]
"""Says, by dataset.urn, why sequences must not be published that were prepared just now. Two runs that prepare
the same rows in the same moments, and look then, do not both overlook the other one."""


def no_look(_: Sequence[CommitSequence]) -> Mapping[str, Exception]:
    """Let all sequences be published."""
    return {}


def share_transactions(items: Sequence[Leased], parallelism: int, storage: Storage) -> list[list[Leased]]:
    """Split datasets into batches; a dataset that takes long is a batch of its own, so that no other waits for it.

    Datasets take long if they have many files, if a storage copies files to move them, and if they have steps that are
    not brief, such as loading a table.

    Args:
        items: at most one per dataset.
        parallelism: threads; each works on one batch at a time, and all of them get work.
        storage: moves the files.
    """
    small = [item for item in items if storage.is_move_atomic and _is_small(item[0])]
    size = max(1, min(MOST_DATASETS, -(-len(small) // parallelism)))
    taken = {sequence.id for sequence, _ in small}
    alone = [[item] for item in items if item[0].id not in taken]
    return [*alone, *(small[first : first + size] for first in range(0, len(small), size))]


def _is_small(sequence: CommitSequence) -> bool:
    if not all(traits_of(step, StepTraits).is_brief for step in sequence.steps):
        return False
    return sum(1 for _ in renames_of(sequence.steps)) <= MOST_FILES


def each(batch: Sequence[Leased], work: Callable[[CommitSequence, int], object]) -> Errors:
    """Do something for one dataset after the other, and return what each raised."""
    errors: Errors = {}
    for sequence, epoch in batch:
        try:
            work(sequence, epoch)
        except Exception as error:  # noqa: BLE001  # returned to the caller, which reports it for its dataset
            errors[sequence.dataset_urn] = error
        else:
            errors[sequence.dataset_urn] = None
    return errors


def without_faults(batch: Sequence[Leased], errors: Errors) -> list[Leased]:
    """Return the datasets that have no error."""
    return [item for item in batch if errors[item[0].dataset_urn] is None]
