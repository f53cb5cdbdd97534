"""build_definitions: all assets, jobs and sensors of a project, made from its folder."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import dagster as dg

from gobblin_dagster.core.errors import SpecError
from gobblin_dagster.engine.project import Project, open_sound_jobs
from gobblin_dagster.engine.task.runner import TaskRunner
from gobblin_dagster.orchestration.assets import gobblin_assets, gobblin_job, job_schedule
from gobblin_dagster.orchestration.sensors import new_data_sensor, sweep_sensor
from gobblin_dagster.orchestration.translator import GobblinTranslator
from gobblin_dagster.spec.job import JobSpec

log = logging.getLogger(__name__)

FAULTY = "jobs_with_faults"
"""Name of the Dagster job that stands for jobs that cannot be loaded."""


def build_definitions(
    project: Project | Path | str,
    *,
    translator: GobblinTranslator | None = None,
    checks: bool = True,
    runner: TaskRunner | None = None,
) -> dg.Definitions:
    """Return the assets, jobs and sensors of all jobs of a project.

    A job with a fault stops no other job. A Dagster job `jobs_with_faults` then says what is wrong, as `gobblin check`
    does.

    Args:
        project: a project or its folder.
        translator: as in `gobblin_assets`.
        checks: as in `gobblin_assets`.
        runner: as in `gobblin_assets`.

    Raises:
        InvalidSpecError, UsageError: the project cannot be loaded.
    """
    opened, errors = (project, {}) if isinstance(project, Project) else open_sound_jobs(Path(project))
    jobs = []
    for job in opened.jobs:
        try:
            jobs.append(job_definitions(opened, job, translator=translator, checks=checks, runner=runner))
        except SpecError as fault:
            errors[job.job] = fault
    # One process per run: `extract` and `report` share objects, and Spark starts once.
    for name, error in errors.items():
        log.warning("%s cannot be loaded: %s", name, error)
    faulty = [_faulty_jobs(errors)] if errors else []
    return dg.Definitions.merge(*jobs, dg.Definitions(jobs=faulty, executor=dg.in_process_executor))


def _faulty_jobs(errors: Mapping[str, SpecError]) -> dg.JobDefinition:
    """Return the Dagster job that stands for all jobs that cannot be loaded; running it shows why."""
    text = "\n\n".join(f"{name}: {error}" for name, error in errors.items())

    @dg.op(name=f"tell_{FAULTY}")
    def tell() -> None:
        raise dg.Failure(text, allow_retries=False)

    @dg.job(name=FAULTY, description=f"These jobs cannot be loaded; all others can.\n\n{text}")
    def faulty() -> None:
        tell()

    return faulty


def job_definitions(
    project: Project,
    job: JobSpec,
    *,
    translator: GobblinTranslator | None = None,
    checks: bool = True,
    runner: TaskRunner | None = None,
) -> dg.Definitions:
    """Return the assets, the Dagster job and the sensors of one job; arguments as in `gobblin_assets`."""
    return dg.Definitions(
        assets=[gobblin_assets(project, job, translator=translator, checks=checks, runner=runner)],
        jobs=[gobblin_job(project, job, translator=translator)],
        sensors=[new_data_sensor(project, job), sweep_sensor(project, job, translator=translator)],
        schedules=[job_schedule(project, job)] if job.schedule else [],
    )
