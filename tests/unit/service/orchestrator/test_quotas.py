"""Quotas of flow groups, users and owning groups: more executions wait in order, and nothing is counted twice."""

from __future__ import annotations

import pytest

from gobblin_dagster.core.errors import QuotaExceededError
from gobblin_dagster.service.manager import FlowManager
from gobblin_dagster.service.model import ExecutionId, ExecutionStatus, FlowId, JobReport
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator
from gobblin_dagster.service.store.execution_rows import list_executions
from gobblin_dagster.service.store.flow_rows import load_flow
from gobblin_dagster.service.store.store import ServiceStore

from ..conftest import OwnClock, compile_flow, flow

S = ExecutionStatus


class Quota:
    """An orchestrator that runs two executions of a group side by side, and the flows f0, f1... of it."""

    def __init__(self, store: ServiceStore, clock: OwnClock) -> None:
        self.store = store
        self.clock = clock
        self.orchestrator = Orchestrator(store, compile_flow, per_group=2, per_user=3, per_owner=2)
        self.ids: dict[str, ExecutionId] = {}

    def create(
        self, *names: str, group: str = "g", by: str = "me", owner: str | None = None, **properties: str
    ) -> None:
        manager = FlowManager(self.store, compile_flow, self.orchestrator)
        for name in names:
            self.clock.move(seconds=1)
            with self.store.write() as transaction:
                config = flow(name, properties=properties, id=FlowId(group, name), owning_group=owner)
                self.ids[name] = ExecutionId(config.id, manager.create(transaction, config, by).execution)

    def report(self, name: str, status: ExecutionStatus, attempt: int = 1) -> None:
        self.orchestrator.report(JobReport(self.ids[name], "a", 1, attempt, status))

    def running(self) -> list[str]:
        self.orchestrator.start_accepted()
        with self.store.read() as transaction:
            found = {name: list_executions(transaction, one.flow, 1)[0].status for name, one in self.ids.items()}
        return [name for name, status in found.items() if status is S.RUNNING]


@pytest.fixture
def quota(store: ServiceStore, clock: OwnClock) -> Quota:
    return Quota(store, clock)


def test_executions_beyond_the_quota_of_their_group_wait_in_order(quota: Quota) -> None:
    quota.create("f0", "f1", "f2", "f3")
    quota.create("other", group="h")
    assert quota.running() == ["f0", "f1", "other"], "another group has a quota of its own"
    quota.report("f1", S.COMPLETE)
    assert quota.running() == ["f0", "f2", "other"]
    quota.report("f0", S.FAILED)
    assert quota.running() == ["f2", "f3", "other"]


def test_retry_does_not_count_twice(quota: Quota) -> None:
    quota.create("f0", **{"job.maxAttempts": "3"})
    quota.create("f1", "f2")
    assert quota.running() == ["f0", "f1"]
    quota.report("f0", S.FAILED)
    assert quota.running() == ["f0", "f1"]
    quota.report("f0", S.COMPLETE, attempt=2)
    assert quota.running() == ["f1", "f2"]


def test_restart_neither_loses_nor_invents_counts(quota: Quota) -> None:
    quota.create("f0", "f1", "f2")
    assert quota.running() == ["f0", "f1"]
    quota.orchestrator = Orchestrator(quota.store, compile_flow, per_group=2)
    assert quota.running() == ["f0", "f1"]
    quota.orchestrator.kill(quota.ids["f2"])
    quota.report("f0", S.COMPLETE)
    assert quota.running() == ["f1"], "an execution that waited can be killed"
    quota.orchestrator = Orchestrator(quota.store, compile_flow, per_group=1)
    quota.create("f4")
    assert quota.running() == ["f1"], "what runs goes on under a smaller quota"


