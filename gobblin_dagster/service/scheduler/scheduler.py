"""Scheduler: claims fire times that have come, each once, and stores the next one of each flow.

A fire time is a row: what is due is found by an index, claimed and moved on in one transaction. So nothing is computed
for flows that are not due, and a second scheduler can neither fire twice nor miss anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gobblin_dagster.service.catalog.flow_config import FlowSettings
from gobblin_dagster.service.cron import Cron
from gobblin_dagster.service.model import ExecutionId, ExecutionStatus, FlowId, FlowSpec, Trigger
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator
from gobblin_dagster.service.store.event_rows import Event, add_events
from gobblin_dagster.service.store.execution_rows import Execution, add_executions
from gobblin_dagster.service.store.flow_rows import DueFlow, set_next_fires, take_due
from gobblin_dagster.service.store.store import ServiceStore, Transaction
from gobblin_dagster.spec.schedule import CatchUp

BATCH = 100
"""Flows that are claimed in one transaction."""
MAX_MISSED = 1_000
"""Missed fire times of one flow that are dealt with in one transaction; the others follow in the next."""
LATE_S = 60
"""A fire time that is claimed within these seconds was not missed."""


def epoch_ms(instant: datetime) -> int:
    """Return an instant as epoch milliseconds."""
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def from_epoch_ms(number: int) -> datetime:
    """Return the instant of epoch milliseconds, in UTC."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=number)


def next_fire_ms(spec: FlowSpec, after: datetime) -> int | None:
    """Return when a flow fires next, in epoch ms; None if it is paused, has no schedule, or never fires again."""
    if spec.config.schedule is None or spec.is_paused or not spec.is_in_catalog:
        return None
    zone = FlowSettings.stored(spec.config.properties).time_zone
    found = Cron.parse(spec.config.schedule.cron).next_after(after, zone)
    return None if found is None else epoch_ms(found)


@dataclass(frozen=True, slots=True)
class Fired:
    """What one call did."""

    flows: int = 0
    executions: int = 0
    skipped: int = 0


class Scheduler:
    """Fires flows.

    Args:
        store: the service's store.
        orchestrator: takes in what fires.
        is_leader: tells, inside of the transaction, whether this node may fire; the default says yes.

    Source: gobblin-service `GobblinServiceJobScheduler`. Differs: Quartz keeps its triggers in memory, on one node.
    """

    def __init__(
        self,
        store: ServiceStore,
        orchestrator: Orchestrator,
        is_leader: Callable[[Transaction], bool] = lambda _: True,
    ) -> None:
        self._store = store
        self._orchestrator = orchestrator
        self._is_leader = is_leader

    def fire_due(self, limit: int = BATCH) -> Fired:
        """Fire flows whose time has come, the longest overdue first, in one transaction.

        Returns:
            How many flows were due; call again at once if it is `limit`.
        """
        with self._store.write() as transaction:
            if not self._is_leader(transaction):
                return Fired()
            now = self._store.now(transaction)
            due = take_due(transaction, epoch_ms(now), limit)
            wanted: list[tuple[FlowSpec, int]] = []
            left_out: list[tuple[FlowSpec, int]] = []
            next_fires: list[tuple[FlowId, int | None]] = []
            for flow in due:
                fires = _fire_times(flow, now)
                wanted += [(flow.spec, number) for number in fires.run]
                left_out += [(flow.spec, number) for number in fires.skipped]
                next_fires.append((flow.spec.id, next_fire_ms(flow.spec, fires.until)))
            executions = self._orchestrator.accept(transaction, wanted, Trigger.SCHEDULE, now)
            skipped = _note_skipped(transaction, left_out, now)
            set_next_fires(transaction, next_fires)
        return Fired(len(due), executions, skipped)


@dataclass(frozen=True, slots=True)
class _Fires:
    run: list[int]
    skipped: list[int]
    until: datetime
    """The flow fires next after this instant."""


def _fire_times(flow: DueFlow, now: datetime) -> _Fires:
    """Return the fire times that run and those that are skipped, in epoch ms."""
    schedule = flow.spec.config.schedule
    if schedule is None:
        return _Fires([], [], now)
    settings = FlowSettings.stored(flow.spec.config.properties)
    times = [flow.fire_ms]
    is_all = True
    for found in Cron.parse(schedule.cron).fire_times(from_epoch_ms(flow.fire_ms), settings.time_zone):
        if found > now:
            break
        if len(times) == MAX_MISSED:
            is_all = False
            break
        times.append(epoch_ms(found))
    in_time = [number for number in times if number >= epoch_ms(now - timedelta(seconds=LATE_S))]
    latest = times[-1:] if is_all else []
    kept = {CatchUp.ALL: times, CatchUp.LATEST: latest, CatchUp.SKIP: []}[settings.catch_up]
    # What came within the last minute was not missed: it fires whatever the policy says of missed ones.
    run = sorted({*kept, *in_time})
    skipped = [number for number in times if number not in {*run}]
    return _Fires(run, skipped, now if is_all else from_epoch_ms(times[-1]))


def _note_skipped(transaction: Transaction, fires: Sequence[tuple[FlowSpec, int]], now: datetime) -> int:
    """Leave a row for each fire time that passed while no scheduler ran and that its flow does not catch up."""
    message = "skipped: no scheduler ran at this time, and flow.catchUp does not ask for it"
    new = [
        Execution(
            ExecutionId(spec.id, number),
            spec.version,
            Trigger.SCHEDULE,
            ExecutionStatus.CANCELLED,
            now,
            message,
            is_over=True,
            ended_at=now,
        )
        for spec, number in fires
    ]
    added = add_executions(transaction, new)
    add_events(transaction, [Event(one.id, now, ExecutionStatus.CANCELLED, message=message) for one in added])
    return len(added)
