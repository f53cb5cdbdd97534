"""Recover a job before its run: finish or undo stored commit sequences, and clean up after crashed runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from gobblin_dagster.core.commit import SequenceState, StoredSequence
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import EnvironmentFaultError, StepRefusedError, StorageError
from gobblin_dagster.core.failure import describe_failure
from gobblin_dagster.core.lease import DamagedLease, Lease
from gobblin_dagster.engine.commit.committer import Committer, Recovery
from gobblin_dagster.engine.commit.crash_cleanup import delete_staging_of, delete_staging_without_lease, end_records
from gobblin_dagster.engine.commit.group import Bundle, GroupCommitter, bundles
from gobblin_dagster.engine.commit.leases import LeaseKeeper, busy_error
from gobblin_dagster.engine.commit.manifest import write_missing_manifests
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.plan.lost_output import set_back_outputs
from gobblin_dagster.engine.results import RecoveredDataset
from gobblin_dagster.engine.run.store_check import overtaken
from gobblin_dagster.engine.snapshots.audit import audit_dataset
from gobblin_dagster.engine.snapshots.lost_store import missing_commits
from gobblin_dagster.state.store import StateStore


def recover_job(opened: JobContext) -> tuple[RecoveredDataset, ...]:
    """Do what the next run would do first, and nothing more; see `recover`. Quarantined sequences are tried again too.

    The person who calls this may have removed the cause: created a missing schema, or deleted a foreign file.
    """
    with opened.lease_keeper() as leases:
        held = _leave_quarantine(opened, leases)
        return (*held, *recover(opened, leases, opened.committer()))


def _leave_quarantine(opened: JobContext, leases: LeaseKeeper) -> list[RecoveredDataset]:
    """Set quarantined sequences to be tried again; return those whose datasets other processes hold."""
    job, store = opened.job.job, opened.store
    found = store.load_sequences(job, {SequenceState.QUARANTINED})
    urns = {stored.dataset_urn for stored in found if opened.selection.matches(stored.dataset_urn)}
    grant = leases.acquire(urns)
    # Loaded again under the leases: another process may have finished or abandoned them meanwhile.
    chosen = store.load_sequences(job, {SequenceState.QUARANTINED}, urns) if urns else []
    for stored in chosen:
        if stored.dataset_urn in grant.granted:
            store.retry(stored.id, grant.granted[stored.dataset_urn].epoch)
    return [_held(stored, grant.busy[stored.dataset_urn]) for stored in chosen if stored.dataset_urn in grant.busy]


def _held(stored: StoredSequence, lease: Lease) -> RecoveredDataset:
    is_busy = not isinstance(lease, DamagedLease)
    return RecoveredDataset(stored.id, stored.dataset_urn, stored.state, reason=str(busy_error(lease)), is_busy=is_busy)


def recover(opened: JobContext, leases: LeaseKeeper, committer: Committer) -> tuple[RecoveredDataset, ...]:
    """Finish or undo the stored sequences of selected datasets; an error of one does not stop the others."""
    job, store = opened.job, opened.store
    waiting = bundles(store.load_sequences(job.job), opened.selection.matches)
    now = opened.project.clock.now()
    held = [lease for urn, lease in store.load_leases(job.job).items() if opened.selection.matches(urn)]
    left = [lease for lease in held if not lease.is_held(now)]
    if not waiting and not left:
        return ()
    wanted = _leases_of(waiting) | {lease.dataset_urn for lease in left}
    asked: set[str] = set()
    busy: dict[str, Lease] = {}
    while new := wanted - asked:
        busy |= leases.acquire(new).busy
        asked |= new
        # Until we took its lease, a run could store more: half of a group would be undone while it publishes the rest.
        waiting = bundles(store.load_sequences(job.job), opened.selection.matches)
        wanted = _leases_of(waiting)
    recovered: list[RecoveredDataset] = []
    free: list[Bundle] = []
    for bundle in waiting:
        if taken := sorted(bundle.leases & busy.keys()):
            recovered += [_held(stored, busy[taken[0]]) for stored in bundle.sequences]
        else:
            free.append(bundle)
    strange = _unfit_to_finish(opened, [stored for bundle in free for stored in bundle.sequences])
    for bundle in free:
        if reason := next((strange[urn] for urn in sorted(bundle.leases) if urn in strange), ""):
            recovered += [RecoveredDataset(s.id, s.dataset_urn, s.state, reason=reason) for s in bundle.sequences]
    free = [bundle for bundle in free if not bundle.leases & strange.keys()]
    recovered += _redo(opened, leases, committer, free)
    ended = {stored.run_id for bundle in free for stored in bundle.sequences} - {lease.owner.run_id for lease in left}
    delete_staging_without_lease(
        ended, job=job.job, store=store, storage=opened.storage, output_root=opened.context.output_root
    )
    recovered += _tidied(opened, leases, [lease for lease in left if lease.dataset_urn not in busy])
    leases.leave(committer.unfinished)
    return tuple(recovered)


def _leases_of(waiting: Sequence[Bundle]) -> set[str]:
    return {urn for bundle in waiting for urn in bundle.leases}


def _unfit_to_finish(opened: JobContext, waiting: Sequence[StoredSequence]) -> dict[str, str]:
    """Return, by dataset.urn, why sequences must not be published: their target lacks an older commit, or has theirs.

    Published to a target that lacks one, they would hide that. Another job may have published their rows since.
    """
    urns = sorted({stored.dataset_urn for stored in waiting})
    missing: dict[str, str] = {}
    # A target that cannot be asked: the steps ask for it too, and say what is wrong with it.
    with suppress(StorageError, StepRefusedError, EnvironmentFaultError):
        missing |= missing_commits(opened, urns)
    made: dict[str, str] = {}
    with suppress(StorageError, StepRefusedError, EnvironmentFaultError):
        made = overtaken(opened, waiting)
    what_to_do = (
        "Restore its newest copy. Else give this commit up (`gobblin commit abandon`), and set a startpoint where the "
        "missing rows begin (`gobblin startpoint set`; `gobblin state history` shows the ranges of the commits)."
    )
    missing = {urn: f"{why} {what_to_do}" for urn, why in missing.items()}
    with suppress(OSError):
        root, states = opened.context.output_root, opened.store.load_readable_states(opened.job.job, urns)[0]
        missing |= set_back_outputs(opened.storage, opened.store, root, opened.job.job, states)
    return missing | made


def _tidied(opened: JobContext, leases: LeaseKeeper, left: Sequence[Lease]) -> list[RecoveredDataset]:
    """Clean up after the holders of these leases; return the results that concern published data."""
    job, store, root = opened.job.job, opened.store, opened.context.output_root
    # The plan reports damaged states.
    urns = [lease.dataset_urn for lease in left]
    states, damaged = store.load_readable_states(job, urns) if left else ({}, {})
    written, faults = write_missing_manifests(states, job=job, store=store, storage=opened.storage, output_root=root)
    leases.settle([urn for urn in urns if urn not in {*faults, *damaged}])
    delete_staging_of(left, job=job, store=store, storage=opened.storage, output_root=root)
    end_records(left, job=job, store=store, now=opened.project.clock.now())
    return [_of_manifest(store, state, faults.get(urn)) for urn, state in states.items() if urn in {*written, *faults}]


def _of_manifest(store: StateStore, state: DatasetState, fault: Exception | None) -> RecoveredDataset:
    """Return the result for a committed snapshot whose manifest was missing."""
    urn = state.dataset_urn
    newest = store.load_sequences(state.job, {SequenceState.COMMITTED}, [urn], limit=1)
    reason = str(fault) if fault else f"the manifest of snapshot {state.snapshot} was missing and is written"
    sequence_id = newest[0].id if newest else ""
    return RecoveredDataset(
        sequence_id, urn, SequenceState.COMMITTED, reason=reason, manifest="missing" if fault else "written"
    )


def _redo(
    opened: JobContext, leases: LeaseKeeper, committer: Committer, waiting: Sequence[Bundle]
) -> list[RecoveredDataset]:
    groups = GroupCommitter(committer, opened.store, opened.job.commit.parallelism)
    leased = [[(s, leases.epoch(s.dataset_urn)) for s in bundle.sequences] for bundle in waiting]
    found = [_audited(opened, done) for done in groups.recover_all(leased)]
    faults = committer.unseen
    return [
        replace(one, reason=str(faults[one.dataset_urn]), manifest="missing") if one.dataset_urn in faults else one
        for one in found
    ]


def _audited(opened: JobContext, done: Recovery) -> RecoveredDataset:
    audit, reason = None, done.reason
    if done.outcome is SequenceState.COMMITTED:
        try:
            audit = audit_dataset(opened.job, opened.source, opened.store, done.dataset_urn)
        except Exception as error:  # noqa: BLE001 - the commit stands, even if its rows cannot be counted now
            reason = f"its rows could not be counted again: {describe_failure(error).message}"
    return RecoveredDataset(
        done.sequence_id,
        done.dataset_urn,
        done.outcome,
        steps_found_done=done.steps_done,
        steps_redone=done.steps_redone,
        reason=reason,
        audit=audit,
    )
