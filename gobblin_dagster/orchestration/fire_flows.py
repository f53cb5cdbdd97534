"""Fire the flows that are due in the store of the service: the work of one tick of `flow_schedule_sensor`."""

from __future__ import annotations

import time
from pathlib import Path

from gobblin_dagster.core.clock import Clock
from gobblin_dagster.core.errors import TransientError
from gobblin_dagster.database.engine import parse_url
from gobblin_dagster.service.flow_compiler import open_flow_compiler
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator
from gobblin_dagster.service.scheduler.scheduler import BATCH, Scheduler
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.spec.project import ProjectSpec

TICK_S = 20.0
"""Seconds after which a tick takes no further batch: Dagster ends a tick after 60 s."""


def fire_flows(root: Path, spec: ProjectSpec, clock: Clock) -> str:
    """Fire the flows whose time has come, and return what happened, for people.

    `clock` tells the time if the store has no clock of its own.
    """
    until = time.monotonic() + TICK_S
    flows = executions = skipped = 0
    try:
        with ServiceStore(parse_url(spec.service.store, root), clock) as store:
            compiler = open_flow_compiler(root, spec.service, spec.allow.lists, store)
            scheduler = Scheduler(store, Orchestrator(store, compiler.compile))
            while True:
                fired = scheduler.fire_due()
                flows, executions = flows + fired.flows, executions + fired.executions
                skipped += fired.skipped
                if fired.flows < BATCH or time.monotonic() > until:
                    break
    except TransientError as error:
        return f"The service's store is away; flows that are due fire later. {error}"
    if not flows:
        return "No flow is due."
    left_out = f", {skipped} fire times skipped" if skipped else ""
    return f"Fired {flows} flows: {executions} executions{left_out}."
