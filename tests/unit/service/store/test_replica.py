"""The copy of the database on a node: what it holds is what the database held, and it says what it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import delete, select, update

from gobblin_dagster.service.manager import FlowManager
from gobblin_dagster.service.model import ExecutionId, FlowId
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator
from gobblin_dagster.service.store.flow_rows import FlowFilter, PropertyFilter, list_flows
from gobblin_dagster.service.store.replica import NEWEST, Replica
from gobblin_dagster.service.store.store import ServiceStore, Transaction
from gobblin_dagster.service.store.tables import events, executions, flow_properties, flow_versions, flows, jobs

from ..conftest import Create, OwnClock, flow

CRON = "0 0 * ? * *"
COPIED = (flows, flow_properties, flow_versions, executions, jobs, events)


class OwnTime:
    s = 1000.0

    def now_s(self) -> float:
        return self.s


@pytest.fixture
def time_s() -> OwnTime:
    return OwnTime()


@pytest.fixture
def replica(store: ServiceStore, clock: OwnClock, tmp_path: Path, time_s: OwnTime) -> Iterator[Replica]:
    made = Replica(store, tmp_path / "copies", clock, time_s.now_s)
    yield made
    made.close()


def rows(transaction: Transaction) -> list[list[str]]:
    return [sorted(repr(row) for row in transaction.execute(select(table))) for table in COPIED]


def test_copy_follows_flows_and_executions(
    store: ServiceStore, manager: FlowManager, orchestrator: Orchestrator, create: Create, replica: Replica
) -> None:
    create(flow("before", cron=CRON, properties={"user.to.proxy": "anna"}))
    assert not replica.has_flows
    replica.follow()
    create(flow("n", cron=CRON))
    create(flow("gone", cron=CRON))
    with store.write() as transaction:
        manager.update(transaction, flow("n", "FS:///b,FS:///c", cron=CRON), "tester")
        number = manager.run_now(transaction, FlowId("g", "n"))
        manager.delete(transaction, FlowId("g", "gone"), "tester")
    replica.follow()
    orchestrator.start_accepted()
    replica.follow()
    with store.read() as there, replica.store.read() as here:
        assert rows(here) == rows(there)
        where = FlowFilter(exact_properties=(("user.to.proxy", "anna"),), properties=(PropertyFilter("user.to.proxy"),))
        assert [one.id.name for one in list_flows(here, where)] == ["before"]
    assert replica.holds(ExecutionId(FlowId("g", "n"), number))
    assert not replica.holds(ExecutionId(FlowId("g", "n"), number + 1))
    assert replica.has_executions(FlowId("g", "before"))
    assert not replica.has_executions(FlowId("g", "other"))


def test_newest_executions_are_copied_and_their_age_is_told(
    store: ServiceStore, manager: FlowManager, create: Create, clock: OwnClock, replica: Replica, time_s: OwnTime
) -> None:
    create(flow(cron=CRON))
    numbers = []
    for _ in range(NEWEST + 3):
        clock.move(seconds=1)
        with store.write() as transaction:
            numbers.append(manager.run_now(transaction, FlowId("g", "n")))
    replica.follow()
    time_s.s += 7
    assert replica.age_s == 7
    with replica.store.read() as transaction:
        assert sorted(transaction.scalars(select(executions.c.execution_id))) == numbers[3:]
    replica.follow()
    assert replica.age_s == 0


def test_group_is_whole_with_flows_that_left_the_catalog_and_not_before_all_are_copied(
    store: ServiceStore, orchestrator: Orchestrator, create: Create, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(flow("scheduled", cron=CRON))
    create(flow("once"))
    create(flow("twice"))
    with store.write() as transaction:
        transaction.execute(delete(flows).where(flows.c.flow_name == "once"))
    monkeypatch.setattr("gobblin_dagster.service.store.replica.FLOWS_AT_ONCE", 1)
    assert not replica.has_group("g")
    replica.follow()
    assert (replica.has_group("g"), replica.has_group("other")) == (False, True)
    replica.follow()
    assert replica.has_group("g")
    assert all(replica.has_executions(FlowId("g", name)) for name in ("scheduled", "once", "twice"))
    create(flow("new", cron=CRON))
    create(flow("newer"))
    replica.follow()
    replica.follow()
    assert replica.has_group("g")
    with store.read() as there, replica.store.read() as here:
        assert rows(here) == rows(there)


def test_event_that_becomes_visible_late_is_not_missed(
    store: ServiceStore, create: Create, replica: Replica, time_s: OwnTime
) -> None:
    create(flow("a"))
    create(flow("b"))
    replica.follow()
    # Another node's transaction began before and ends now: its number is below one that was read already.
    with store.write() as transaction:
        late = transaction.execute(delete(events).where(events.c.flow_name == "a").returning(events)).mappings().all()
    replica.follow()
    with store.write() as transaction:
        new = [{**row, "message": "late", "number": 2000 + at} for at, row in enumerate(late)]
        transaction.execute(events.insert(), new)
    replica.follow()
    time_s.s += 20
    with store.write() as transaction:
        transaction.execute(events.insert(), [{**late[0], "number": 1999, "flow_name": "b", "message": "later still"}])
    replica.follow()
    with replica.store.read() as here:
        told = {(row.flow_name, row.message) for row in here.execute(select(events))}
    assert told == {("a", "late"), ("b", "asked for: once"), ("b", "later still")}
    time_s.s += 60
    replica.follow()
    assert not replica._seen, "numbers are not kept for ever"


def test_database_that_was_put_back_is_copied_again(store: ServiceStore, create: Create, replica: Replica) -> None:
    create(flow("kept", cron=CRON))
    create(flow("lost", cron=CRON))
    replica.follow()
    with store.write() as transaction:
        for table in (flows, flow_versions):
            transaction.execute(delete(table).where(table.c.flow_name == "lost"))
    replica.follow()
    with replica.store.read() as here:
        assert [one.id.name for one in list_flows(here, FlowFilter())] == ["kept"]
    with store.write() as transaction:  # put back once more, and as many changes came since as were lost
        for table in (flows, flow_versions):
            transaction.execute(update(table).values(changed_by="another"))
    replica.follow()
    with replica.store.read() as here:
        assert [one.changed_by for one in list_flows(here, FlowFilter())] == ["another"]


def test_executions_that_a_database_put_back_has_lost_leave_the_copy(
    store: ServiceStore, manager: FlowManager, create: Create, replica: Replica, time_s: OwnTime
) -> None:
    create(flow(cron=CRON))
    with store.write() as transaction:
        number = manager.run_now(transaction, FlowId("g", "n"))
    replica.follow()
    time_s.s += 60
    replica.follow()
    assert replica.holds(ExecutionId(FlowId("g", "n"), number))
    with store.write() as transaction:
        for table in (events, executions):
            transaction.execute(delete(table))
    replica.follow()
    with store.read() as there, replica.store.read() as here:
        assert rows(here) == rows(there)


def test_copies_of_killed_nodes_are_deleted_and_those_of_others_stay(
    store: ServiceStore, clock: OwnClock, replica: Replica, tmp_path: Path
) -> None:
    killed = tmp_path / "copies" / "replica-killed"
    killed.mkdir()
    (killed / "lock").touch()
    (killed / "replica.db").touch()
    other = Replica(store, tmp_path / "copies", clock)
    assert not killed.exists()
    assert len(list((tmp_path / "copies").iterdir())) == 2
    replica.follow()
    other.close()
    assert len(list((tmp_path / "copies").iterdir())) == 1


def test_flow_with_signs_of_its_own_is_copied(store: ServiceStore, create: Create, replica: Replica) -> None:
    create(replace(flow(cron=CRON), id=FlowId("a'b;--", "größe/(x)")))
    replica.follow()
    with store.read() as there, replica.store.read() as here:
        assert rows(here) == rows(there)