def test_resume_waits_for_room_in_its_group(quota: Quota) -> None:
    quota.create("f0", "f1", "f2")
    assert quota.running() == ["f0", "f1"]
    quota.report("f0", S.FAILED)
    assert quota.running() == ["f1", "f2"]
    quota.orchestrator.resume(quota.ids["f0"])
    assert quota.running() == ["f1", "f2"]
    quota.report("f1", S.COMPLETE)
    assert quota.running() == ["f0", "f2"]


def test_resume_waits_for_room_in_the_quota_of_its_user(quota: Quota) -> None:
    quota.orchestrator = Orchestrator(quota.store, compile_flow, per_user=1)
    quota.create("f0", group="g0")
    quota.create("f1", group="g1")
    assert quota.running() == ["f0"]
    quota.report("f0", S.FAILED)
    assert quota.running() == ["f1"]
    quota.orchestrator.resume(quota.ids["f0"])
    assert quota.running() == ["f1"]
    quota.report("f1", S.COMPLETE)
    assert quota.running() == ["f0"]


def test_executions_beyond_the_quota_of_their_user_wait_in_order(quota: Quota) -> None:
    for number in range(3):
        quota.create(f"f{number}", group=f"g{number}")
    quota.create("f3", group="g3")
    quota.create("proxy", group="g4", **{"user.to.proxy": "anna"})
    quota.create("bob", group="g5", by="bob")
    quota.create("f6", group="g6")
    assert quota.running() == ["f0", "f1", "f2", "proxy", "bob"]
    quota.orchestrator = Orchestrator(quota.store, compile_flow, per_user=3)
    quota.report("f1", S.COMPLETE)
    assert quota.running() == ["f0", "f2", "f3", "proxy", "bob"]
    quota.orchestrator = Orchestrator(quota.store, compile_flow)
    assert quota.running() == ["f0", "f2", "f3", "proxy", "bob", "f6"]


def test_executions_beyond_the_quota_of_their_owning_group_wait_in_order(quota: Quota) -> None:
    for number in range(4):
        quota.create(f"f{number}", group=f"g{number}", by=f"by{number}", owner="shop")
    quota.create("other", group="h", owner="lake")
    quota.create("nobodys", group="i")
    assert quota.running() == ["f0", "f1", "other", "nobodys"]
    quota.report("f1", S.FAILED)
    assert quota.running() == ["f0", "f2", "other", "nobodys"]
    quota.orchestrator.resume(quota.ids["f1"])
    with quota.store.read() as transaction:
        [resumed] = list_executions(transaction, quota.ids["f1"].flow, 1)
    assert resumed.message == "waits: 2 executions of the owning group shop run"
    quota.report("f0", S.COMPLETE)
    assert "f2" in quota.running()


@pytest.mark.parametrize(
    ("most", "told"),
    [
        ((1, None, None), "flow group g has 1 executions that run or wait, and a quota of 1"),
        ((None, 1, None), "user me has 1 executions that run or wait, and a quota of 1"),
        ((None, None, 1), "owning group shop has 1 executions that run or wait, and a quota of 1"),
    ],
)
def test_flow_that_does_not_wait_is_refused_and_nothing_is_stored(
    quota: Quota, most: tuple[int | None, int | None, int | None], told: str
) -> None:
    quota.orchestrator = Orchestrator(quota.store, compile_flow, *most)
    quota.create("f0", owner="shop", **{"flow.whenFull": "refuse"})
    with pytest.raises(QuotaExceededError, match=told):
        quota.create("f1", owner="shop", **{"flow.whenFull": "refuse"})
    quota.create("f2", owner="shop")
    with quota.store.read() as transaction:
        assert load_flow(transaction, FlowId("g", "f1")) is None
    assert quota.running() == ["f0"]
    quota.report("f0", S.COMPLETE)
    assert quota.running() == ["f2"]
    quota.report("f2", S.COMPLETE)
    quota.create("f1", owner="shop", **{"flow.whenFull": "refuse"})
    assert quota.running() == ["f1"]
