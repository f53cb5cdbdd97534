"""Sensors: one requests runs for new data; one reports commits of other processes, and finishes what dead runs left.

Both are made for one job or for all jobs of a project: a tick for many jobs costs Dagster as much as one for one job.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TypedDict

import dagster as dg

from gobblin_dagster.core.errors import EnvironmentFaultError, GobblinDagsterError
from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.engine.new_data import NewData, PollResult, plans_with_spark
from gobblin_dagster.engine.project import Project, open_project
from gobblin_dagster.orchestration.assets import gobblin_job
from gobblin_dagster.orchestration.binding import JobBinding
from gobblin_dagster.orchestration.errors import without_secrets
from gobblin_dagster.orchestration.polling import INTERVAL_S, SPARK_INTERVAL_S, JobPolls
from gobblin_dagster.orchestration.requests import Answer, request, sensor_result
from gobblin_dagster.orchestration.resources import GobblinSparkResource
from gobblin_dagster.orchestration.sweep import Sweep, living_datasets
from gobblin_dagster.orchestration.sweep_cursor import SweepCursor, dump_cursors, load_cursors
from gobblin_dagster.orchestration.translator import GobblinTranslator
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.store import StateStore

PATIENCE_S = 5.0
"""Seconds that a tick waits for plans. Dagster's daemon evaluates one sensor after the other."""
TOLD_AT_ONCE = 300
"""Number of commits that one tick of the sweep tells Dagster, about 5 s of CPU: Dagster ends a tick after 60 s."""
SHOWN = 5
"""Number of jobs that a tick describes."""
SWEEP_INTERVAL_S = 30
"""Seconds between two looks of the sweep at the store."""
STOPPED, RUNNING = dg.DefaultSensorStatus.STOPPED, dg.DefaultSensorStatus.RUNNING


def new_data_sensor(
    project: Project | Path | str,
    job: JobSpec | str | None = None,
    *,
    translator: GobblinTranslator | None = None,
    spark: GobblinSparkResource | None = None,
    interval_s: int | None = None,
    default_status: dg.DefaultSensorStatus = STOPPED,
) -> dg.SensorDefinition:
    """Return a sensor that plans jobs, and requests one run of a job for all of its datasets with new data.

    It requests a run for the same new data only once. If some datasets of the run fail, one more run is requested for
    them alone; after that, they are read again together with data that come later. Datasets that a run works on are
    left out. A tick waits at most `PATIENCE_S` seconds for plans; if a source is slower, a later tick uses its plan.

    Args:
        project: a project or its folder.
        job: a job or its name in the project; default: all jobs of the project.
        translator: the same as for `gobblin_assets`.
        spark: the Spark for sources that plan with Spark, in a process of its own; default: the Spark of
            `gobblin.yaml`. Other sources do not start it.
        interval_s: seconds between two ticks; default: `new_data_every_s` of `gobblin.yaml`, else 10, or 120 for a job
            whose source plans with Spark. A sensor of several jobs plans such a job at most every 120 seconds.
        default_status: by default, the sensor is stopped until it is switched on in Dagster's pages.

    Raises:
        InvalidSpecError, UsageError: the project or the job cannot be loaded.
    """
    opened, bindings = _bindings(project, job, translator)
    hopeless = [one for one in bindings if _finds_everything_new(one.job)]
    only_spark = bool(bindings) and all(plans_with_spark(one.job) for one in bindings)
    every_s = interval_s or opened.spec.new_data_every_s or (SPARK_INTERVAL_S if only_spark else INTERVAL_S)
    used = spark or GobblinSparkResource.of_project(opened)
    polls = JobPolls([one for one in bindings if one not in hopeless], used, every_s)

    @dg.sensor(
        name=f"{_prefix(opened, bindings, job)}_new_data",
        **_targets(bindings, translator, job),
        minimum_interval_seconds=every_s,
        default_status=default_status,
        description="Requests one run of a job for all of its datasets with new data.",
    )
    @without_secrets()
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        answers, said, errors = [], [(one.name, _HOPELESS) for one in hopeless], []
        with closing(opened.open_store()) as store:
            for answer in polls.ask(PATIENCE_S):
                name = answer.binding.name
                if answer.error is not None:
                    errors.append((name, answer.error))
                elif answer.result is None:
                    waits = f"Still planning, for {answer.seconds:.0f} s so far; a later tick uses the plan."
                    said.append((name, waits))
                else:
                    new = _free(answer.binding, store, answer.result.new)
                    answers.append((answer.binding, _asked(answer.binding, new)))
                    if not new and (answer.result.problems or len(bindings) == 1):
                        said.append((name, _nothing_new(answer.result)))
        if not any(one.requests for _, one in answers):
            _raise_first(errors)
        for name, error in errors:
            context.log.error(hidden(f"Job {name!r} cannot be planned: {error}"))
        nothing = f"None of {len(answers)} jobs has new data to read."
        return sensor_result(context.instance, answers, _told(said, nothing if len(bindings) > 1 else ""))

    return evaluate


