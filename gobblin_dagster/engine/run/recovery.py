"""What a run does first: finish or undo the commit sequences that earlier runs left, and tidy up after them."""

from __future__ import annotations

from collections.abc import Sequence

from gobblin_dagster.core.commit import SequenceState
from gobblin_dagster.core.failure import describe_failure
from gobblin_dagster.engine.commit.committer import Committer, Recovery
from gobblin_dagster.engine.commit.group import Bundle, GroupCommitter, bundles
from gobblin_dagster.engine.commit.leases import LeaseKeeper, busy_error
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.results import RecoveredDataset
from gobblin_dagster.engine.run.aftermath import tidy_up_after
from gobblin_dagster.engine.snapshots.audit import audit_dataset


def recover_job(opened: JobContext) -> tuple[RecoveredDataset, ...]:
    """Do what the next run would do first, and nothing more; see `recover`."""
    with opened.lease_keeper() as leases:
        return recover(opened, leases, opened.committer())


def recover(opened: JobContext, leases: LeaseKeeper, committer: Committer) -> tuple[RecoveredDataset, ...]:
    """Finish or undo what earlier runs left of selected datasets; one that fails does not stop the others."""
    job, store = opened.job, opened.store
    waiting = bundles(store.load_sequences(job.job), opened.selection.matches)
    held = store.load_leases(job.job)
    dead = [lease for urn, lease in held.items() if opened.selection.matches(urn) and lease.owner.is_provably_dead()]
    if not waiting and not dead:
        return ()
    wanted = {urn for bundle in waiting for urn in bundle.leases}
    grant = leases.acquire(wanted | {lease.dataset_urn for lease in dead})
    recovered: list[RecoveredDataset] = []
    free: list[Bundle] = []
    for bundle in waiting:
        if taken := sorted(bundle.leases & set(grant.busy)):
            reason = str(busy_error(grant.busy[taken[0]]))
            recovered += [
                RecoveredDataset(s.id, s.dataset_urn, s.state, reason=reason, is_busy=True) for s in bundle.sequences
            ]
        else:
            free.append(bundle)
    recovered += _redo(opened, leases, committer, free)
    tidy_up_after(
        [lease for lease in dead if lease.dataset_urn in grant.granted],
        job=job.job,
        store=store,
        storage=opened.storage,
        output_root=opened.context.output_root,
    )
    return tuple(recovered)


def _redo(
    opened: JobContext, leases: LeaseKeeper, committer: Committer, waiting: Sequence[Bundle]
) -> list[RecoveredDataset]:
    groups = GroupCommitter(committer, opened.store, opened.job.commit.parallelism)
    leased = [[(s, leases.epoch(s.dataset_urn)) for s in bundle.sequences] for bundle in waiting]
    return [_audited(opened, done) for done in groups.recover_all(leased)]


def _audited(opened: JobContext, done: Recovery) -> RecoveredDataset:
    audit, reason = None, done.reason
    if done.outcome is SequenceState.COMMITTED:
        try:
            audit = audit_dataset(opened.job, opened.source, opened.store, done.dataset_urn)
        except Exception as error:  # noqa: BLE001 - it is committed, whoever can be asked for its rows now
            reason = f"its rows could not be counted anew: {describe_failure(error).message}"
    return RecoveredDataset(
        done.sequence_id,
        done.dataset_urn,
        done.outcome,
        steps_found_done=done.steps_done,
        steps_redone=done.steps_redone,
        reason=reason,
        audit=audit,
    )
