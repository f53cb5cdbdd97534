"""Flows of flows in the service: compiled from the catalog as it is, waiting for a child, run as one execution."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gobblin_dagster.core.allow import EVERYTHING
from gobblin_dagster.core.errors import FlowCompileError
from gobblin_dagster.service.catalog.templates import TemplateCatalog
from gobblin_dagster.service.compiler.children import AFTER, CHILDREN
from gobblin_dagster.service.compiler.compilers import CompilerContext, make_compiler
from gobblin_dagster.service.compiler.explanation import Explanation
from gobblin_dagster.service.compiler.routed_flow import DESTINATIONS, SOURCE
from gobblin_dagster.service.cron import NEVER
from gobblin_dagster.service.flow_compiler import ExecutorCompiler
from gobblin_dagster.service.manager import FlowManager
from gobblin_dagster.service.model import ExecutionId, ExecutionStatus, FlowConfig, FlowId, JobReport
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator
from gobblin_dagster.service.store.execution_rows import load_execution
from gobblin_dagster.service.store.flow_rows import newest_version
from gobblin_dagster.service.store.job_rows import load_jobs
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.store.tables import ways
from gobblin_dagster.service.store.way_rows import load_way
from gobblin_dagster.service.topology.catalog import TopologyCatalog

from .conftest import HOP_TEMPLATE, flow

S = ExecutionStatus


class Service:
    """A catalog with its compiler and orchestrator."""

    def __init__(self, root: Path, store: ServiceStore) -> None:
        (root / "hop.template").write_text(HOP_TEMPLATE)
        self._store = store
        (root / "topology").mkdir(exist_ok=True)
        self._file = root / "topology" / "all.yaml"
        self._seconds = 0
        templates, self.topology = TemplateCatalog(root), TopologyCatalog(root / "topology")
        compiler = self._compiler = ExecutorCompiler(
            lambda names: make_compiler("auto", CompilerContext(templates, self.topology, names, EVERYTHING)), store
        )
        self.orchestrator = Orchestrator(store, compiler.compile)
        self.topology.add_listener(self.orchestrator)
        self.manager = FlowManager(store, compiler.compile, self.orchestrator)

    def describe(self, **costs: int) -> None:
        """Write a topology with these edges from `landing` to `lake`, and let the service see it."""
        edge = '  {0}: {{source: landing, destination: lake, template: "FS:///hop.template", cost: {1}}}\n'
        self._file.write_text(NODES + "".join(edge.format(*one) for one in costs.items()))
        self._seconds += 2
        os.utime(self._file, (self._seconds, self._seconds))
        self.topology.refresh()

    def explain(self, name: str) -> Explanation:
        with self._store.read() as transaction:
            spec = newest_version(transaction, FlowId("g", name))
        assert spec is not None
        return self._compiler.explain(spec.config)

    def run(self, name: str) -> list[str]:
        """Run a flow, and return the names of its jobs, or why there are none."""
        with self._store.write() as transaction:
            execution = ExecutionId(FlowId("g", name), self.manager.run_now(transaction, FlowId("g", name)))
        self.orchestrator.start_accepted()
        found = list(self.jobs(execution))
        for job in found:
            self.orchestrator.report(JobReport(execution, job, 1, 1, S.COMPLETE))
        return found or [self.status(execution)[1]]

    def create(self, config: FlowConfig) -> ExecutionId:
        with self._store.write() as transaction:
            return ExecutionId(config.id, self.manager.create(transaction, config, "me").execution)

    def delete(self, name: str) -> None:
        with self._store.write() as transaction:
            self.manager.delete(transaction, FlowId("g", name), "me")

    def tell(self, name: str) -> None:
        """Tell the orchestrator of the newest change of a flow, as the catalog's feed does."""
        with self._store.read() as transaction:
            spec = newest_version(transaction, FlowId("g", name))
        assert spec is not None
        self.orchestrator.flow_changed(spec)

    def status(self, execution: ExecutionId) -> tuple[ExecutionStatus, str]:
        with self._store.read() as transaction:
            found = load_execution(transaction, execution)
        assert found is not None
        return found.status, found.message

    def jobs(self, execution: ExecutionId) -> dict[str, ExecutionStatus]:
        with self._store.read() as transaction:
            return {one.job.name: one.status for one in load_jobs(transaction, execution)}


NODES = """\
nodes: {landing: {type: files}, lake: {type: lake}}
executors: {here: {capabilities: [{}]}}
edges:
"""


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    """No query here is another one on PostgreSQL."""
    return f"sqlite:///{tmp_path}/service.db"


@pytest.fixture
def service(tmp_path: Path, store: ServiceStore) -> Service:
    return Service(tmp_path, store)


def child(name: str) -> FlowConfig:
    return flow(name, "FS:///hop.template", NEVER)


