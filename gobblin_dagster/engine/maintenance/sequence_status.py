"""Look up which steps of one commit sequence are done: from files, store and manifest, not from what was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from gobblin_dagster.core.commit import CommitSequence, StoredSequence
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.utils.table import Column, Table
from gobblin_dagster.core.utils.text import printable
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.engine.commit.inspect import StepStatus, inspect_progress, inspect_steps
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.publishers import load_step_types
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.storage import open_storage

_STEPS: tuple[Column[StepStatus], ...] = (
    Column("step", "text", lambda one: one.step),
    Column("is done", "flag", lambda one: one.is_done),
)


@dataclass(frozen=True, slots=True, repr=False)
class SequenceStatus(Table[StepStatus]):
    """One commit sequence and what was found of its steps; shown as a table of them, which it also iterates."""

    stored: StoredSequence
    sequence: CommitSequence
    steps: tuple[StepStatus, ...]
    """The stored steps, in order."""
    progress: tuple[StepStatus, ...]
    """The parts after the steps: the transaction that moves the watermark, and the manifest."""

    def _title(self) -> str:
        one = self.stored
        why = f": {one.reason}" if one.reason else ""
        return f"sequence {one.id} of dataset {printable(one.dataset_urn)} ({one.job}): {one.state}{why}"

    def _items(self) -> Sequence[StepStatus]:
        return (*self.steps, *self.progress)

    def _columns(self) -> Sequence[Column[StepStatus]]:
        return _STEPS


def sequence_status(project: Project, store: StateStore, sequence_id: str, limit: int | None = None) -> SequenceStatus:
    """Return a commit sequence and which of its steps are done; reads published files whole.

    Args:
        project: that of the sequence's job.
        store: the state store.
        sequence_id: its id.
        limit: look at this many stored steps at most; default: all.

    Raises:
        UsageError: there is no such sequence.
        CorruptRecordError: it is damaged, or holds a step of a type that cannot be loaded.
    """
    stored = store.load_sequence(sequence_id)
    if stored is None:
        hint = "`gobblin commit list --all` lists them."
        raise UsageError(problem=f"There is no commit sequence {sequence_id[:40]!r}.", hint=hint)
    for job in project.jobs:
        if job.job == stored.job:
            load_step_types(job)
    sequence = decode_sequence(stored, store.places)
    storage = open_storage(sequence.output_root)
    steps = tuple(islice(inspect_steps(sequence, storage), limit))
    return SequenceStatus(stored, sequence, steps, tuple(inspect_progress(sequence, store, storage)))
