"""List the snapshots of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from gobblin_dagster.core.commit import CommitSequence, SequenceState
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import CorruptRecordError
from gobblin_dagster.core.watermark import Watermark
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.state.store import StateStore

if TYPE_CHECKING:
    pass


# -- history -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """One past or present snapshot, for people."""

    snapshot: int
    committed_at: datetime
    run_id: str
    sequence_id: str
    """Id of the sequence that committed it."""
    rows: Mapping[str, int]
    """Rows that it added, by branch."""
    files: int
    """Files that it added."""
    removed: int
    """Files of earlier snapshots that it no longer holds, without the files that a rollback left."""
    state: DatasetState
    """The dataset's state right after its commit, before later moves of the watermark alone by a run or a person."""
    went_back_to: int | None
    """The snapshot that a rollback restored; None if it was no rollback."""

    @property
    def watermark(self) -> Watermark | None:
        """Watermark after its commit."""
        return self.state.watermark


def list_snapshots(store: StateStore, job: str, dataset_urn: str) -> list[SnapshotInfo]:
    """Return all snapshots in the store, newest first; a record that cannot be read is left out."""
    found: dict[int, SnapshotInfo] = {}
    for stored in reversed(store.load_sequences(job, {SequenceState.COMMITTED}, [dataset_urn])):
        try:
            sequence = decode_sequence(stored, store.places, skip_unknown_steps=True)
        except CorruptRecordError:
            continue
        # Other sequences of the same number moved the watermark and published nothing.
        if sequence.after.snapshot and sequence.after.snapshot not in found:
            found[sequence.after.snapshot] = _info(sequence, stored.created_at)
    return [found[number] for number in sorted(found, reverse=True)]


def _info(sequence: CommitSequence, committed_at: datetime) -> SnapshotInfo:
    rows: dict[str, int] = {}
    for file in sequence.files:
        rows[file.branch] = rows.get(file.branch, 0) + file.rows
    number = sequence.after.snapshot
    went_back_to = next((one.to for one in sequence.after.rollbacks if one.snapshot == number), None)
    return SnapshotInfo(
        number,
        committed_at,
        sequence.run_id,
        sequence.id,
        rows,
        len(sequence.files),
        len(sequence.removed),
        sequence.after,
        went_back_to,
    )
