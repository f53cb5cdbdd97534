"""Alerts: tell a function or a webhook how runs of a project's jobs ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dagster as dg

from gobblin_dagster.constructs.clients.environment import from_environment
from gobblin_dagster.core.errors import GobblinDagsterError, TransientError
from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.engine.project import Project, open_project
from gobblin_dagster.orchestration import metadata as md
from gobblin_dagster.orchestration.binding import JobBinding
from gobblin_dagster.orchestration.errors import without_secrets
from gobblin_dagster.orchestration.ops import EXTRACT, REPORT
from gobblin_dagster.orchestration.translator import GobblinTranslator

SHOWN = 20
"""Number of datasets that an alert names; it counts all of them."""
_TRIES, _PAUSE_S = 3, 0.5
_CONNECT_S, _ANSWER_S = 2.0, 5.0
_LAST_TRY_S = 3.0
"""Seconds after which nothing is tried again. A tick tells of up to five runs, and Dagster ends it after 60 s: it would
tell of the same runs again, for ever."""
_TAKEN, _BUSY = range(200, 300), {429, *range(500, 600)}
_WORDS = {
    dg.DagsterRunStatus.SUCCESS: "succeeded",
    dg.DagsterRunStatus.FAILURE: "failed",
    dg.DagsterRunStatus.CANCELED: "was canceled",
}


@dataclass(frozen=True, slots=True)
class Alert:
    """What an alert tells."""

    kind: str
    """`run` if a run ended; `late` or `in_time` for datasets and the limits of `asset.sla`."""
    project: str
    job: str
    text: str
    """What happened, for people."""
    datasets: Mapping[str, str] = field(default_factory=dict)
    """Datasets that it is about with the reason, by dataset.urn; empty if it is about the whole run."""
    status: str = ""
    """Of a run: `success`, `canceled`, or as `gobblin/run_status` has it, such as `partial` or `failed`."""
    run_id: str = ""
    """Dagster's id of the run."""

    def to_document(self) -> dict[str, Any]:
        """Return the alert as JSON has it; it names at most `SHOWN` datasets."""
        found = {
            "text": self.text,  # the key that Slack, Mattermost and others show
            "kind": self.kind,
            "project": self.project,
            "job": self.job,
            "dataset_count": len(self.datasets),
            "datasets": dict(islice(self.datasets.items(), SHOWN)),
        }
        return found | ({"status": self.status, "run_id": self.run_id} if self.run_id else {})


