"""Preview startpoints that a person asks for: their datasets, and what the next run would do. Stores nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.ids import new_commit_id
from gobblin_dagster.core.selection import Selection
from gobblin_dagster.core.startpoint import ALL_JOBS, OnRewind, Startpoint, StartpointPosition
from gobblin_dagster.engine.plan.model import DatasetPlan
from gobblin_dagster.engine.plan.source_identity import source_identity
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.run.job_run import plan_job
from gobblin_dagster.engine.task.runner import SessionRunner
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.store import StateStore

ALL = "*"
"""In place of a dataset.urn: every dataset of the job that has no startpoint waiting."""


def job_of_dataset(project: Project, store: StateStore, dataset_urn: str) -> JobSpec:
    """Return the job that a dataset belongs to, published or not.

    Raises:
        UsageError: several jobs have published it, or none has and the project has several jobs.
    """
    jobs = [one.job for one in project.jobs]
    having = [name for name in jobs if store.load_dataset_states(name, [dataset_urn])]
    candidates = having or jobs
    if len(candidates) == 1:
        return project.job(candidates[0])
    raise UsageError(
        problem=f"Which job's dataset {dataset_urn!r} is meant is not clear: "
        f"{', '.join(candidates) or 'there is none'}.",
        hint="Name one with --job.",
    )


def jobs_reading(project: Project, job: JobSpec) -> list[JobSpec]:
    """Return the jobs of a project that read the same source as a job, this job first."""
    others = [one for one in project.jobs if one.job != job.job and _identity(one) == _identity(job)]
    return [job, *others]


def wished_startpoints(
    project: Project,
    job: JobSpec,
    dataset_urn: str,
    position: StartpointPosition,
    *,
    who: str,
    why: str,
    now: datetime,
    expires_at: datetime,
    spark: SessionRunner | None = None,
    store: StateStore,
    partition: str = "",
    for_all_jobs: bool = False,
    until: StartpointPosition | None = None,
    on_rewind: OnRewind = "refuse",
) -> dict[str, Startpoint]:
    """Return the startpoints that a person asks for, by dataset.urn; `*` means all datasets without a startpoint.

    Args:
        project: the project.
        job: the job; with `for_all_jobs`, one of those that read the source.
        dataset_urn: the dataset, or `*`.
        position: where to begin.
        who: the person.
        why: the reason.
        now: when it is created; the newest startpoint wins.
        expires_at: until then a run must apply it.
        spark: asked for a session by sources that plan with Spark.
        store: the state store.
        partition: a partition of the dataset; empty for the whole dataset.
        for_all_jobs: the startpoint is for every job that reads this source.
        until: end of a bounded re-read, exclusive; None to read on to the end of the data.
        on_rewind: what the run does if it goes back into published data.
    """
    urns = [dataset_urn]
    name = ALL_JOBS if for_all_jobs else job.job
    if dataset_urn == ALL:
        waiting = {one.dataset_urn for one in store.list_startpoints(name) if not one.is_expired(now)}
        known = plan_job(project, job, spark=spark, store=store).datasets
        urns = [one.dataset_urn for one in known if one.dataset_urn not in waiting]
    source = _identity(job) if for_all_jobs else ""
    wish = Startpoint(
        name,
        "",
        position,
        now,
        expires_at,
        who,
        why,
        partition=partition,
        source=source,
        until=until,
        on_rewind=on_rewind,
    )
    return {urn: replace(wish, dataset_urn=urn, id=new_commit_id()) for urn in urns}


def preview_startpoints(
    project: Project,
    job: JobSpec,
    wishes: Mapping[str, Startpoint],
    spark: SessionRunner | None = None,
    *,
    store: StateStore,
) -> dict[str, DatasetPlan]:
    """Plan a job as if the startpoints were stored; one that is no position of its dataset is a problem of its plan.

    Raises:
        UsageError: the source has no such dataset, or no such partition, or each run reads all of it.
    """
    if not wishes:
        return {}
    selection = Selection(urns=frozenset(wishes))
    ours = {urn: _for_job(one, job.job) for urn, one in wishes.items()}
    plan = plan_job(project, job, selection, spark, startpoints=ours, store=store)
    plans = {dataset.dataset_urn: dataset for dataset in plan.datasets if dataset.dataset_urn in wishes}
    for urn, one in wishes.items():
        found = plans.get(urn)
        if found is None or not (found.problem or any(each.id == one.id for each in found.startpoints)):
            if found is not None and job.extract.reads_everything:
                raise UsageError(
                    problem=f"Job {job.job!r} reads everything in each run (`extract.type: snapshot_only` or "
                    "`is_full`), so no startpoint says where it begins.",
                    hint=f"`gobblin run {job.job}` reads all rows again.",
                )
            is_known = found is not None and bool(one.partition)
            what = f"Dataset {urn!r} of job {job.job!r} has" if is_known else f"The source of job {job.job!r} has"
            lacking = f"no partition {one.partition!r} now" if is_known else f"no dataset {urn!r}"
            raise UsageError(problem=f"{what} {lacking}.", hint="`gobblin plan` lists the datasets.")
    return plans


def preview_jobs(
    project: Project,
    job: JobSpec,
    wishes: Mapping[str, Startpoint],
    spark: SessionRunner | None = None,
    *,
    store: StateStore,
) -> dict[tuple[str, str], DatasetPlan]:
    """Plan each job that the startpoints are for; return the plans by job and dataset.urn.

    Raises as `preview_startpoints`. Other jobs than `job` need not have the datasets.
    """
    ours = preview_startpoints(project, job, wishes, spark, store=store)
    plans = {(job.job, urn): plan for urn, plan in ours.items()}
    if any(one.job == ALL_JOBS for one in wishes.values()):
        for other in jobs_reading(project, job)[1:]:
            for urn, one in wishes.items():
                with suppress(UsageError):
                    plans[other.job, urn] = preview_startpoints(project, other, {urn: one}, spark, store=store)[urn]
    return plans


def settable(wishes: Mapping[str, Startpoint], plans: Mapping[tuple[str, str], DatasetPlan]) -> list[Startpoint]:
    """Return the startpoints that no job has a problem with; watermarks with the ids of what they lie in."""
    bad = {urn for (_, urn), plan in plans.items() if plan.problem}
    return [_placed(one, plans) for urn, one in wishes.items() if urn not in bad]


def _placed(startpoint: Startpoint, plans: Mapping[tuple[str, str], DatasetPlan]) -> Startpoint:
    if not startpoint.is_specific:
        return startpoint
    origin: dict[str, str] = {}
    for (_, urn), plan in plans.items():
        origin |= plan.origin if urn == startpoint.dataset_urn else {}
    return replace(startpoint, origin=origin)


def removable(
    store: StateStore, jobs: Sequence[str], dataset_urn: str, partition: str | None = None
) -> list[Startpoint]:
    """Return the stored startpoints that a person means.

    Args:
        store: the state store.
        jobs: the jobs, or `ALL_JOBS`; one of them must have any.
        dataset_urn: the dataset; `*` means all datasets.
        partition: the partition, empty for the whole dataset alone; None means both.

    Raises:
        UsageError: there is none, or several jobs have one.
    """
    found = [
        one
        for name in jobs
        for one in store.list_startpoints(name, None if dataset_urn == ALL else [dataset_urn])
        if partition is None or one.partition == partition
    ]
    having = sorted({one.job for one in found})
    if not having:
        raise UsageError(
            problem=f"Dataset {dataset_urn!r} has no startpoint.",
            hint="`gobblin startpoint list` shows those there are; those for all jobs need --all-jobs.",
        )
    if len(having) > 1:
        raise UsageError(
            problem=f"Dataset {dataset_urn!r} has startpoints in several jobs: {', '.join(having)}.",
            hint="Name one with --job.",
        )
    return found


def _for_job(startpoint: Startpoint, job: str) -> Startpoint:
    return replace(startpoint, job=job, is_copy=True) if startpoint.job == ALL_JOBS else startpoint


def _identity(job: JobSpec) -> str:
    return source_identity(job, registry.load(ConstructKind.SOURCE, job.source.type))
