"""build_definitions: all assets, jobs and sensors of a project, made from its folder."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from gobblin_dagster.engine.project import Project, open_project
from gobblin_dagster.engine.task.runner import TaskRunner
from gobblin_dagster.orchestration.assets import gobblin_assets, gobblin_job
from gobblin_dagster.orchestration.sensors import new_data_sensor, sweep_sensor
from gobblin_dagster.orchestration.translator import GobblinTranslator
from gobblin_dagster.spec.job import JobSpec


def build_definitions(
    project: Project | Path | str,
    *,
    translator: GobblinTranslator | None = None,
    checks: bool = True,
    runner: TaskRunner | None = None,
) -> dg.Definitions:
    """Return the assets, jobs and sensors of all jobs of a project.

    Args:
        project: a project or its folder.
        translator: as in `gobblin_assets`.
        checks: as in `gobblin_assets`.
        runner: as in `gobblin_assets`.

    Raises:
        InvalidSpecError, UsageError: the project or one of its jobs cannot be loaded.
    """
    opened = project if isinstance(project, Project) else open_project(Path(project))
    jobs = [job_definitions(opened, job, translator=translator, checks=checks, runner=runner) for job in opened.jobs]
    # One process per run: `extract` and `report` share objects, and Spark starts once.
    return dg.Definitions.merge(*jobs, dg.Definitions(executor=dg.in_process_executor))


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
    )
