"""Quotas: executions of one flow group side by side; more wait in order, and nothing is counted twice."""

from __future__ import annotations

import pytest

from gobblin_dagster.service.manager import FlowManager
from gobblin_dagster.service.model import ExecutionId, ExecutionStatus, FlowId, JobReport
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator
from gobblin_dagster.service.store.execution_rows import list_executions
from gobblin_dagster.service.store.store import ServiceStore

from ..conftest import OwnClock, compile_flow, flow

S = ExecutionStatus


class Quota:
    """An orchestrator that runs two executions of a group side by side, and the flows f0, f1... of it."""

    def __init__(self, store: ServiceStore, clock: OwnClock) -> None:
        self.store = store
        self.clock = clock
        self.orchestrator = Orchestrator(store, compile_flow, per_group=2)
        self.ids: dict[str, ExecutionId] = {}

    def create(self, *names: str, group: str = "g", **properties: str) -> None:
        manager = FlowManager(self.store, compile_flow, self.orchestrator)
        for name in names:
            self.clock.move(seconds=1)
            with self.store.write() as transaction:
                config = flow(name, properties=properties, id=FlowId(group, name))
                self.ids[name] = ExecutionId(config.id, manager.create(transaction, config, "me").execution)

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