def sweep_sensor(
    project: Project | Path | str,
    job: JobSpec | str | None = None,
    *,
    translator: GobblinTranslator | None = None,
    interval_s: int = SWEEP_INTERVAL_S,
    default_status: dg.DefaultSensorStatus = RUNNING,
) -> dg.SensorDefinition:
    """Return a sensor that cleans up after other processes and dead runs. It reads the state store.

    Only while a job has no partitions, it also plans the job, as `new_data_sensor` does: without partitions,
    Dagster's pages offer no way to start the first run.

    - It reports commits of the command line, and of runs that died before they reported them, in bounded batches.
    - On a new Dagster instance, or after a reset of its cursor on Dagster's page of the sensor, it compares the newest
      commit of each dataset with what Dagster shows, and reports those that Dagster does not know. From then on it
      does so for new commits: several Dagster instances may show one project.
    - It reports a run as failed once its leases have expired or its process is provably gone. Dagster itself shows
      such a run as started for ever if its code server died with it.
    - It requests one run of a job to finish commit sequences that dead runs left.

    Args:
        project: a project or its folder.
        job: a job or its name in the project; default: all jobs of the project.
        translator: the same as for `gobblin_assets`.
        interval_s: seconds between two looks at the store.
        default_status: by default, the sensor runs, because it is cheap.

    Raises:
        InvalidSpecError, UsageError: the project or the job cannot be loaded.
    """
    opened, bindings = _bindings(project, job, translator)
    polls = JobPolls(bindings, GobblinSparkResource.of_project(opened), interval_s)

    @dg.sensor(
        name=f"{_prefix(opened, bindings, job)}_sweep",
        **_targets(bindings, translator, job),
        minimum_interval_seconds=interval_s,
        default_status=default_status,
        description="Reports commits of other processes, ends dead runs, and finishes their commit sequences.",
    )
    @without_secrets()
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        instance, cursors = context.instance, load_cursors(context.cursor)
        empty = {one.name for one in bindings if not instance.get_dynamic_partitions(one.partitions_name)}
        planned = {one.binding.name: one for one in polls.ask(PATIENCE_S, lambda one: one.name in empty)}
        errors: list[tuple[str, Exception]] = [
            (name, one.error) for name, one in planned.items() if one.error is not None
        ]
        answers, budget = [], TOLD_AT_ONCE
        with closing(opened.open_store()) as store:
            for binding in bindings:
                seen = planned[binding.name].result if binding.name in planned else None
                first = [one.dataset_urn for one in seen.new] if seen else []
                sweep = Sweep(binding, store, instance)
                try:
                    answer, cursor = sweep.result(cursors.get(binding.name, SweepCursor()), first, max(budget, 1))
                except GobblinDagsterError as fault:
                    errors.append((binding.name, fault))
                else:
                    cursors[binding.name] = cursor
                    budget -= answer.looked
                    answers.append((binding, answer))
        if not answers:
            _raise_first(errors)
        for name, error in errors:
            context.log.error(hidden(f"Job {name!r}: {error}"))
        kept = {one.name: cursors[one.name] for one in bindings if one.name in cursors}
        return sensor_result(instance, answers, cursor=dump_cursors(kept))

    return evaluate


