"""Start and finish deadlines: one event for each breach, whatever process watches, and no flow stops the others."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from gobblin_dagster.service.manager import FlowManager
from gobblin_dagster.service.model import ExecutionId, ExecutionStatus, FlowId, Trigger
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator
from gobblin_dagster.service.scheduler.scheduler import Scheduler
from gobblin_dagster.service.store.event_rows import list_events
from gobblin_dagster.service.store.job_rows import load_jobs
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.store.tables import flow_versions, flows

from ..conftest import Create, OwnClock, compile_flow, flow
from .test_orchestrator import FLOW, execution, orders, report

S = ExecutionStatus
FINISH = {"gobblin.flow.sla.time": "2", "gobblin.flow.sla.timeunit": "HOURS"}
START = {"gobblin.job.start.sla.time": "10"}


def messages(store: ServiceStore, number: int) -> list[str]:
    with store.read() as transaction:
        return [one.message for one in list_events(transaction, ExecutionId(FLOW, number)) if "deadline" in one.message]


def test_execution_that_takes_too_long_is_killed_also_over_a_restart(
    store: ServiceStore, orchestrator: Orchestrator, create: Create, clock: OwnClock
) -> None:
    number = create(flow(templates="FS:///a,FS:///b", properties=FINISH))
    orchestrator.start_accepted()
    report(orchestrator, number, "a", S.RUNNING)
    clock.move(hours=2, seconds=-1)
    assert orchestrator.expire_deadlines() == 0
    clock.move(seconds=1)
    restarted = Orchestrator(store, compile_flow)
    assert restarted.expire_deadlines() == 1
    assert orders(store)[-1] == ("a", 1, 1, True)
    assert restarted.expire_deadlines() == 0, "one breach is told once"
    assert execution(store, number).status is S.RUNNING, "what is whole is still committed"
    report(restarted, number, "a", S.CANCELLED)
    done = execution(store, number)
    told = "finish deadline exceeded: it was to end by 2026-11-22T20:00:30Z (gobblin.flow.sla.time)"
    assert (done.status, done.message) == (S.CANCELLED, f"{told}; 0 rows in 2 jobs")
    assert messages(store, number) == [told, f"{told}; 0 rows in 2 jobs"]


def test_execution_that_ends_in_time_is_left_alone(
    store: ServiceStore, orchestrator: Orchestrator, create: Create, clock: OwnClock
) -> None:
    number = create(flow(properties=FINISH))
    orchestrator.start_accepted()
    report(orchestrator, number, "a", S.COMPLETE)
    clock.move(hours=3)
    assert orchestrator.expire_deadlines() == 0
    assert execution(store, number).status is S.COMPLETE


def test_resumed_execution_has_its_whole_time_again(
    store: ServiceStore, orchestrator: Orchestrator, create: Create, clock: OwnClock
) -> None:
    number = create(flow(properties=FINISH))
    orchestrator.start_accepted()
    clock.move(hours=2)
    orchestrator.expire_deadlines()
    report(orchestrator, number, "a", S.CANCELLED)
    orchestrator.resume(ExecutionId(FLOW, number))
    assert execution(store, number).message == ""
    clock.move(minutes=119)
    assert orchestrator.expire_deadlines() == 0
    report(orchestrator, number, "a", S.COMPLETE, generation=2)
    assert execution(store, number).status is S.COMPLETE


def test_job_that_does_not_start_is_tried_again_then_given_up(
    store: ServiceStore, orchestrator: Orchestrator, create: Create, clock: OwnClock
) -> None:
    number = create(flow(properties={**START, "job.maxAttempts": "2"}))
    orchestrator.start_accepted()
    report(orchestrator, number, "a", S.ORCHESTRATED)
    clock.move(minutes=10)
    assert Orchestrator(store, compile_flow).expire_deadlines() == 1
    assert orders(store)[1:] == [("a", 1, 1, True), ("a", 1, 2, False)]
    clock.move(minutes=9)
    assert orchestrator.expire_deadlines() == 0
    clock.move(minutes=1)
    assert orchestrator.expire_deadlines() == 1
    done = execution(store, number)
    told = "start deadline exceeded: it was to start by 2026-11-22T18:20:30Z (gobblin.job.start.sla.time)"
    assert (done.status, done.message) == (S.CANCELLED, f"a: {told}; 0 rows in 1 job")
    with store.read() as transaction:
        [job] = load_jobs(transaction, ExecutionId(FLOW, number))
    assert (job.status, job.message, job.ended_at) == (S.CANCELLED, told, clock.now())
    assert len(messages(store, number)) == 3, "two breaches, and the end"


def test_job_that_started_has_met_its_start_deadline(
    store: ServiceStore, orchestrator: Orchestrator, create: Create, clock: OwnClock
) -> None:
    number = create(flow(templates="FS:///a,FS:///b", properties=START))
    orchestrator.start_accepted()
    report(orchestrator, number, "a", S.RUNNING)
    clock.move(hours=1)
    assert orchestrator.expire_deadlines() == 0
    report(orchestrator, number, "a", S.COMPLETE)
    clock.move(minutes=9)
    assert orchestrator.expire_deadlines() == 0, "the second job's time begins when it can run"
    clock.move(minutes=1)
    assert orchestrator.expire_deadlines() == 1
    assert execution(store, number).status is S.CANCELLED


def test_flow_with_settings_that_no_longer_count_stops_no_other(
    store: ServiceStore, orchestrator: Orchestrator, scheduler: Scheduler, create: Create, clock: OwnClock
) -> None:
    for name in ("n", "m"):
        create(flow(name, cron="0 * * ? * *"))
    with store.write() as transaction:
        for table in (flows, flow_versions):
            found = transaction.execute(table.select().where(table.c.flow_name == "n")).first()
            assert found is not None
            body = found.body.replace(
                '"properties":{}', '"properties":{"gobblin.flow.sla.time":"soon","flow.timeZone":"X"}'
            )
            assert body != found.body
            transaction.execute(update(table).where(table.c.flow_name == "n").values(body=body))
    clock.move(minutes=1)
    assert scheduler.fire_due().executions == 2
    assert orchestrator.start_accepted() == 2


def test_execution_that_cannot_be_started_ends_and_stops_no_other(
    store: ServiceStore, manager: FlowManager, create: Create
) -> None:
    create(flow("n", cron="0 0 * ? * *"))
    create(flow("m", cron="0 0 * ? * *"))
    with store.write() as transaction:
        bad, good = (manager.run_now(transaction, FlowId("g", name)) for name in ("n", "m"))

    def compile_some(config: object) -> object:
        if "'n'" in str(config):
            raise RuntimeError("a fault of ours")
        return compile_flow(config)  # type: ignore[arg-type]  # the other flow's

    assert Orchestrator(store, compile_some).start_accepted() == 2  # type: ignore[arg-type]  # it may raise anything
    assert execution(store, bad).message == "it could not be started: RuntimeError: a fault of ours"
    with store.read() as transaction:
        assert load_jobs(transaction, ExecutionId(FlowId("g", "m"), good))


def test_long_queue_of_one_flow_keeps_no_other_waiting(
    store: ServiceStore, orchestrator: Orchestrator, manager: FlowManager, create: Create, clock: OwnClock
) -> None:
    create(flow("n", cron="0 0 * ? * *"))
    create(flow("m", cron="0 0 * ? * *"))
    with store.write() as transaction:
        spec = manager.require(transaction, FLOW)
        wanted = [(spec, number) for number in range(1, 151)]
        orchestrator.accept(transaction, wanted, Trigger.SCHEDULE, clock.now())
        other = manager.run_now(transaction, FlowId("g", "m"))
    assert orchestrator.start_accepted() == 2
    with store.read() as transaction:
        assert load_jobs(transaction, ExecutionId(FlowId("g", "m"), other))


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_than_the_limit_are_started_at_once(
    store: ServiceStore, orchestrator: Orchestrator, manager: FlowManager, create: Create, limit: int
) -> None:
    create(flow(cron="0 0 * ? * *", properties={"flow.concurrency": "allow"}))
    with store.write() as transaction:
        for _ in range(5):
            manager.run_now(transaction, FLOW)
    assert orchestrator.start_accepted(limit) == limit
    assert orchestrator.start_accepted() == 5 - limit
