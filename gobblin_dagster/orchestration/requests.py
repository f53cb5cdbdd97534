"""What a sensor answers to Dagster's daemon: run requests, partitions to add, and events."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import dagster as dg

from gobblin_dagster.core.commit import canonical_json
from gobblin_dagster.orchestration.binding import JobBinding
from gobblin_dagster.orchestration.events import Event
from gobblin_dagster.orchestration.ops import run_config
from gobblin_dagster.orchestration.partitions import missing_keys


@dataclass(frozen=True, slots=True)
class Answer:
    """What a sensor asks for one job."""

    requests: Sequence[dg.RunRequest] = ()
    known: Collection[str] = ()
    """dataset.urns that need a partition."""
    events: Sequence[Event] = ()
    looked: int = 0
    """Number of commits that were compared with what Dagster shows, reported or not."""


def request(binding: JobBinding, why: str, found: list[list[object]], urns: Iterable[str]) -> dg.RunRequest:
    """Return the request of one run over some datasets; for equal findings it has the same run key.

    Dagster starts only one run per run key and sensor, for ever.
    """
    digest = hashlib.sha256(canonical_json(sorted(found)).encode()).hexdigest()[:32]
    return dg.RunRequest(
        run_key=f"{binding.name}-{why}-{digest}",
        job_name=binding.dagster_job,
        run_config=run_config(binding.name, sorted(urns)),
    )


def sensor_result(
    instance: dg.DagsterInstance,
    answers: Iterable[tuple[JobBinding, Answer]],
    skip_reason: str = "",
    cursor: str | None = None,
) -> dg.SensorResult:
    """Return the answers of all jobs as one result; `skip_reason` is for a tick without requests."""
    requests: list[dg.RunRequest] = []
    partitions: list[dg.AddDynamicPartitionsRequest] = []
    events: list[Event] = []
    for binding, answer in answers:
        requests += answer.requests
        events += answer.events
        new = missing_keys(instance, binding.partitions_name, answer.known)
        partitions += [binding.partitions.build_add_request(new)] if new else []
    told = skip_reason or f"Nothing to run; reported {len(events)} events of other processes."
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else told,
        dynamic_partitions_requests=partitions,
        asset_events=events,
        cursor=cursor,
    )