class _Target(TypedDict, total=False):
    job_name: str
    jobs: Sequence[dg.UnresolvedAssetJobDefinition]


def _bindings(
    project: Project | Path | str, job: JobSpec | str | None, translator: GobblinTranslator | None
) -> tuple[Project, list[JobBinding]]:
    if job is None:
        opened = project if isinstance(project, Project) else open_project(Path(project))
        return opened, [JobBinding.of(opened, one, translator) for one in opened.jobs]
    binding = JobBinding.of(project, job, translator)
    return binding.project, [binding]


def _prefix(project: Project, bindings: Sequence[JobBinding], job: JobSpec | str | None) -> str:
    return project.spec.project if job is None else bindings[0].name


def _targets(
    bindings: Sequence[JobBinding], translator: GobblinTranslator | None, job: JobSpec | str | None
) -> _Target:
    """Return the jobs that a sensor may request, as arguments of `dg.sensor`."""
    if job is not None:
        return {"job_name": bindings[0].dagster_job}
    return {"jobs": [gobblin_job(one.project, one.job, translator=translator) for one in bindings]}


_HOPELESS = (
    "The source has no `watermark`, so each run reads everything and new data cannot be found: give the job a schedule."
)


def _finds_everything_new(job: JobSpec) -> bool:
    """Return whether every plan of the source reads everything, so that new data cannot be found."""
    return job.source.type == "spark" and not job.source.options.get("watermark")


def _asked(binding: JobBinding, new: Sequence[NewData]) -> Answer:
    if not new:
        return Answer()
    found: list[list[object]] = [[one.dataset_urn, one.high, one.version, one.startpoint] for one in new]
    urns = [one.dataset_urn for one in new]
    return Answer((request(binding, "new-data", found, urns),), urns)


def _free(binding: JobBinding, store: StateStore, new: Sequence[NewData]) -> list[NewData]:
    """Leave out datasets that a run works on, or that were committed after the plan was made."""
    if not new:
        return []
    held = living_datasets(binding, store.load_leases(binding.name))
    states = store.load_dataset_states(binding.name, [one.dataset_urn for one in new])
    versions = {urn: state.version for urn, state in states.items()}
    return [one for one in new if one.dataset_urn not in held and versions.get(one.dataset_urn, 0) == one.version]


def _nothing_new(seen: PollResult) -> str:
    said = f"None of {seen.datasets} datasets has new data to read."
    if seen.problems:
        said += f" {len(seen.problems)} cannot be planned; the first one: {seen.problems[0]}"
    return hidden(said)


def _told(said: Sequence[tuple[str, str]], intro: str) -> str:
    """Return what a tick without requests says; of a sensor of several jobs with their names, after `intro`."""
    if not intro:
        return " ".join(text for _, text in said)
    lines = [f"{name}: {text}" for name, text in said[:SHOWN]]
    lines += [f"and {len(said) - SHOWN} more jobs"] if len(said) > SHOWN else []
    return "\n".join([intro, *lines])


def _raise_first(errors: Sequence[tuple[str, Exception]]) -> None:
    """Raise the error of the only job that has one; of several, one error that describes the first ones."""
    if len(errors) == 1:
        raise errors[0][1]
    if errors:
        raise EnvironmentFaultError(
            problem=f"{len(errors)} jobs have an error. {_told([(name, str(one)) for name, one in errors], ' ')}",
            hint="`gobblin plan` does the same for each of them.",
        )
