"""job_schedule: the schedule of a job file, or one made in Python, as a schedule of Dagster.

Dagster's daemon evaluates only the last of the times that it missed; `catch_up` says what becomes of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import dagster as dg
from pydantic import ValidationError

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.engine.project import Project
from gobblin_dagster.orchestration.binding import JobBinding
from gobblin_dagster.spec.document import show_loc
from gobblin_dagster.spec.explain import explain
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.schedule import CatchUp, ScheduleSpec

SCHEDULED_AT = "gobblin/scheduled_at"
"""Tag of runs that a schedule with `catch_up: all` requested: for which of its times."""
LATE = timedelta(minutes=5)
"""A time that is evaluated later than this was missed, for `catch_up: skip`. A daemon that starts, or evaluates
hundreds of schedules, is late too."""
AT_ONCE = 20
"""Number of runs that `catch_up: all` requests at once, because each is a process; the next time requests more."""

_LOOKED = 100
"""Number of newest runs of a schedule among which its last time is looked for: runs made again have older times."""
_FORMAT = "%Y-%m-%dT%H:%M:%S%z"
_REQUESTED = [one for one in dg.DagsterRunStatus if one is not dg.DagsterRunStatus.NOT_STARTED]
"""Statuses of runs that were launched or wait for it: a daemon that died may have left others."""


def job_schedule(
    project: Project | Path | str,
    job: JobSpec | str,
    *,
    cron: str | None = None,
    time_zone: str | None = None,
    catch_up: CatchUp | str | None = None,
) -> dg.ScheduleDefinition:
    """Return the schedule `<job>_schedule`, which is on from the beginning.

    `catch_up` says what happens to times that passed while Dagster's daemon was away. `latest`: one run, for the last
    of them. `skip`: none; the schedule goes on with its next time. `all`: a run for each time since the newest run that
    this schedule requested, oldest first, `AT_ONCE` of them at a time. Times at which the schedule was switched off
    count as missed: Dagster does not tell the two apart. Without such a run, the schedule begins with the last time.

    Args:
        project: a project or its folder.
        job: a job or its name in the project.
        cron: five fields as in crontab; default: that of the job file's `schedule`.
        time_zone: name of the time zone in which `cron` is meant; default: that of the job file, or UTC.
        catch_up: `all`, `latest` or `skip`; default: that of the job file, or `latest`.

    Raises:
        InvalidSpecError, UsageError: the project or the job cannot be loaded, there is no `cron`, no time fits it, or
            an argument cannot be understood.

    Example:
        >>> def definitions() -> dg.Definitions:
        ...     flights = gobblin_assets("demo", "flights")
        ...     daily = job_schedule("demo", "flights", cron="0 6 * * *", time_zone="Europe/Berlin", catch_up="skip")
        ...     return dg.Definitions([flights], jobs=[gobblin_job("demo", "flights")], schedules=[daily])
    """
    binding = JobBinding.of(project, job)
    given = {"cron": cron, "time_zone": time_zone, "catch_up": catch_up}
    wanted = _wanted(binding, {name: value for name, value in given.items() if value is not None})

    def evaluate(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        at = context.scheduled_execution_time
        if wanted.catch_up is CatchUp.ALL:
            for text in _missed(binding, wanted, context.instance, at)[:AT_ONCE]:
                # The run key keeps Dagster from a second run if it evaluates one time twice.
                yield dg.RunRequest(run_key=text, tags={SCHEDULED_AT: text})
        elif binding.project.clock.now() - at > LATE:
            yield dg.SkipReason(f"{at:{_FORMAT}} was missed, and `catch_up: skip` leaves it out.")
        else:
            yield dg.RunRequest()

    try:
        return dg.ScheduleDefinition(
            name=f"{binding.name}_schedule",
            job_name=binding.dagster_job,
            cron_schedule=wanted.cron,
            execution_timezone=wanted.time_zone,
            default_status=dg.DefaultScheduleStatus.RUNNING,
            # Without a function, Dagster does what `latest` says.
            execution_fn=None if wanted.catch_up is CatchUp.LATEST else evaluate,
        )
    except dg.DagsterInvalidDefinitionError as error:
        problem = f"Job {binding.name!r}: Dagster cannot read the `cron` of its schedule, {wanted.cron!r}."
        raise UsageError(problem=problem, hint="Write five fields as in crontab, such as '0 6 * * 1-5'.") from error


def _wanted(binding: JobBinding, given: dict[str, str]) -> ScheduleSpec:
    """Return the schedule of the job file with other settings; raises UsageError."""
    declared = binding.job.schedule
    if declared is None and "cron" not in given:
        raise UsageError(
            problem=f"Job {binding.name!r} has no `schedule`.", hint="Add one to its job file, or pass `cron`."
        )
    try:
        return ScheduleSpec.model_validate((declared.model_dump() if declared else {}) | given)
    except ValidationError as error:
        faults = "; ".join(f"{show_loc(loc)}: {problem}" for loc, problem in explain(error, ScheduleSpec))
        raise UsageError(
            problem=f"The schedule of job {binding.name!r} cannot be understood: {faults}.",
            hint="`job_schedule` takes the same values as `schedule` in a job file.",
        ) from None


def _missed(binding: JobBinding, wanted: ScheduleSpec, instance: dg.DagsterInstance, at: datetime) -> Sequence[str]:
    """Return the times after that of the schedule's newest run up to `at`, oldest first, as texts."""
    runs = instance.get_run_records(
        dg.RunsFilter(
            job_name=binding.dagster_job,
            statuses=_REQUESTED,
            tags={"dagster/schedule_name": f"{binding.name}_schedule"},
        ),
        limit=_LOOKED,
    )
    told = [one.dagster_run.tags[SCHEDULED_AT] for one in runs if SCHEDULED_AT in one.dagster_run.tags]
    zone = ZoneInfo(wanted.time_zone)
    last = max((datetime.fromisoformat(text) for text in told), default=at)
    missed: list[str] = []
    if last < at:
        times = dg.TimeWindowPartitionsDefinition(
            start=last.astimezone(zone),
            cron_schedule=wanted.cron,
            timezone=wanted.time_zone,
            fmt=_FORMAT,
            end_offset=1,
        )
        found = times.get_partition_keys(current_time=at)
        missed = [text for text in found if last < datetime.fromisoformat(text) < at]
    return [*missed, at.astimezone(zone).strftime(_FORMAT)]
