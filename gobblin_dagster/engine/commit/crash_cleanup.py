"""Clean up after a run that crashed or failed: delete staged files, end its run record with what it committed."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

from gobblin_dagster.core.commit import WAITING, SequenceState
from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.core.lease import DamagedLease, Lease
from gobblin_dagster.core.run_record import DatasetOutcome, DatasetRunRecord, RunStatus
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.engine.layout import staging_dir
from gobblin_dagster.state.store import StateStore

log = logging.getLogger(__name__)
_RECENT = 100
"""Runs whose records are looked at."""


def tidy_ended(*, job: str, store: StateStore, storage: Storage, output_root: str, now: datetime) -> None:
    """Clean up after runs that have ended without it, before a command takes over their leases.

    The next run would not find the owners of these leases any more.
    """
    leases = [lease for lease in store.load_leases(job).values() if not isinstance(lease, DamagedLease)]
    if not (over := [lease for lease in leases if not lease.is_held(now)]):
        return
    delete_staging_of(over, job=job, store=store, storage=storage, output_root=output_root)
    end_records(over, job=job, store=store, now=now)


def delete_staging_of(
    over: Collection[Lease], *, job: str, store: StateStore, storage: Storage, output_root: str
) -> None:
    """Delete the staged files of runs that have certainly ended, and did not do so themselves.

    Files that the storage does not let go stay, and are told in the log: `gobblin clean` tries again.

    Args:
        over: as in `end_records`.
        job: the job's name.
        store: the state store.
        storage: the storage of the output.
        output_root: absolute path of the output.
    """
    # A run leaves its leases at its very end; its process may go on, as one that Dagster ends or a notebook does.
    ended = {lease.owner.run_id for lease in over if lease.is_left or lease.owner.is_provably_dead()}
    if over:
        # Whose leases a person's change, or a recovery that was killed, took over: no lease names these runs any more.
        staged: set[str] = set()
        with _refusal_is_told(staging_dir(output_root)):
            staged = {*storage.list_names(staging_dir(output_root))}
        stopped = _recent_runs(job, store, RunStatus.RUNNING, RunStatus.INTERRUPTED) & staged - ended
        ended |= _without_lease(stopped, job, store)
    _delete_staging(ended, job=job, store=store, storage=storage, output_root=output_root)


def delete_staging_without_lease(
    run_ids: Collection[str], *, job: str, store: StateStore, storage: Storage, output_root: str
) -> None:
    """Delete the staged files of runs whose stored sequences came to an end, if these runs hold no lease any more.

    A recovery that was stopped took their leases over, and had to leave their files. Those that the storage does not
    let go stay, as in `delete_staging_of`.

    Args:
        run_ids: the runs.
        job: the job's name.
        store: the state store.
        storage: the storage of the output.
        output_root: absolute path of the output.
    """
    # Where nobody knows whose a lease is, `gobblin clean` asks the records of runs.
    without = _without_lease({*run_ids}, job, store)
    _delete_staging(without, job=job, store=store, storage=storage, output_root=output_root)


def _delete_staging(run_ids: set[str], *, job: str, store: StateStore, storage: Storage, output_root: str) -> None:
    if not run_ids:
        return
    # A sequence that waits for recovery or for a person still needs its staged files.
    waiting = store.load_sequences(job, states=WAITING)
    for run_id in run_ids - {sequence.run_id for sequence in waiting}:
        with _refusal_is_told(staging_dir(output_root, run_id)):
            storage.delete_tree(staging_dir(output_root, run_id))


@contextmanager
def _refusal_is_told(folder: str) -> Iterator[None]:
    """Go on if the storage refuses: nothing is lost, and a job must not stop for what another run left."""
    try:
        yield
    except OSError as error:
        log.warning(
            "What a run that has ended left in %s cannot be deleted now: %s. `gobblin clean` tries again.",
            folder,
            error.strerror or error,
        )


def end_records(over: Collection[Lease], *, job: str, store: StateStore, now: datetime) -> None:
    """Mark the records of runs that crashed, and so still say `running`, as interrupted; add what was committed.

    So also those of runs without any lease: a run that took it over was stopped before it ended their records.

    Of a run on another machine, such as a container that is gone, nobody knows more than that its lease is over. If it
    was only frozen, it writes its record anew at its end.

    Args:
        over: leases of runs that have ended, or did not renew them in time.
        job: the job's name.
        store: the state store.
        now: the time of their end.
    """
    without_lease = _running_without_lease(job, store) if over else set()
    ended = {lease.owner.run_id for lease in over} | without_lease
    for record in store.find_runs(job, ended):
        if record.run_id not in ended:
            continue
        is_taken_over = record.run_id in without_lease
        urns = {lease.dataset_urn for lease in over if is_taken_over or lease.owner.run_id == record.run_id}
        datasets = {**committed_datasets(record.run_id, urns, job=job, store=store), **record.datasets}
        if record.status is RunStatus.RUNNING:
            store.save_run(replace(record, status=RunStatus.INTERRUPTED, ended_at=now, datasets=datasets))
        elif datasets.keys() > record.datasets.keys():
            store.save_run(replace(record, datasets=datasets))  # stopped at once, and finished by a recovery


def _running_without_lease(job: str, store: StateStore) -> set[str]:
    """Return runs that may have ended without a record of it; each writes that before it gives its leases back."""
    return _without_lease(_recent_runs(job, store, RunStatus.RUNNING), job, store)


def _recent_runs(job: str, store: StateStore, *states: RunStatus) -> set[str]:
    return {one.run_id for one in store.load_runs(job, _RECENT) if one.status in states}


def _without_lease(run_ids: set[str], job: str, store: StateStore) -> set[str]:
    """Return the runs that hold no lease; none if a lease is damaged, because nobody knows whose it is."""
    leases = store.load_leases(job).values() if run_ids else ()
    if any(isinstance(lease, DamagedLease) for lease in leases):
        return set()
    return run_ids - {lease.owner.run_id for lease in leases}


def committed_datasets(
    run_id: str, urns: Collection[str], *, job: str, store: StateStore
) -> dict[str, DatasetRunRecord]:
    """Return what a run committed before it ended without its results, by dataset.urn.

    Args:
        run_id: the run.
        urns: the datasets of its leases: until they are given back, no other run commits any of them.
        job: the job's name.
        store: the state store.
    """
    found = {}
    # So the newest sequences, as many as datasets, hold all of the run's.
    for stored in store.load_sequences(job, {SequenceState.COMMITTED}, urns, limit=len(urns)) if urns else ():
        if stored.run_id != run_id:
            continue
        try:
            sequence = decode_sequence(stored, store.places, skip_unknown_steps=True)
        except GobblinDagsterError:  # damaged; what reads the dataset's history says so
            continue
        report = sequence.report
        found[stored.dataset_urn] = DatasetRunRecord(
            DatasetOutcome.COMMITTED,
            low=str(report.low or ""),
            high=str(sequence.after.watermark or ""),
            rows=report.rows_read,
            quarantined=report.rows_quarantined,
            failed_ranges=report.failed_ranges,
        )
    return found
