"""Preview startpoints that a person asks for: their datasets, and what the next run would do. Stores nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.selection import Selection
from gobblin_dagster.core.startpoint import Startpoint, StartpointPosition
from gobblin_dagster.engine.plan.model import DatasetPlan
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
) -> dict[str, Startpoint]:
    """Return the startpoints that a person asks for, by dataset.urn; `*` means all datasets without a startpoint."""
    urns = [dataset_urn]
    if dataset_urn == ALL:
        waiting = store.load_startpoints(job.job)
        known = plan_job(project, job, spark=spark, startpoints={}, store=store).datasets
        urns = [one.dataset_urn for one in known if not _is_waiting(waiting.get(one.dataset_urn), now)]
    return {urn: Startpoint(job.job, urn, position, now, expires_at, who, why) for urn in urns}


def preview_startpoints(
    project: Project,
    job: JobSpec,
    wishes: Mapping[str, Startpoint],
    spark: SessionRunner | None = None,
    *,
    store: StateStore,
) -> dict[str, DatasetPlan]:
    """Plan as if the startpoints were stored; one that is no position of its dataset is a problem of its plan.

    Raises:
        UsageError: the source has no such dataset.
    """
    if not wishes:
        return {}
    selection = Selection(urns=frozenset(wishes))
    plan = plan_job(project, job, selection, spark, startpoints=wishes, store=store)
    plans = {dataset.dataset_urn: dataset for dataset in plan.datasets if dataset.dataset_urn in wishes}
    lacking = [urn for urn, one in plans.items() if one.startpoint is None and not one.problem]
    if lacking or not plans:
        urn = next(iter(lacking or wishes))
        raise UsageError(
            problem=f"The source of job {job.job!r} has no dataset {urn!r}.", hint="`gobblin plan` lists the datasets."
        )
    return plans


def _is_waiting(startpoint: Startpoint | None, now: datetime) -> bool:
    return startpoint is not None and not startpoint.is_expired(now)
