"""Before anything is read: the leases of the datasets that will move, and a plan that is still true under them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.lease import Lease
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.engine.commit.leases import LeaseKeeper
from gobblin_dagster.engine.commit.manifest import manifest_path
from gobblin_dagster.engine.commit.roll import in_parallel
from gobblin_dagster.engine.lane.protocol import Lane
from gobblin_dagster.engine.layout import MANIFEST_DIR, internal_dir
from gobblin_dagster.engine.open_job import OpenJob
from gobblin_dagster.engine.results import DatasetPlan, JobPlan


def claim(opened: OpenJob, leases: LeaseKeeper, plan: JobPlan, lane: Lane) -> tuple[JobPlan, dict[str, Lease]]:
    """Return the plan to run, and the leases of others on datasets that it leaves out.

    Stores where startpoints were resolved to, where a later run would find another position, and deletes those that are
    not applied any more.
    """
    busy: dict[str, Lease] = {}
    if plan.is_moving:
        plan, busy = _leased(opened, leases, plan, lane)
        for dataset in plan.datasets:
            if dataset.startpoint is not None and dataset.startpoint.pinned is not None:
                opened.store.pin_startpoint(dataset.startpoint)
    for dataset in plan.datasets:
        if dataset.expired is not None:
            opened.store.delete_startpoint(dataset.expired)  # by id, so that a newer one stays
    return plan, busy


def _leased(opened: OpenJob, leases: LeaseKeeper, plan: JobPlan, lane: Lane) -> tuple[JobPlan, dict[str, Lease]]:
    """Take the leases of datasets with work; plan again where another run moved one before we had its lease."""
    grant = leases.acquire([dataset.dataset_urn for dataset in plan.datasets if dataset.is_moving])
    states = opened.store.load_dataset_states(plan.job, list(grant.granted))
    versions = {urn: state.version for urn, state in states.items()}
    if any(versions.get(d.dataset_urn, 0) != d.version_read for d in plan.datasets if d.dataset_urn in grant.granted):
        plan = opened.plan(lane)
    strange = _strange(opened, [d for d in plan.datasets if d.has_work and d.dataset_urn in grant.granted], states)
    datasets = tuple(
        dataset
        if dataset.dataset_urn in grant.granted and dataset.dataset_urn not in strange
        else dataclasses.replace(
            dataset,
            work_units=(),
            startpoint=None,
            begin=None,
            problem=strange.get(dataset.dataset_urn, dataset.problem),
        )
        for dataset in plan.datasets
    )
    ours = {unit.id for dataset in datasets for unit in dataset.work_units}
    packs = (tuple(unit_id for unit_id in pack if unit_id in ours) for pack in plan.packs)
    return dataclasses.replace(plan, datasets=datasets, packs=tuple(filter(None, packs))), dict(grant.busy)


def _strange(opened: OpenJob, ours: Sequence[DatasetPlan], states: Mapping[str, DatasetState]) -> dict[str, str]:
    """Say of which datasets the output holds snapshots that the store does not know: their rows would be published again.

    A manifest is written after its commit, so one above the state's snapshot tells that the store is not the one, or not as
    new as the one, that knew of it.
    """
    root, store, job = opened.context.output_root, opened.store.url, opened.job
    new = [one.dataset_urn for one in ours if one.dataset_urn not in states]
    manifests = internal_dir(root, MANIFEST_DIR, job.job)
    held = {*opened.storage.list_names(manifests)} if new else set()
    strange = {
        urn: f"{manifests}/{folder} tells of snapshots that the state store {store} does not know: it was lost, or is "
        "another one. Point `state:` at the former store, or import its last export (`gobblin state import`); to begin "
        "anew, give the job another output, or delete that folder: what is published stays beside."
        for urn in new
        if (folder := DatasetUrn(urn).path_segment) in held
    }
    known = [one.dataset_urn for one in ours if one.dataset_urn in states]
    next_ones = [manifest_path(root, job.job, urn, states[urn].snapshot + 1) for urn in known]
    sizes = in_parallel(opened.storage.size, next_ones, job.commit.parallelism)
    return strange | {
        urn: f"{path} tells of a snapshot after {states[urn].snapshot}, the newest that the state store {store} knows: it "
        "was set back to an older copy. Restore a newer one, or import a newer export (`gobblin state import`); else set "
        "the watermark to where the published rows end (`gobblin state set`), and delete that manifest and those above."
        for urn, path, size in zip(known, next_ones, sizes, strict=True)
        if size is not None
    }
