"""build_definitions: all assets, jobs and sensors of a project, made from its folder."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

import dagster as dg

from gobblin_dagster.core.errors import SpecError, UsageError
from gobblin_dagster.engine.project import Project, open_sound_jobs
from gobblin_dagster.engine.task.runner import TaskRunner
from gobblin_dagster.orchestration.alerts import Webhook, run_alert_sensor
from gobblin_dagster.orchestration.assets import gobblin_assets, gobblin_job
from gobblin_dagster.orchestration.binding import Checks
from gobblin_dagster.orchestration.errors import without_secrets
from gobblin_dagster.orchestration.schedules import job_schedule
from gobblin_dagster.orchestration.sensors import new_data_sensor, sweep_sensor
from gobblin_dagster.orchestration.sla import sla_sensor
from gobblin_dagster.orchestration.translator import GobblinTranslator
from gobblin_dagster.spec.job import JobSpec

log = logging.getLogger(__name__)

FAULTY = "jobs_with_faults"
"""Name of the Dagster job that stands for jobs that cannot be loaded."""


@without_secrets()
def build_definitions(
    project: Project | Path | str,
    *,
    translator: GobblinTranslator | None = None,
    checks: Checks = True,
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
    made = project_definitions(opened, errors, translator=translator, checks=checks, runner=runner)
    # One process per run, so that Spark starts once.
    return dg.Definitions.merge(made, dg.Definitions(executor=dg.in_process_executor))


def project_definitions(
    project: Project,
    errors: Mapping[str, SpecError] | None = None,
    *,
    translator: GobblinTranslator | None = None,
    checks: Checks = True,
    runner: TaskRunner | None = None,
) -> dg.Definitions:
    """Return what `build_definitions` does, without an executor; `errors` are those of jobs that are not in `project`.

    Two sensors serve all jobs: a tick of a sensor costs Dagster's daemon more than what it does for a job.
    """
    faults = dict(errors or {})
    sound, made = [], []
    owners: dict[dg.AssetKey, str] = {}
    for job in project.jobs:
        try:
            assets = gobblin_assets(project, job, translator=translator, checks=checks, runner=runner)
            _require_own_keys(job.job, assets.keys, owners)
            made.append(_of_job(project, job, assets, translator))
        except SpecError as fault:
            faults[job.job] = fault
        else:
            sound.append(job)
            owners |= dict.fromkeys(assets.keys, job.job)
    for name, error in faults.items():
        log.warning("%s cannot be loaded: %s", name, error)
    served = dataclasses.replace(project, jobs=tuple(sound))
    # Declared once here, with the first job that reads from them. Otherwise Dagster shows the bare key.
    upstream = [spec for job in sound for spec in (translator or GobblinTranslator()).get_upstream_specs(job)]
    sources = {
        spec.key: spec for spec in reversed(upstream) if spec.key not in owners and spec != dg.AssetSpec(spec.key)
    }
    sensors = [new_data_sensor(served, translator=translator), sweep_sensor(served, translator=translator)]
    sensors += _alert_sensors(served, translator)
    faulty = [_faulty_jobs(faults)] if faults else []
    made.append(dg.Definitions(assets=[*sources.values()], jobs=faulty, sensors=sensors if sound else []))
    return dg.Definitions.merge(*made)


def _alert_sensors(project: Project, translator: GobblinTranslator | None) -> list[dg.SensorDefinition]:
    """Return the sensors that `alerts` of the project and `asset.sla` of its jobs ask for."""
    wanted = project.spec.alerts
    tell = Webhook(wanted.webhook_env) if wanted else None
    made = [sla_sensor(project, tell, translator=translator)] if any(job.asset.sla for job in project.jobs) else []
    if wanted and tell:
        statuses = [dg.DagsterRunStatus(status.upper()) for status in dict.fromkeys(wanted.runs)]
        made += [run_alert_sensor(project, tell, status=status, translator=translator) for status in statuses]
    return made


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
    checks: Checks = True,
    runner: TaskRunner | None = None,
) -> dg.Definitions:
    """Return the assets, the Dagster job and the sensors of one job; arguments as in `gobblin_assets`."""
    sensors = [new_data_sensor(project, job), sweep_sensor(project, job, translator=translator)]
    assets = gobblin_assets(project, job, translator=translator, checks=checks, runner=runner)
    return dg.Definitions.merge(_of_job(project, job, assets, translator), dg.Definitions(sensors=sensors))


def _require_own_keys(job: str, keys: Iterable[dg.AssetKey], owners: Mapping[dg.AssetKey, str]) -> None:
    """Raise UsageError if an asset of a job is one of another job too: Dagster would then load none of them."""
    for key in keys:
        if key in owners:
            raise UsageError(
                problem=f"Job {job!r} has the asset {key.to_user_string()}, which job {owners[key]!r} has too.",
                hint="Give one of them an `asset.key`, or another `extract.namespace` or `extract.table`.",
            )


def _of_job(
    project: Project, job: JobSpec, assets: dg.AssetsDefinition, translator: GobblinTranslator | None
) -> dg.Definitions:
    return dg.Definitions(
        assets=[assets],
        jobs=[gobblin_job(project, job, translator=translator)],
        schedules=[job_schedule(project, job)] if job.schedule else [],
    )
