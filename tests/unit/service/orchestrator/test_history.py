"""Old executions go, in bounded batches; what runs, and the newest of each flow, stays."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import func, select

from gobblin_dagster.service.manager import FlowManager
from gobblin_dagster.service.model import ExecutionId, ExecutionStatus, FlowId, JobReport, Trigger
from gobblin_dagster.service.orchestrator.history import ExecutionHistory
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator
from gobblin_dagster.service.store.execution_rows import list_executions
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.store.tables import events, executions, jobs

from ..conftest import Create, OwnClock, flow

CRON = "0 0 0 ? 1 1 2050"
FLOW = FlowId("g", "n")


def accept(store: ServiceStore, manager: FlowManager, orchestrator: Orchestrator, name: str, numbers: range) -> None:
    with store.write() as transaction:
        spec = manager.require(transaction, FlowId("g", name))
        wanted = [(spec, number) for number in numbers]
        orchestrator.accept(transaction, wanted, Trigger.SCHEDULE, store.now(transaction))
    orchestrator.start_accepted(1000)


def end(orchestrator: Orchestrator, name: str, numbers: range) -> None:
    for number in numbers:
        orchestrator.report(
            JobReport(ExecutionId(FlowId("g", name), number), "a", 1, 1, ExecutionStatus.COMPLETE, "done", "run")
        )


def kept(store: ServiceStore, name: str = "n") -> list[int]:
    with store.read() as transaction:
        return [one.id.number for one in list_executions(transaction, FlowId("g", name), 1000)]


def rows(store: ServiceStore) -> list[int]:
    with store.read() as transaction:
        return [
            transaction.execute(select(func.count()).select_from(t)).scalar_one() for t in (executions, jobs, events)
        ]


def prune(history: ExecutionHistory, limit: int) -> int:
    """Prune until nothing is left to do; return how often it was called."""
    calls = 1
    while history.prune(limit):
        calls += 1
    return calls


def test_count_is_kept_in_each_flow_and_what_runs_stays(
    store: ServiceStore, manager: FlowManager, orchestrator: Orchestrator, create: Create, clock: OwnClock
) -> None:
    parallel = {"flow.concurrency": "allow"}
    for name in ("n", "m"):
        create(flow(name, cron=CRON, properties=parallel))
        accept(store, manager, orchestrator, name, range(1, 21))
    end(orchestrator, "n", range(2, 21))  # the first still runs
    end(orchestrator, "m", range(1, 5))
    history = ExecutionHistory(store, 5, timedelta(days=90))
    assert prune(history, 4) > 3, "batches are bounded"
    assert kept(store) == [20, 19, 18, 17, 16, 1]
    assert kept(store, "m") == list(range(20, 4, -1)), "those that run count, and those that are over went"
    remaining = 6 + 16
    assert rows(store)[:2] == [remaining, remaining]
    end(orchestrator, "n", range(1, 2))
    clock.move(seconds=1)
    prune(history, 4)
    assert kept(store) == [20, 19, 18, 17, 16]


def test_age_counts_from_the_end_and_spares_the_newest(
    store: ServiceStore, manager: FlowManager, orchestrator: Orchestrator, create: Create, clock: OwnClock
) -> None:
    for name in ("n", "m"):
        create(flow(name, cron=CRON, properties={"flow.concurrency": "allow"}))
    accept(store, manager, orchestrator, "n", range(1, 4))
    accept(store, manager, orchestrator, "m", range(1, 2))
    end(orchestrator, "n", range(1, 3))
    end(orchestrator, "m", range(1, 2))
    clock.move(days=9)
    end(orchestrator, "n", range(3, 4))
    accept(store, manager, orchestrator, "n", range(4, 5))
    clock.move(days=2)
    history = ExecutionHistory(store, 100, timedelta(days=10))
    prune(history, 100)
    assert kept(store) == [4, 3], "the end of the third is 2 days old, the fourth runs"
    assert kept(store, "m") == [1], "the newest of a flow stays"
    clock.move(days=100)
    prune(history, 100)
    assert kept(store) == [4]


def test_execution_that_was_resumed_meanwhile_stays(
    store: ServiceStore, manager: FlowManager, orchestrator: Orchestrator, create: Create, clock: OwnClock
) -> None:
    create(flow(cron=CRON, properties={"flow.concurrency": "allow"}))
    accept(store, manager, orchestrator, "n", range(1, 3))
    orchestrator.kill(ExecutionId(FLOW, 1))
    orchestrator.report(JobReport(ExecutionId(FLOW, 1), "a", 1, 1, ExecutionStatus.CANCELLED))
    orchestrator.resume(ExecutionId(FLOW, 1))
    clock.move(days=100)
    prune(ExecutionHistory(store, 1, timedelta(days=1)), 100)
    assert kept(store) == [2, 1]
