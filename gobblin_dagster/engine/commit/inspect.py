"""Check which parts of a sequence are done: in the files, the store and the manifest, not by its recorded state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from gobblin_dagster.core.commit import CommitSequence
from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.commit.steps.transaction import WriteManifestStep, watermark_steps
from gobblin_dagster.state.store import StateStore


@dataclass(frozen=True, slots=True)
class StepStatus:
    """One step and whether it is done."""

    step: str
    """In words."""
    is_done: bool | None
    """None if it cannot be found out."""


def inspect_steps(sequence: CommitSequence, storage: Storage) -> Iterator[StepStatus]:
    """Yield the stored steps in order; reads published files completely, so large files take time."""
    return (StepStatus(step.describe(), _verified(partial(step.verify, storage))) for step in sequence.steps)


def inspect_progress(sequence: CommitSequence, store: StateStore, storage: Storage) -> Iterator[StepStatus]:
    """Yield the steps of the commit transaction, and the manifest that follows it."""
    for step in watermark_steps(sequence):
        yield StepStatus(step.describe(), _verified(partial(step.verify_in, store)))
    if sequence.files or sequence.removed:
        manifest = WriteManifestStep(sequence.output_root, sequence.job, sequence.dataset_urn, sequence.after.snapshot)
        yield StepStatus(manifest.describe(), _verified(partial(manifest.verify, storage)))


def _verified(verify: Callable[[], bool]) -> bool | None:
    try:
        return verify()
    except (OSError, GobblinDagsterError):
        return None
