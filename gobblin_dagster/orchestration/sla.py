"""sla_sensor: watch how old each dataset is, and tell when it exceeds the limits of `asset.sla` in the job file.

Dagster's own freshness policies look at all partitions of an asset together, so one fresh dataset hides stale ones.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path

import dagster as dg

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.core.watermark.types import seconds_to
from gobblin_dagster.engine.project import Project, open_project
from gobblin_dagster.orchestration import metadata as md
from gobblin_dagster.orchestration.alerts import Alert, Tell
from gobblin_dagster.orchestration.binding import JobBinding
from gobblin_dagster.orchestration.errors import without_secrets
from gobblin_dagster.orchestration.partitions import missing_keys, to_key
from gobblin_dagster.orchestration.translator import GobblinTranslator
from gobblin_dagster.spec.asset import SlaSpec, age

INTERVAL_S = 300
"""Seconds between two looks."""
AT_ONCE = 200
"""Number of datasets that one tick tells to be late, of all jobs together; Dagster ends a tick after 60 s."""
TELL_S = 30.0
"""Seconds after which a tick leaves alerts to the next one."""
SHOWN = 5
"""Number of datasets that the text of an alert names."""


def sla_sensor(
    project: Project | Path | str,
    tell: Tell | None = None,
    *,
    translator: GobblinTranslator | None = None,
    name: str | None = None,
    interval_s: int = INTERVAL_S,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING,
) -> dg.SensorDefinition:
    """Return a sensor that tells of each dataset once when it becomes late, and once when it is in time again.

    It reads the state store alone. A late dataset gets an observation in its partition, with the reason as
    `gobblin/late`. What `tell` raises stands in the tick, or in its log if other alerts were taken; the
    next tick tells it again.

    Args:
        project: a project or its folder; jobs without `asset.sla` are left out.
        tell: gets an alert per job with the datasets that are newly late, or in time again, e.g.
            `Webhook("ALERT_URL")`; default: only observations.
        translator: the same as for `gobblin_assets`.
        name: of the sensor; default: `<project>_sla`.
        interval_s: seconds between two looks.
        default_status: by default, the sensor runs, because it is cheap.

    Raises:
        InvalidSpecError, UsageError: the project cannot be loaded.
    """
    opened = project if isinstance(project, Project) else open_project(Path(project))
    watched = [(JobBinding.of(opened, job, translator), job.asset.sla) for job in opened.jobs if job.asset.sla]

    @dg.sensor(
        name=name or f"{opened.spec.project}_sla",
        minimum_interval_seconds=interval_s,
        default_status=default_status,
        description="Tells of datasets that are older than their job allows.",
    )
    @without_secrets()
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        told, events, said = _load(context.cursor), list[dg.AssetObservation](), []
        partitions: list[dg.AddDynamicPartitionsRequest] = []
        teller, budget = _Teller(tell), AT_ONCE
        with closing(opened.open_store()) as store:
            now = store.now()
            for binding, sla in watched:
                known = told.get(binding.name, frozenset())
                states, damaged = store.load_readable_states(binding.name)
                late = late_datasets(states.values(), sla, now)
                new = dict(islice(((urn, why) for urn, why in late.items() if urn not in known), budget))
                over = sorted(known - late.keys() - damaged.keys())
                if new and not teller.is_taken(_late_alert(opened.spec.project, binding.name, new)):
                    new = {}
                if over and not teller.is_taken(_in_time_alert(opened.spec.project, binding.name, over)):
                    over = []
                budget -= len(new)
                events += [_observation(key, *one) for one in new.items() for key in binding.keys.values()]
                keys = missing_keys(context.instance, binding.partitions_name, new)
                partitions += [binding.partitions.build_add_request(keys)] if keys else []
                told[binding.name] = (known - {*over}) | new.keys()
                if late:
                    said.append(f"{binding.name}: late datasets: {len(late)} of {len(states)}.")
        teller.tell_problems(context)
        kept = {binding.name: sorted(told[binding.name]) for binding, _ in watched if told[binding.name]}
        return dg.SensorResult(
            skip_reason=" ".join(said) or "No dataset is late.",
            asset_events=events,
            dynamic_partitions_requests=partitions,
            cursor=json.dumps(kept),
        )

    return evaluate


def late_datasets(states: Iterable[DatasetState], sla: SlaSpec, now: datetime) -> dict[str, str]:
    """Return the datasets that exceed a limit, with the reason, by dataset.urn, sorted."""
    return {
        state.dataset_urn: reason
        for state in sorted(states, key=lambda one: one.dataset_urn)
        if (reason := "; ".join(_reasons(state, sla, now)))
    }


def _reasons(state: DatasetState, sla: SlaSpec, now: datetime) -> Iterator[str]:
    since = now - state.updated_at
    if sla.max_age is not None and since > age(sla.max_age):
        yield f"the last commit is {_duration(since)} old, expected at most {sla.max_age}"
    behind = seconds_to(state.committed.watermark, now)
    if sla.max_lag is not None and behind is not None and timedelta(seconds=behind) > age(sla.max_lag):
        lag = _duration(timedelta(seconds=behind))
        yield f"the watermark {state.committed.watermark} is {lag} behind, expected at most {sla.max_lag}"


def _duration(span: timedelta) -> str:
    hours, minutes = divmod(int(span.total_seconds()) // 60, 60)
    days, hours = divmod(hours, 24)
    return " ".join(f"{number}{unit}" for number, unit in ((days, "d"), (hours, "h"), (minutes, "m")) if number) or "0m"


def _late_alert(project: str, job: str, new: Mapping[str, str]) -> Alert:
    lines = [f"- {urn!r}: {why}" for urn, why in islice(new.items(), SHOWN)]
    more = [f"- and {len(new) - SHOWN} more"] if len(new) > SHOWN else []
    return Alert("late", project, job, "\n".join([f"{job}: late datasets: {len(new)}", *lines, *more]), new)


def _in_time_alert(project: str, job: str, over: Iterable[str]) -> Alert:
    found = dict.fromkeys(over, "")
    named = ", ".join(map(repr, islice(found, SHOWN))) + (", ..." if len(found) > SHOWN else "")
    return Alert("in_time", project, job, f"{job}: in time again: {named}; datasets: {len(found)}", found)


class _Teller:
    """Tells the alerts of one tick; those that are not taken are left to the next one."""

    def __init__(self, tell: Tell | None) -> None:
        self._tell = tell
        self._end = time.monotonic() + TELL_S
        self._taken = 0
        self._errors: list[Exception] = []

    def is_taken(self, alert: Alert) -> bool:
        """Tell an alert, and return whether it was taken."""
        if self._tell is None:
            return True
        if time.monotonic() > self._end:
            return False
        try:
            self._tell(alert)
        except Exception as error:  # noqa: BLE001 - the others are told; those that were told must not come again
            self._errors.append(error)
            return False
        self._taken += 1
        return True

    def tell_problems(self, context: dg.SensorEvaluationContext) -> None:
        """Log what was raised; raise it if no alert was taken, as there is nothing that the cursor must keep."""
        if self._errors and not self._taken:
            raise self._errors[0]
        for error in self._errors:
            context.log.error(hidden(f"An alert is told again by the next tick: {error}"))


def _observation(key: dg.AssetKey, dataset_urn: str, reason: str) -> dg.AssetObservation:
    return dg.AssetObservation(
        key, description=f"{dataset_urn}: late: {reason}", partition=to_key(dataset_urn), metadata={md.LATE: reason}
    )


def _load(cursor: str | None) -> dict[str, frozenset[str]]:
    """Return the datasets of each job that were told to be late; empty for a cursor that is none of this sensor."""
    try:
        found = json.loads(cursor or "{}")
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(job): frozenset(map(str, urns)) for job, urns in found.items() if isinstance(urns, list)}
