"""Clean up after a run that crashed or failed: write missing manifests, delete staged files, end its run record."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime

from gobblin_dagster.core.commit import WAITING
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import GobblinDagsterError, StorageError
from gobblin_dagster.core.lease import Lease
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.commit.manifest import fill_manifests
from gobblin_dagster.engine.layout import staging_dir
from gobblin_dagster.state.store import StateStore


def write_missing_manifests(
    states: Mapping[str, DatasetState], *, job: str, store: StateStore, storage: Storage, output_root: str
) -> tuple[dict[str, DatasetState], dict[str, Exception]]:
    """Write missing manifests; if one cannot be written, the others still are.

    Returns:
        The datasets with a manifest that was missing and is written now, and the errors of datasets that failed, by
        urn.
    """
    written: dict[str, DatasetState] = {}
    faults: dict[str, Exception] = {}
    for urn, state in states.items():
        try:
            if fill_manifests(storage, store, output_root, job, {urn: state}):
                written[urn] = state
        except OSError as error:
            path = str(error.filename or output_root)
            operation = f"write the manifest of snapshot {state.snapshot}, at"
            faults[urn] = StorageError(
                operation=operation, path=path, problem=error.strerror or str(error), dataset_urn=urn
            )
        except GobblinDagsterError as error:
            faults[urn] = error
    return written, faults


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
