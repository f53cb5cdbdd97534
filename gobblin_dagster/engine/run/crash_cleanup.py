"""Clean up after a run that crashed or failed: delete staged files, end its run record."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from gobblin_dagster.core.commit import WAITING
from gobblin_dagster.core.lease import Lease
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.layout import staging_dir
from gobblin_dagster.state.store import StateStore


def delete_staging_of(
    ended: Collection[Lease], *, job: str, store: StateStore, storage: Storage, output_root: str
) -> None:
    """Delete the staged files of runs that have ended without it.

    Args:
        ended: leases whose owners' work has certainly ended; they must have been taken over, and their sequences
            recovered.
        job: the job's name.
        store: the state store.
        storage: the storage of the output.
        output_root: absolute path of the output.

    Raises:
        OSError: the storage refused; nothing is lost, `gobblin clean` tries again.
    """
    if not ended:
        return
    # A sequence that waits for recovery or for a person still needs its staged files.
    waiting = store.load_sequences(job, states=WAITING)
    for run_id in {lease.owner.run_id for lease in ended} - {sequence.run_id for sequence in waiting}:
        storage.delete_tree(staging_dir(output_root, run_id))


def end_records(run_ids: Collection[str], *, job: str, store: StateStore, now: datetime) -> None:
    """Mark the records of runs that crashed, and so still say `running`, as interrupted."""
    for record in store.find_runs(job, run_ids):
        if record.run_id in run_ids and record.status is RunStatus.RUNNING:
            store.save_run(replace(record, status=RunStatus.INTERRUPTED, ended_at=now))
