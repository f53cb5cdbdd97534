"""What a run that was killed or failed leaves besides its commit sequences: leases, staged files, a missing manifest.

And a record that says it is running.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime

from gobblin_dagster.core.commit import WAITING
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import GobblinDagsterError, StorageError
from gobblin_dagster.core.lease import Lease
from gobblin_dagster.core.run_record import RECENT_RUNS, RunStatus
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.commit.manifest import fill_manifests
from gobblin_dagster.engine.layout import staging_dir
from gobblin_dagster.state.store import StateStore


def mend_manifests(
    states: Mapping[str, DatasetState], *, job: str, store: StateStore, storage: Storage, output_root: str
) -> tuple[dict[str, DatasetState], dict[str, Exception]]:
    """Write the manifests that are missing; one that cannot be written does not stop the others.

    Returns:
        The datasets whose manifest was missing and is written, and why others could not be looked after, by urn.
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


def tidy_up_after(dead: Collection[Lease], *, job: str, store: StateStore, storage: Storage, output_root: str) -> None:
    """Delete the staging of dead runs.

    Args:
        dead: leases whose owner is provably gone; they must have been taken over, and their sequences recovered.
        job: the job's name.
        store: the state store.
        storage: where the output is.
        output_root: absolute.

    Raises:
        OSError: the storage refused; nothing is lost, `gobblin clean` tries again.
    """
    if not dead:
        return
    # A sequence that waits for a redo or for a person still needs its staged files.
    waiting = store.load_sequences(job, states=WAITING)
    for run_id in {lease.owner.run_id for lease in dead} - {sequence.run_id for sequence in waiting}:
        storage.delete_tree(staging_dir(output_root, run_id))


def end_records(run_ids: Collection[str], *, job: str, store: StateStore, now: datetime) -> None:
    """Note of runs that are over, and could not say so, that they were interrupted."""
    for record in store.load_runs(job, RECENT_RUNS) if run_ids else ():
        if record.run_id in run_ids and record.status is RunStatus.RUNNING:
            store.save_run(replace(record, status=RunStatus.INTERRUPTED, ended_at=now))
