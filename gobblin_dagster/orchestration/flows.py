"""Sensor that fires the service's flows: a second driver of schedules, beside the loop of `gobblin serve`."""

from __future__ import annotations

import time
from pathlib import Path

import dagster as dg

from gobblin_dagster.core.clock import Clock, SystemClock
from gobblin_dagster.core.errors import TransientError
from gobblin_dagster.database.engine import parse_url
from gobblin_dagster.engine.project import Project
from gobblin_dagster.orchestration.sensors import STOPPED
from gobblin_dagster.service.catalog.templates import TemplateCatalog
from gobblin_dagster.service.compiler.identity import IdentityCompiler
from gobblin_dagster.service.executors.embedded import NAME as EMBEDDED
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator
from gobblin_dagster.service.scheduler.scheduler import BATCH, Scheduler
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.spec.load import load_project

INTERVAL_S = 30
"""Seconds between two looks at what is due."""
TICK_S = 20.0
"""Seconds after which a tick takes no further batch: Dagster ends a tick after 60 s."""


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
    time is a row, so whoever comes first stores the execution and the next fire time in one transaction, and nobody
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
    compiler = IdentityCompiler(TemplateCatalog(root / spec.service.templates), [EMBEDDED], spec.allow.lists)

    @dg.sensor(
        name=name,
        minimum_interval_seconds=interval_s,
        default_status=default_status,
        description="Fires flows of the service whose time has come.",
    )
    def evaluate() -> dg.SkipReason:
        until = time.monotonic() + TICK_S
        flows = executions = skipped = 0
        try:
            with ServiceStore(parse_url(spec.service.store, root), clock or SystemClock()) as store:
                scheduler = Scheduler(store, Orchestrator(store, compiler.compile))
                while True:
                    fired = scheduler.fire_due()
                    flows, executions = flows + fired.flows, executions + fired.executions
                    skipped += fired.skipped
                    if fired.flows < BATCH or time.monotonic() > until:
                        break
        except TransientError as error:
            return dg.SkipReason(f"The service's store is away; flows that are due fire later. {error}")
        if not flows:
            return dg.SkipReason("No flow is due.")
        left_out = f", {skipped} fire times skipped" if skipped else ""
        return dg.SkipReason(f"Fired {flows} flows: {executions} executions{left_out}.")

    return evaluate
