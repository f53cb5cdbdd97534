"""Fire times are claimed once; missed ones are caught up by the flow's policy, and each leaves a row."""

from __future__ import annotations

import threading

import pytest

from gobblin_dagster.service.manager import FlowManager
from gobblin_dagster.service.model import ExecutionStatus, FlowId
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator
from gobblin_dagster.service.scheduler.scheduler import Fired, Scheduler
from gobblin_dagster.service.store.execution_rows import list_executions
from gobblin_dagster.service.store.store import ServiceStore

from ..conftest import Create, OwnClock, flow

EACH_MINUTE = "0 * * ? * *"
FLOW = FlowId("g", "n")


def fired(store: ServiceStore) -> list[tuple[int, bool]]:
    """Return the executions of the flow, oldest first: id, and whether it was skipped."""
    with store.read() as transaction:
        found = list_executions(transaction, FLOW, 10_000)
    return [(one.id.number, one.status is ExecutionStatus.CANCELLED) for one in reversed(found)]


def test_flow_fires_at_its_time_once(
    store: ServiceStore, scheduler: Scheduler, create: Create, clock: OwnClock
) -> None:
    create(flow(cron=EACH_MINUTE))
    assert scheduler.fire_due() == Fired()
    clock.move(seconds=31)
    assert scheduler.fire_due() == Fired(1, 1)
    assert scheduler.fire_due() == Fired()
    assert fired(store) == [(1795370460000, False)]  # 18:01:00


@pytest.mark.parametrize(("policy", "runs"), [("all", 10), ("latest", 1), ("skip", 1)])
def test_ten_missed_minutes_are_caught_up_by_the_policy(
    store: ServiceStore, scheduler: Scheduler, create: Create, clock: OwnClock, policy: str, runs: int
) -> None:
    create(flow(cron=EACH_MINUTE, properties={"flow.catchUp": policy}))
    clock.move(minutes=10)  # 18:10:30: the fire of 18:10 is in time
    scheduler.fire_due()
    rows = fired(store)
    assert len(rows) == 10, "each fire time leaves a row"
    assert sum(not is_skipped for _, is_skipped in rows) == runs
    assert rows[-1] == (1795371000000, False)


def test_skip_runs_nothing_that_is_older_than_a_minute(
    store: ServiceStore, scheduler: Scheduler, create: Create, clock: OwnClock
) -> None:
    create(flow(cron="0 0 * ? * *", properties={"flow.catchUp": "skip"}))
    clock.move(hours=2)  # 20:00:30
    clock.move(minutes=5)
    scheduler.fire_due()
    assert [is_skipped for _, is_skipped in fired(store)] == [True, True]


def test_two_schedulers_at_once_fire_each_time_once(
    store: ServiceStore, scheduler: Scheduler, create: Create, clock: OwnClock
) -> None:
    for number in range(50):
        create(flow(f"f{number}", cron=EACH_MINUTE))
    clock.move(seconds=40)
    results: list[Fired] = []
    threads = [threading.Thread(target=lambda: results.append(scheduler.fire_due(10))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while (more := scheduler.fire_due(10)).flows:
        results.append(more)
    assert sum(one.executions for one in results) == 50


def test_paused_flow_rests_and_does_not_catch_up(
    store: ServiceStore, scheduler: Scheduler, manager: FlowManager, create: Create, clock: OwnClock
) -> None:
    create(flow(cron=EACH_MINUTE, properties={"flow.catchUp": "all"}))
    with store.write() as transaction:
        manager.pause(transaction, FLOW, "tester", paused=True)
    clock.move(minutes=5)
    assert scheduler.fire_due() == Fired()
    with store.write() as transaction:
        manager.pause(transaction, FLOW, "tester", paused=False)
    assert scheduler.fire_due() == Fired()
    clock.move(minutes=1)
    assert scheduler.fire_due() == Fired(1, 1)


def test_deleted_flow_fires_no_more(
    store: ServiceStore, scheduler: Scheduler, manager: FlowManager, create: Create, clock: OwnClock
) -> None:
    create(flow(cron=EACH_MINUTE))
    with store.write() as transaction:
        manager.delete(transaction, FLOW, "tester")
    clock.move(minutes=5)
    assert scheduler.fire_due() == Fired()


def test_node_without_the_role_fires_nothing(
    store: ServiceStore, orchestrator: Orchestrator, create: Create, clock: OwnClock
) -> None:
    create(flow(cron=EACH_MINUTE))
    clock.move(minutes=2)
    assert Scheduler(store, orchestrator, lambda _: False).fire_due() == Fired()
    assert Scheduler(store, orchestrator).fire_due().executions == 1


def test_schedule_in_a_time_zone_follows_its_clock(
    store: ServiceStore, scheduler: Scheduler, create: Create, clock: OwnClock
) -> None:
    create(flow(cron="0 30 20 * * ?", properties={"flow.timeZone": "Europe/Berlin"}))  # 19:30 UTC
    clock.move(hours=1, minutes=29)
    assert scheduler.fire_due() == Fired()
    clock.move(minutes=1)
    assert scheduler.fire_due() == Fired(1, 1)


@pytest.mark.parametrize(("policy", "runs"), [("all", 2880), ("latest", 6)])
def test_thousands_of_missed_times_are_dealt_with_in_bounded_transactions(
    store: ServiceStore, scheduler: Scheduler, create: Create, clock: OwnClock, policy: str, runs: int
) -> None:
    create(flow(cron="0/10 * * ? * *", properties={"flow.catchUp": policy}))
    clock.move(hours=8)
    told = []
    while (one := scheduler.fire_due()).flows:
        told.append(one)
    assert [one.executions + one.skipped for one in told] == [1000, 1000, 880]
    rows = fired(store)
    assert len(rows) == 2880
    # Of the last minute, six were not missed.
    assert sum(not is_skipped for _, is_skipped in rows) in (runs, runs + 1)


def test_update_leaves_a_fire_time_that_has_come_to_the_scheduler(
    store: ServiceStore, manager: FlowManager, scheduler: Scheduler, create: Create, clock: OwnClock
) -> None:
    create(flow(cron=EACH_MINUTE))
    clock.move(seconds=31)
    with store.write() as transaction:
        manager.update(transaction, flow(templates="FS:///z", cron=EACH_MINUTE), "tester")
    assert scheduler.fire_due() == Fired(1, 1)
    assert fired(store) == [(1795370460000, False)]  # 18:01:00
    clock.move(minutes=1)
    with store.write() as transaction:
        manager.update(transaction, flow(cron="0 30 * ? * *"), "tester")
    assert scheduler.fire_due() == Fired(), "the schedule is another one"
