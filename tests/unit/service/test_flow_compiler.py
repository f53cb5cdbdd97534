"""Flows of flows in the service: compiled from the catalog as it is, waiting for a child, run as one execution."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobblin_dagster.core.allow import EVERYTHING
from gobblin_dagster.core.errors import FlowCompileError
from gobblin_dagster.service.catalog.templates import TemplateCatalog
from gobblin_dagster.service.compiler.children import AFTER, CHILDREN
from gobblin_dagster.service.compiler.compilers import CompilerContext, make_compiler
from gobblin_dagster.service.cron import NEVER
from gobblin_dagster.service.flow_compiler import ExecutorCompiler
from gobblin_dagster.service.manager import FlowManager
from gobblin_dagster.service.model import ExecutionId, ExecutionStatus, FlowConfig, FlowId, JobReport
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator
from gobblin_dagster.service.store.execution_rows import load_execution, load_jobs
from gobblin_dagster.service.store.flow_rows import newest_version
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.topology.catalog import TopologyCatalog

from .conftest import HOP_TEMPLATE, flow

S = ExecutionStatus


class Service:
    """A catalog with its compiler and orchestrator."""

    def __init__(self, root: Path, store: ServiceStore) -> None:
        (root / "hop.template").write_text(HOP_TEMPLATE)
        self._store = store
        templates, topology = TemplateCatalog(root), TopologyCatalog(root / "topology")
        compiler = ExecutorCompiler(
            lambda names: make_compiler("auto", CompilerContext(templates, topology, names, EVERYTHING)), store
        )
        self.orchestrator = Orchestrator(store, compiler.compile)
        self.manager = FlowManager(store, compiler.compile, self.orchestrator)

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
