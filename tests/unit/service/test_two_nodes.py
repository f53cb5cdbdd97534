"""Two nodes on one database: both hear of changes, each fire time has one execution, each job runs on one node."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gobblin_dagster.service.model import ExecutionId, ExecutionStatus, FlowConfig, FlowId, FlowSpec, Schedule
from gobblin_dagster.service.server import CoreServices
from gobblin_dagster.service.store.event_rows import list_events
from gobblin_dagster.service.store.execution_rows import list_executions
from gobblin_dagster.service.store.job_rows import load_jobs
from gobblin_dagster.service.store.node_rows import load_nodes
from gobblin_dagster.spec.project import ServiceSpec
from tests.services.flow_project import NEVER, URI, make_project

EACH_5_S = "0/5 * * ? * *"


class Heard:
    def __init__(self) -> None:
        self.at: dict[str, float] = {}

    def flow_changed(self, spec: FlowSpec) -> None:
        self.at[f"{spec.id.name} {spec.change}"] = time.monotonic()


def wait(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def create(core: CoreServices, name: str, cron: str) -> FlowId:
    flow = FlowId("g", name)
    with core.store.write() as transaction:
        core.manager.create(transaction, FlowConfig(flow, URI, {"folder": f"lake/{name}"}, Schedule(cron)), "tester")
    return flow


def test_change_fire_and_job_reach_exactly_one_node_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    make_project(tmp_path)
    command = [sys.executable, "-m", "tests.services.inline_worker", str(tmp_path)]
    heard = [Heard(), Heard()]
    nodes = [CoreServices(tmp_path, ServiceSpec(port=0), command, listeners=[one]) for one in heard]
    for node in nodes:
        node.start()
    try:
        begun = time.monotonic()
        fired = create(nodes[1], "fired", EACH_5_S)
        wait(lambda: all("fired created" in one.at for one in heard))
        # The bar is one second; the machine that runs tests may be busy.
        assert max(one.at["fired created"] for one in heard) - begun < 5
        flows = [create(nodes[at % 2], f"n{at}", NEVER) for at in range(6)]
        runs = []
        for at, flow in enumerate(flows):
            with nodes[at % 2].store.write() as transaction:
                runs.append(ExecutionId(flow, nodes[at % 2].manager.run_now(transaction, flow)))

        def is_over() -> bool:
            with nodes[0].store.read() as transaction:
                found = [one for run in runs for one in list_executions(transaction, run.flow)]
                fires = list_executions(transaction, fired, 100)
            return all(one.is_over for one in found) and any(one.is_over for one in fires)

        wait(is_over)
        with nodes[0].store.read() as transaction:
            assert {one.name for one in load_nodes(transaction)} == {node.node for node in nodes}
            fires = list_executions(transaction, fired, 100)
            assert len({one.id.number for one in fires}) == len(fires)
            assert all(one.id.number % 5000 == 0 for one in fires)
            for run in runs:
                [job] = load_jobs(transaction, run)
                assert (job.status, job.processed_count) == (ExecutionStatus.COMPLETE, 20)
                assert job.holder in {node.node for node in nodes}
                handed = [one for one in list_events(transaction, run) if one.status is ExecutionStatus.ORCHESTRATED]
                assert len(handed) == 1, "one node was given the job"
        # The node that fires ends: the other goes on.
        first = next(at for at, node in enumerate(nodes) if node.is_leader)
        nodes[first].stop(at_once=True)
        before = len(fires)
        other = nodes[1 - first]

        def fires_on() -> bool:
            with other.store.read() as transaction:
                return len(list_executions(transaction, fired, 100)) > before + 1

        wait(fires_on, 30)
    finally:
        for node in nodes:
            node.stop(at_once=True)