def of_flows(name: str, children: str, **properties: str) -> FlowConfig:
    return flow(name, "", None, {CHILDREN: children, **properties})


def test_flow_of_flows_runs_the_jobs_of_its_children_in_order_as_one_execution(service: Service) -> None:
    service.create(child("a"))
    service.create(child("b"))
    execution = service.create(of_flows("all", "g/b,g/a", **{f"{AFTER}g/b": "g/a"}))
    assert service.orchestrator.start_accepted() == 1
    assert service.jobs(execution) == {"g__a__hop": S.PENDING, "g__b__hop": S.COMPILED}
    for job in ("g__a__hop", "g__b__hop"):
        service.orchestrator.report(JobReport(execution, job, 1, 1, S.COMPLETE))
    assert service.status(execution)[0] is S.COMPLETE


def test_flow_of_flows_waits_for_a_child_that_is_not_there_yet(service: Service) -> None:
    with pytest.raises(FlowCompileError, match="there is no flow g/late"):
        service.create(of_flows("all", "g/late"))
    execution = service.create(of_flows("all", "g/late", **{"flow.waitForWay": "true"}))
    assert service.orchestrator.start_accepted() == 0
    assert service.status(execution) == (S.PENDING, "waits for a way: there is no flow g/late")
    service.create(child("late"))
    assert service.orchestrator.start_accepted() == 0, "nobody told it"
    service.tell("late")
    assert service.orchestrator.start_accepted() == 1
    assert list(service.jobs(execution)) == ["g__late__hop"]


def test_execution_fails_if_a_child_has_left_the_catalog(service: Service) -> None:
    service.create(child("a"))
    execution = service.create(of_flows("all", "g/a"))
    service.delete("a")
    service.orchestrator.start_accepted()
    status, message = service.status(execution)
    assert status is S.FAILED
    assert "there is no flow g/a" in message


ROUTED = {SOURCE: "landing", DESTINATIONS: "lake"}


def test_routed_child_keeps_its_way_whoever_runs_it(service: Service) -> None:
    service.describe(one=1)
    for name in ("a", "b"):
        service.create(flow(name, "", NEVER, ROUTED))
        service.create(flow(f"all_{name}", "", NEVER, {CHILDREN: f"g/{name}"}))
    assert service.run("a") == ["g__a__one"]
    assert service.run("all_b") == ["g__b__one"]
    service.describe(one=1, two=0)
    for name in ("a", "all_a"):
        assert [hop.edge for hop in service.explain(name).ways[0].hops] == ["one"], "explained as it will run"
    assert service.run("all_a") == ["g__a__one"], "as in its own execution"
    assert service.run("b") == ["g__b__one"], "as in the execution of the flow of flows"
    service.describe(two=0)
    for name in ("a", "all_a", "b", "all_b"):
        assert "its way is gone" in service.explain(name).reasons[0]
        [told] = service.run(name)
        assert f"its way is gone, and the next one has other jobs (g__{name[-1]}__two)" in told, name


def test_routed_child_that_may_change_edges_does_so_in_all_executions(service: Service) -> None:
    service.describe(one=1)
    service.create(flow("a", "", NEVER, ROUTED | {"flow.mayChangeEdges": "true"}))
    service.create(flow("all", "", NEVER, {CHILDREN: "g/a"}))
    assert service.run("all") == ["g__a__one"]
    service.describe(two=1)
    assert service.run("all") == ["g__a__two"]
    service.describe(one=0, two=1)
    assert service.run("a") == ["g__a__two"], "its newest way is known"


def test_routed_child_without_a_way_lets_the_flow_of_flows_wait(service: Service) -> None:
    service.describe(one=1)
    service.create(flow("a", "", NEVER, ROUTED))
    assert service.run("a") == ["g__a__one"]
    service.describe(two=1)
    execution = service.create(of_flows("all", "g/a", **{"flow.waitForWay": "true"}))
    assert service.orchestrator.start_accepted() == 0
    assert service.status(execution)[1].startswith("waits for a way: child g/a: its way is gone")
    service.describe(one=1, two=1)
    assert service.orchestrator.start_accepted() == 1
    assert list(service.jobs(execution)) == ["g__a__one"]


def test_way_of_an_execution_of_revision_0010_is_kept(service: Service, store: ServiceStore) -> None:
    service.describe(one=1)
    service.create(flow("a", "", NEVER, ROUTED))
    service.create(flow("all", "", NEVER, {CHILDREN: "g/a"}))
    assert service.run("a") == ["g__a__one"]
    with store.write() as transaction:
        assert load_way(transaction, FlowId("g", "a")) is not None
        transaction.execute(ways.delete())
    service.describe(one=1, two=0)
    assert service.run("all") == ["g__a__one"]
