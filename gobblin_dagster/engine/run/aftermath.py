"""What a killed run leaves besides its commit sequences: held leases, staged files, a manifest not yet written."""

from __future__ import annotations

from collections.abc import Collection

from gobblin_dagster.core.commit import WAITING
from gobblin_dagster.core.lease import Lease
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.commit.manifest import fill_manifests
from gobblin_dagster.engine.layout import staging_dir
from gobblin_dagster.state.store import StateStore


def tidy_up_after(dead: Collection[Lease], *, job: str, store: StateStore, storage: Storage, output_root: str) -> None:
    """Write missing manifests of datasets that dead runs held, and delete the runs' staging.

    Args:
        dead: leases whose owner is provably gone; they must have been taken over, and their sequences recovered.
        job: the job's name.
        store: the state store.
        storage: where the output is.
        output_root: absolute.

    Raises:
        OSError: the storage refused; nothing is lost, a later run tries again.
    """
    if not dead:
        return
    fill_manifests(
        storage, store, output_root, job, store.load_dataset_states(job, [lease.dataset_urn for lease in dead])
    )
    # A sequence that waits for a redo or for a person still needs its staged files.
    waiting = store.load_sequences(job, states=WAITING)
    for run_id in {lease.owner.run_id for lease in dead} - {sequence.run_id for sequence in waiting}:
        storage.delete_tree(staging_dir(output_root, run_id))