Tell = Callable[[Alert], object]
"""What gets alerts: a function of yours, or a `Webhook`."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """Posts alerts as JSON to a URL, which may hold a secret and is read from an environment variable."""

    url_env: str
    """Name of the variable."""

    def __call__(self, alert: Alert) -> None:
        """Post an alert; for 3 seconds, a lost connection, 429 and 5xx are tried up to three times.

        No answer within 5 seconds is not tried again, because the alert may have been taken.

        Raises:
            EnvironmentFaultError: the variable is not set.
            TransientError: the alert was not taken; the message names the variable and the host, not the URL.
        """
        import requests  # noqa: PLC0415  # slow to import, and needed by this sensor only

        url = from_environment({"url": self.url_env}, "webhook")["url"]
        problem, began = "", time.monotonic()
        for attempt in range(_TRIES):
            time.sleep(_PAUSE_S * attempt)
            try:
                # The body of the answer, which may be long or never end, is not read.
                answer = requests.post(
                    url, json=alert.to_document(), timeout=(_CONNECT_S, _ANSWER_S), allow_redirects=False, stream=True
                )
                answer.close()
            except requests.ReadTimeout:
                problem = f"no answer within {_ANSWER_S:.0f} s, so it may have taken it"
                break
            except requests.RequestException as error:
                problem = f"no answer ({type(error).__name__})"  # the error's text has the URL
            else:
                if answer.status_code in _TAKEN:
                    return
                problem = f"it answers {answer.status_code}"
                if answer.status_code not in _BUSY:
                    break
            if time.monotonic() - began > _LAST_TRY_S:
                break
        where = f"variable {self.url_env} ({_host(url)})"
        raise TransientError(problem=f"The webhook of {where} did not take an alert: {problem}.")


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or "no host"
    except ValueError:  # its text has a part of the URL
        return "no host"


def run_alert_sensor(
    project: Project | Path | str,
    tell: Tell,
    *,
    status: dg.DagsterRunStatus = dg.DagsterRunStatus.FAILURE,
    translator: GobblinTranslator | None = None,
    name: str | None = None,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING,
) -> dg.SensorDefinition:
    """Return a sensor that tells how runs of a project's jobs ended, however they were started.

    Dagster calls it once per run, for up to five runs in a tick, which it ends after 60 seconds: `tell` must return
    within ten. What it raises stands in the tick; the alert is not told again.

    Args:
        project: a project or its folder.
        tell: gets one alert per run, e.g. `Webhook("ALERT_URL")`.
        status: FAILURE, SUCCESS or CANCELED. A run that was partly committed is a FAILURE for Dagster.
        translator: the same as for `gobblin_assets`.
        name: of the sensor; default: `<project>_alert_<status>`.
        default_status: by default, the sensor runs.

    Raises:
        InvalidSpecError, UsageError: the project cannot be loaded.

    Example:
        >>> def sensors() -> list[dg.SensorDefinition]:
        ...     return [run_alert_sensor("demo", lambda alert: print(alert.text))]
    """
    opened = project if isinstance(project, Project) else open_project(Path(project))
    bindings = [JobBinding.of(opened, job, translator) for job in opened.jobs]

    @dg.run_status_sensor(
        run_status=status,
        name=name or f"{opened.spec.project}_alert_{status.value.lower()}",
        default_status=default_status,
        description=f"Tells of each run of {opened.spec.project} that {_WORDS.get(status, status.value)}.",
    )
    @without_secrets()
    def sensor(context: dg.RunStatusSensorContext) -> None:
        failures: Sequence[dg.DagsterEvent] = ()
        if context.dagster_run.status is dg.DagsterRunStatus.FAILURE:
            failures = context.for_run_failure().get_step_failure_events()
        # A skip reason for other runs would end the tick, so that it looks at one run each time and falls behind.
        if binding := _binding_of(context.dagster_run, failures, bindings):
            tell(_alert_of(context, opened.spec.project, binding, failures))

    return sensor


def _binding_of(
    run: dg.DagsterRun, failures: Iterable[dg.DagsterEvent], bindings: Sequence[JobBinding]
) -> JobBinding | None:
    """Return the job that a run works on: by its name, or the one whose step failed, or by the assets of the run."""
    chosen = run.asset_selection or frozenset()
    failed = {one.step_key for one in failures}
    named = [one for one in bindings if run.job_name == one.dagster_job]
    stopped = [one for one in bindings if failed & _steps(one)]
    asked = [one for one in bindings if chosen & {*one.keys.values()}]
    return next(iter([*named, *stopped, *asked]), None)


def _steps(binding: JobBinding) -> set[str]:
    return {f"{binding.name}.{EXTRACT}", f"{binding.name}.{REPORT}"}


def _alert_of(
    context: dg.RunStatusSensorContext, project: str, binding: JobBinding, failures: Sequence[dg.DagsterEvent]
) -> Alert:
    run, status = context.dagster_run, context.dagster_run.status
    said = f"{binding.name}: run {run.run_id[:8]} {_WORDS.get(status, status.value.lower())}"
    if status is not dg.DagsterRunStatus.FAILURE:
        return Alert("run", project, binding.name, said, status=status.value.lower(), run_id=run.run_id)
    word, reason, datasets = "failed", context.dagster_event.message or "", dict[str, str]()
    for event in sorted(failures, key=lambda one: one.step_key in _steps(binding)):  # those of the job count most
        failure = event.step_failure_data.user_failure_data
        if failure is not None and md.FAILED_DATASETS in failure.metadata and event.step_key in _steps(binding):
            word, reason = str(failure.metadata[md.RUN_STATUS].value), failure.description or ""
            named: Any = failure.metadata[md.FAILED_DATASETS].value
            datasets = _reasons(binding, run.run_id, named)
        elif event.step_failure_data.error is not None:
            reason = failure.description or "" if failure else event.step_failure_data.error.message
    text = hidden(f"{said}. {reason}".strip())
    return Alert("run", project, binding.name, text, datasets, word, run.run_id)


def _reasons(binding: JobBinding, run_id: str, urns: Sequence[str]) -> dict[str, str]:
    """Return why each of these datasets was not committed, as the run's record in the state store has it.

    If the store is away, the reasons are left out: Dagster asks for each alert only once.
    """
    try:
        with closing(binding.project.open_store()) as store:
            records = store.find_runs(binding.name, [run_id])
    except GobblinDagsterError:
        records = []
    newest_last = reversed(records)
    found = {urn: one.error or one.outcome.value for record in newest_last for urn, one in record.datasets.items()}
    return {urn: found.get(urn, "") for urn in urns}
