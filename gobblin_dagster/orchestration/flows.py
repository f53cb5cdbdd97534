"""Sensor that fires the service's flows: a second driver of schedules, beside the loop of `gobblin serve`."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from gobblin_dagster.core.clock import Clock, SystemClock
from gobblin_dagster.engine.project import Project
from gobblin_dagster.orchestration.errors import without_secrets
from gobblin_dagster.orchestration.sensors import STOPPED
from gobblin_dagster.spec.load import load_project

INTERVAL_S = 30
"""Seconds between two looks at what is due."""


def flow_schedule_sensor(
    project: Project | Path | str,
    *,
    name: str = "flow_schedule",
    interval_s: int = INTERVAL_S,
    default_status: dg.DefaultSensorStatus = STOPPED,
    clock: Clock | None = None,
) -> dg.SensorDefinition:
    """Return a sensor that fires flows of the service whose time has come.

    It may run together with the loop of `gobblin serve`, and with other Dagster instances on the same store: a fire
    time is a row, so the first to come stores the execution and the next fire time in one transaction, and nobody
    fires it again. The nodes of the service compile the executions and run their jobs; the sensor requests no runs of
    Dagster's. If all drivers were away, flows catch up as their `flow.catchUp` says.

    Args:
        project: a project or its folder; `service.store` in its `gobblin.yaml` names the store.
        name: of the sensor, in Dagster.
        interval_s: seconds between two looks; flows fire up to so much later.
        default_status: by default, the sensor is stopped until it is switched on in Dagster's pages.
        clock: tells the time if the store has no clock of its own.

    Raises:
        InvalidSpecError, UsageError: the project cannot be loaded.

    Source: gobblin-service `GobblinServiceJobScheduler`. Differs: Dagster's daemon may drive it.
    """
    root = project.root if isinstance(project, Project) else Path(project)
    spec = project.spec if isinstance(project, Project) else load_project(root)

    @dg.sensor(
        name=name,
        minimum_interval_seconds=interval_s,
        default_status=default_status,
        description="Fires flows of the service whose time has come.",
    )
    @without_secrets()
    def evaluate() -> dg.SkipReason:
        # Loads the service, which runs of jobs do not need: each is a process that imports this package again.
        from gobblin_dagster.orchestration.fire_flows import fire_flows  # noqa: PLC0415

        return dg.SkipReason(fire_flows(root, spec, clock or SystemClock()))

    return evaluate


def has_service(project: Project | Path) -> bool:
    """Tell whether a project has a service that ran: one that never did gets no database from Dagster.

    Raises:
        InvalidSpecError, UsageError: the project cannot be loaded.
    """
    # The service is no part of what each run of Dagster imports.
    from gobblin_dagster.service.known_jobs import service_ran  # noqa: PLC0415 - as said above

    if isinstance(project, Project):
        return service_ran(project.root, project.spec)
    return service_ran(project, load_project(project))
