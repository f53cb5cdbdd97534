"""Roll a dataset back to an earlier snapshot: its files and its watermark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from gobblin_dagster.core.commit import CommitReport, CommitSequence, ManualChange, PublishedFile
from gobblin_dagster.core.dataset_state import DatasetState, Rollback
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.ids import new_commit_id, new_run_id
from gobblin_dagster.core.utils.table import ShownAsFacts
from gobblin_dagster.core.utils.text import count
from gobblin_dagster.engine.commit.committer import Committer
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.publishers import require_only_files
from gobblin_dagster.engine.snapshots.history import list_snapshots
from gobblin_dagster.engine.snapshots.lost_store import StoreCheck
from gobblin_dagster.engine.snapshots.reader import _require_readable, _require_whole
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.store import StateStore


# -- rollback ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, repr=False)
class RollbackPlan(ShownAsFacts):
    """A rollback as data: the state before and after it."""

    before: DatasetState
    after: DatasetState
    files: tuple[PublishedFile, ...]
    """Files of the new snapshot."""
    left: tuple[PublishedFile, ...]
    """Files that only the newest snapshot held; they stay until their snapshots expire and `gobblin clean` deletes
    them."""

    @property
    def to(self) -> int:
        """Number of the restored snapshot."""
        return self.after.rollbacks[-1].to

    def _facts(self) -> Mapping[str, object]:
        return {
            "dataset": self.before.dataset_urn,
            "job": self.before.job,
            "watermark": f"{self.before.watermark} -> {self.after.watermark}",
            "snapshot": f"{self.before.snapshot} -> {self.after.snapshot}, equal to {self.to}",
            "readers see": count(len(self.files), "file"),
            "and no longer": f"{count(len(self.left), 'file')} "
            f"with {count(sum(file.rows for file in self.left), 'row')}",
        }


def plan_rollback(store: StateStore, spec: JobSpec, dataset_urn: str, to_snapshot: int, now: datetime) -> RollbackPlan:
    """Plan a rollback; changes nothing.

    Raises:
        UsageError: there is no such snapshot, it is the newest, or it has expired; or a table or topic holds a branch.
    """
    require_only_files(spec, "rolled back")
    job = spec.job
    before = store.load_dataset_states(job, [dataset_urn]).get(dataset_urn)
    state = _require_readable(before, dataset_urn, to_snapshot)
    if to_snapshot == state.snapshot:
        raise UsageError(problem=f"Snapshot {to_snapshot} of dataset {dataset_urn!r} is the newest already.")
    target = next((one for one in list_snapshots(store, job, dataset_urn) if one.snapshot == to_snapshot), None)
    if target is None:
        raise UsageError(
            problem=f"The store remembers no commit of snapshot {to_snapshot} of dataset {dataset_urn!r}.",
            hint="It can still be read. `gobblin clean` has deleted old commits (`history_runs`).",
        )
    after = replace(
        target.state,
        version=state.version + 1,
        snapshot=state.snapshot + 1,
        generation=state.generation + 1,
        rollbacks=(*state.rollbacks, Rollback(state.snapshot + 1, to_snapshot)),
        oldest_snapshot=state.oldest_snapshot,
        run_id=new_run_id(now),
        updated_at=state.later(now),
    )
    files = store.load_snapshot(job, dataset_urn, to_snapshot)
    kept = {file.path for file in files}
    left = [file for file in store.load_snapshot(job, dataset_urn) if file.path not in kept]
    return RollbackPlan(state, after, tuple(files), tuple(left))


def rollback(
    project: Project,
    job: JobSpec,
    dataset_urn: str,
    to_snapshot: int,
    *,
    who: str = "",
    why: str = "",
    store: StateStore | None = None,
) -> RollbackPlan:
    """Restore a snapshot: data and watermark together, in one transaction.

    The next run reads the later data again. Nothing is deleted, and a later rollback can undo this one. A given `store`
    stays open; default: open one and close it.

    Raises:
        UsageError: as `plan_rollback`; or the store was restored from an older copy.
        DatasetBusyError: a run holds the dataset.
        UnfinishedSequenceError: one of its commit sequences is unfinished or quarantined.
        StorageError: a file of the snapshot is missing or damaged; or the rollback is committed, as the message then
            says, and its manifest could not be written.
        WatermarkMovedError: the dataset moved meanwhile.
    """
    with project.use_store(store) as open_store:
        plan = plan_rollback(open_store, job, dataset_urn, to_snapshot, project.clock.now())
        apply_rollback(project, job, open_store, plan, who=who, why=why)
    return plan


def apply_rollback(
    project: Project, job: JobSpec, store: StateStore, plan: RollbackPlan, *, who: str = "", why: str = ""
) -> str:
    """Commit a planned rollback and return the id of its commit sequence; raises as `rollback`."""
    storage, root = project.storage(job), project.output_root(job)
    urn, after = plan.after.dataset_urn, plan.after
    note = f"rolled back to snapshot {plan.to}" + (f" by {who}" if who else "") + (f": {why}" if why else "")
    change = ManualChange(f"rollback to snapshot {plan.to}", who, why)
    sequence = replace(
        CommitSequence.to(after, commit_id=new_commit_id(), output_root=root),
        report=CommitReport(low=plan.before.watermark, notes=(note,), change=change),
    )
    project.tidy_ended(job, store)
    with project.lease_keeper(job, store, after.run_id) as leases:
        epoch = leases.take(urn)
        StoreCheck.of(project, job, store).require_snapshots(urn)
        # Under the lease, so that `gobblin clean` cannot delete them meanwhile.
        _require_whole(storage, plan.files, job.commit.parallelism)
        committer = Committer.of(job.commit, store, storage)
        committer.prepare(sequence, epoch)
        committer.publish(sequence, epoch, verify_sources=False)
        leases.leave(committer.unfinished)
    if urn in committer.unseen:
        raise committer.unseen[urn]
    return sequence.id
