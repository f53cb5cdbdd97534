"""Nodes that share a store: each order goes to one, and what a dead one held goes to another."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.service.model import ExecutionId, ExecutionStatus, FlowId, JobReport
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator
from gobblin_dagster.service.store.node_rows import Node, delete_node, load_nodes, save_node
from gobblin_dagster.service.store.order_rows import list_orders, take_orders, take_over_jobs
from gobblin_dagster.service.store.role_rows import RoleLease
from gobblin_dagster.service.store.store import ServiceStore

from ..conftest import Create, OwnClock, flow

DEAD = replace(LeaseOwner.current("x"), pid=2**22 - 1, started="1")
"""A process of this host that is not there."""


def node(clock: OwnClock, name: str, owner: LeaseOwner | None = None) -> Node:
    now = clock.now()
    # Not the bare name: tests of runs that are called "first" note in this process that their owner has ended.
    return Node(name, owner or LeaseOwner.current(f"node {name}"), "http://x", "0.1.0", now, now, now)


def taken(store: ServiceStore, holder: str, limit: int = 10) -> list[tuple[str, bool]]:
    with store.write() as transaction:
        return [(one.execution.flow.name, one.is_stop) for one in take_orders(transaction, "embedded", holder, limit)]


def test_each_order_goes_to_one_node_and_no_more_than_it_has_room_for(
    store: ServiceStore, orchestrator: Orchestrator, create: Create
) -> None:
    for name in "abc":
        create(flow(name))
    orchestrator.start_accepted()
    assert taken(store, "one", 2) == [("a", False), ("b", False)]
    assert taken(store, "two") == [("c", False)]
    assert taken(store, "one") == []


def test_stop_goes_to_the_node_that_holds_the_job(
    store: ServiceStore, orchestrator: Orchestrator, create: Create
) -> None:
    number = create(flow("a"))
    waiting = create(flow("b"))
    orchestrator.start_accepted()
    taken(store, "one", 1)
    orchestrator.kill(ExecutionId(FlowId("g", "a"), number))
    assert taken(store, "two", 0) == []
    assert taken(store, "one", 0) == [("a", True)]
    orchestrator.kill(ExecutionId(FlowId("g", "b"), waiting))
    assert taken(store, "two", 0) == [("b", True)], "nobody holds it"
    assert taken(store, "one") == [("a", True)], "the start of b is not there any more; a is to stop until it is over"
    for name, started in (("a", number), ("b", waiting)):
        cancelled = JobReport(ExecutionId(FlowId("g", name), started), "a", 1, 1, ExecutionStatus.CANCELLED)
        orchestrator.report(cancelled)
    assert taken(store, "one") == taken(store, "two") == []
    with store.read() as transaction:
        assert list_orders(transaction, "embedded") == []


def test_jobs_of_a_dead_node_are_taken_over_once(
    store: ServiceStore, orchestrator: Orchestrator, create: Create, clock: OwnClock
) -> None:
    number = create(flow("a"))
    create(flow("b"))
    orchestrator.start_accepted()
    taken(store, "one", 1)
    orchestrator.report(JobReport(ExecutionId(FlowId("g", "a"), number), "a", 1, 1, ExecutionStatus.RUNNING))
    with store.write() as transaction:
        assert take_over_jobs(transaction, "embedded", "two", ["one"]) == [], (
            "it lives, and the other waits in the outbox"
        )
        [(execution, job)] = take_over_jobs(transaction, "embedded", "two", [])
        assert (execution.flow.name, job.status, job.holder) == ("a", ExecutionStatus.RUNNING, "two")
        assert take_over_jobs(transaction, "embedded", "three", ["two"]) == []


def test_job_whose_taking_was_never_answered_is_told_to_its_node_until_it_begins(
    store: ServiceStore, orchestrator: Orchestrator, create: Create
) -> None:
    number = create(flow("a"))
    orchestrator.start_accepted()
    taken(store, "one", 1)

    def own() -> int:
        with store.write() as transaction:
            return len(take_over_jobs(transaction, "embedded", "one", ["one", "two"]))

    assert own() == 1
    execution = ExecutionId(FlowId("g", "a"), number)
    orchestrator.report(JobReport(execution, "a", 1, 1, ExecutionStatus.ORCHESTRATED, run_id="run-1"))
    assert own() == 0


def test_node_is_alive_while_it_is_heard_of(store: ServiceStore, clock: OwnClock) -> None:
    with store.write() as transaction:
        save_node(transaction, node(clock, "one"))
        save_node(transaction, node(clock, "killed", DEAD))
        assert [(one.name, one.is_alive(clock.now())) for one in load_nodes(transaction)] == [
            ("killed", False),
            ("one", True),
        ]
        clock.move(seconds=10)
        save_node(transaction, node(clock, "one"))
        clock.move(seconds=14)
        assert [one.name for one in load_nodes(transaction) if one.is_alive(clock.now())] == ["one"]
        clock.move(seconds=1)
        assert [one.name for one in load_nodes(transaction) if one.is_alive(clock.now())] == []
        clock.move(minutes=-10)
        assert [one.name for one in load_nodes(transaction) if one.is_alive(clock.now())] == [], (
            "the clock was put back"
        )
        clock.move(days=1, minutes=10)
        save_node(transaction, node(clock, "two"))
        assert [one.name for one in load_nodes(transaction)] == ["two"], "others are forgotten"
        delete_node(transaction, "two")
        assert load_nodes(transaction) == []


@pytest.mark.parametrize(("owner", "is_taken"), [(DEAD, True), (None, False)])
def test_role_of_a_killed_process_is_taken_at_once(
    store: ServiceStore, clock: OwnClock, owner: LeaseOwner | None, is_taken: bool
) -> None:
    with store.write() as transaction:
        save_node(transaction, node(clock, "first", owner))
        assert RoleLease("leader", "first", timedelta(seconds=15)).renew(transaction, clock.now())
        assert RoleLease("leader", "second", timedelta(seconds=15)).renew(transaction, clock.now()) is is_taken
