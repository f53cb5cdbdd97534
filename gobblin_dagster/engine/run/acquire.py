"""Acquire leases for all datasets with work; plan again if another run committed in between."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gobblin_dagster.core.commit import StoredSequence
from gobblin_dagster.core.errors import (
    CorruptRecordError,
    EnvironmentFaultError,
    SourceError,
    StepRefusedError,
    StorageError,
    UnfinishedSequenceError,
)
from gobblin_dagster.core.lease import Lease
from gobblin_dagster.engine.commit.leases import LeaseKeeper
from gobblin_dagster.engine.job_context import JobContext
from gobblin_dagster.engine.plan.model import DatasetPlan, JobPlan, left_out, replanned
from gobblin_dagster.engine.run.store_check import lost_commits, misplaced_commits, strange_outputs
from gobblin_dagster.engine.task.runner import TaskRunner
from gobblin_dagster.state.startpoints import StartpointManager


def acquire_datasets(
    opened: JobContext, leases: LeaseKeeper, plan: JobPlan, runner: TaskRunner
) -> tuple[JobPlan, dict[str, Lease]]:
    """Return the plan to run, and the leases by which other runs hold datasets that it leaves out.

    Fans out the startpoints of the plan: stores them for this job, with their positions if a later run would find
    others. Deletes expired startpoints.
    """
    startpoints = StartpointManager(opened.store)
    busy: dict[str, Lease] = {}
    if plan.is_moving:
        plan, busy = _leased(opened, leases, plan, runner)
        for dataset in plan.datasets:
            if dataset.is_moving:
                startpoints.fan_out(dataset.startpoints, dataset.version_read + 1, opened.run_id)
    for dataset in plan.datasets:
        for expired in dataset.expired:
            startpoints.expire(expired, opened.run_id)
    return plan, busy


def _leased(
    opened: JobContext, leases: LeaseKeeper, plan: JobPlan, runner: TaskRunner
) -> tuple[JobPlan, dict[str, Lease]]:
    """Acquire the leases of datasets with work; plan again if another run moved or pinned one of them before that."""
    grant = leases.acquire([dataset.dataset_urn for dataset in plan.datasets if dataset.is_moving])
    states = opened.store.load_dataset_states(plan.job, list(grant.granted))
    versions = {urn: state.version for urn, state in states.items()}
    ours = [dataset for dataset in plan.datasets if dataset.dataset_urn in grant.granted]
    if any(versions.get(one.dataset_urn, 0) != one.version_read for one in ours) or _is_pinned_elsewhere(opened, ours):
        plan = opened.plan(runner)
    plan = _without_unfinished(opened, plan, grant.granted)
    working = [one for one in plan.datasets if one.has_work and one.dataset_urn in grant.granted]
    strange: dict[str, str] = {}
    code = SourceError.code
    try:
        strange = strange_outputs(opened, [one.dataset_urn for one in working], states)
        strange = lost_commits(opened, working) | strange
    except (StorageError, StepRefusedError, EnvironmentFaultError) as error:
        # An output or table that cannot be asked now can probably not be published to either, so do not read for it.
        strange, code = {one.dataset_urn: str(error) for one in working} | strange, error.code
    misplaced = misplaced_commits(opened, working)
    strange |= misplaced
    datasets = [
        dataset
        if dataset.dataset_urn in grant.granted and dataset.dataset_urn not in strange
        else left_out(
            dataset,
            strange.get(dataset.dataset_urn, dataset.problem),
            CorruptRecordError.code if dataset.dataset_urn in misplaced else code,
        )
        for dataset in plan.datasets
    ]
    return replanned(plan, datasets), dict(grant.busy)


def _without_unfinished(opened: JobContext, plan: JobPlan, ours: Collection[str]) -> JobPlan:
    """Return the plan without work for datasets whose sequence could not be finished: they could not be published."""
    leftovers = {one.dataset_urn for one in plan.leftovers} & set(ours)
    if not leftovers:
        return plan
    unfinished = {one.dataset_urn: one for one in opened.store.load_sequences(plan.job, urns=leftovers)}
    datasets = [
        left_out(one, str(_unfinished(stored)), UnfinishedSequenceError.code)
        if (stored := unfinished.get(one.dataset_urn))
        else one
        for one in plan.datasets
    ]
    return replanned(plan, datasets)


def _unfinished(stored: StoredSequence) -> UnfinishedSequenceError:
    return UnfinishedSequenceError(dataset_urn=stored.dataset_urn, sequence_id=stored.id, reason=stored.reason)


def _is_pinned_elsewhere(opened: JobContext, datasets: Sequence[DatasetPlan]) -> bool:
    """Return whether a run that ended without a commit has stored other positions for startpoints of these plans."""
    wanted = {(dataset.dataset_urn, one.id): one.pinned for dataset in datasets for one in dataset.startpoints}
    if not wanted:
        return False
    stored = opened.store.list_startpoints(opened.job.job, {urn for urn, _ in wanted})
    pins = {(one.dataset_urn, one.id): one.pinned for one in stored if one.pinned is not None}
    return any(key in wanted and wanted[key] != pinned for key, pinned in pins.items())
