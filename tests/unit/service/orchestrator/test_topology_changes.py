"""Flows when the topology changes: those without a way wait and are compiled again, scheduled ones take another way."""

from __future__ import annotations

import os
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path

import pytest

from gobblin_dagster.core.allow import EVERYTHING
from gobblin_dagster.core.errors import FlowCompileError
from gobblin_dagster.service.catalog.templates import TemplateCatalog
from gobblin_dagster.service.compiler.compilers import CompilerContext, make_compiler
from gobblin_dagster.service.compiler.routed_flow import DESTINATIONS, SOURCE
from gobblin_dagster.service.manager import FlowManager
from gobblin_dagster.service.model import Dag, ExecutionId, ExecutionStatus, FlowConfig, FlowId, JobReport
from gobblin_dagster.service.orchestrator.history import ExecutionHistory
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator
from gobblin_dagster.service.store.event_rows import list_events
from gobblin_dagster.service.store.execution_rows import Execution, list_executions, load_execution
from gobblin_dagster.service.store.job_rows import load_jobs
from gobblin_dagster.service.store.order_rows import list_orders
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.topology.capabilities import Announced, EdgeNeeds
from gobblin_dagster.service.topology.catalog import TopologyCatalog

from ..conftest import flow

S = ExecutionStatus
FLOW = FlowId("g", "n")
TEMPLATE = """\
template: hop
job:
  source: {type: files, path: "in/{dataset}.csv", format: {type: csv}}
  extract: {namespace: test, table: orders}
  output: {path: lake}
"""
NODES = """\
nodes: {landing: {type: files}, lake: {type: lake}}
executors: {here: {capabilities: [{}]}}
edges:
"""
EDGE = '  {0}: {{source: landing, destination: lake, template: "FS:///hop.template", cost: {1}}}\n'


class Service:
    """Topology files, compiler and orchestrator on one store."""

    def __init__(self, root: Path, store: ServiceStore) -> None:
        (root / "hop.template").write_text(TEMPLATE)
        (root / "topology").mkdir(exist_ok=True)
        self._file = root / "topology" / "all.yaml"
        self._seconds = 0
        self.store = store
        templates = TemplateCatalog(root)
        self.topology = TopologyCatalog(root / "topology", needs=EdgeNeeds(templates))
        context = CompilerContext(templates, self.topology, ["embedded"], EVERYTHING)
        self._compiler = make_compiler("auto", context)
        self.compiled: list[str] = []
        self.orchestrator = Orchestrator(store, self._compile)
        self.topology.add_listener(self.orchestrator)
        self.manager = FlowManager(store, self._compile, self.orchestrator)

    def _compile(self, config: FlowConfig, former: Collection[str] = ()) -> Dag:
        self.compiled.append(config.id.name)
        return self._compiler.compile(config, former)

    def describe(self, **costs: int) -> None:
        """Write the topology with these edges, and let the service see it."""
        self._file.write_text(NODES + ("".join(EDGE.format(*edge) for edge in costs.items()) or "  {}\n"))
        self._seconds += 2
        status = self._file.stat()
        os.utime(self._file, (status.st_atime + self._seconds, status.st_mtime + self._seconds))
        self.topology.refresh()

    def create(self, config: FlowConfig) -> int:
        with self.store.write() as transaction:
            return self.manager.create(transaction, config, "me").execution

    def run_now(self) -> int:
        with self.store.write() as transaction:
            return self.manager.run_now(transaction, FLOW)

    def execution(self, number: int) -> Execution:
        with self.store.read() as transaction:
            found = load_execution(transaction, ExecutionId(FLOW, number))
        assert found is not None
        return found

    def jobs(self, number: int) -> list[str]:
        with self.store.read() as transaction:
            return [one.job.name for one in load_jobs(transaction, ExecutionId(FLOW, number))]


@pytest.fixture
def service(tmp_path: Path, store: ServiceStore) -> Service:
    return Service(tmp_path, store)


def routed(name: str = "n", cron: str | None = None, **properties: str) -> FlowConfig:
    return flow(name, "", cron, {SOURCE: "landing", DESTINATIONS: "lake", **properties})


WAITS = {"flow.waitForWay": "true"}


def test_flow_without_a_way_waits_and_runs_once_as_soon_as_there_is_one(service: Service) -> None:
    number = service.create(routed(**WAITS))
    assert service.orchestrator.start_accepted() == 0
    waiting = service.execution(number)
    assert (waiting.status, waiting.is_over) == (S.PENDING, False)
    assert waiting.message.startswith("waits for a way: the project describes no topology")
    service.describe()
    service.orchestrator.start_accepted()
    told = "waits for a way: no way from 'landing' to 'lake': from the source the data reach no other node"
    assert service.execution(number).message.startswith(told)
    service.describe(direct=1)
    assert service.orchestrator.start_accepted() == 1
    assert service.jobs(number) == ["g__n__direct"]
    service.describe(direct=1, other=0)
    assert service.orchestrator.start_accepted() == 0
    with service.store.read() as transaction:
        assert len(list_orders(transaction, "embedded")) == 1
        events = [one.status for one in list_events(transaction, ExecutionId(FLOW, number))]
    assert events == [S.PENDING, S.PENDING, S.PENDING, S.COMPILED, S.RUNNING]
    done = JobReport(ExecutionId(FLOW, number), "g__n__direct", 1, 1, S.COMPLETE, processed_count=2)
    service.orchestrator.report(done)
    assert service.execution(number).message == "2 rows in 1 job", "that it waited is no reason of its end"


def test_flow_waits_until_a_worker_announces_what_its_edge_needs(service: Service) -> None:
    bare, whole = (Announced(frozenset(one), frozenset(), None) for one in ((), ("source.files",)))
    assert not service.topology.note_workers({"here": [bare]})
    service.describe(direct=1)
    number = service.create(routed(**WAITS))
    assert service.orchestrator.start_accepted() == 0
    told = "edge 'direct' (landing -> lake): no worker of here has source files"
    assert told in service.execution(number).message
    assert not service.topology.note_workers({"here": [bare, bare]})
    assert service.orchestrator.start_accepted() == 0
    assert len(service.compiled) == 2, "nothing has changed for it"
    assert service.topology.note_workers({"here": [bare, whole]})
    assert service.orchestrator.start_accepted() == 1
    assert service.jobs(number) == ["g__n__direct"]
    assert service.topology.note_workers({"here": [bare]}), "the other one has ended"
    assert service.topology.note_workers({}), "so has this one: nothing is known, and jobs wait"
    assert service.topology.graph.edge("direct").executor == "here"


def test_only_flows_that_wait_are_compiled_again_and_only_after_a_change(service: Service) -> None:
    service.describe()
    service.create(routed(**WAITS))
    service.compiled.clear()
    for _ in range(3):
        service.orchestrator.start_accepted()
    assert service.compiled == ["n"]
    service.describe(direct=1)
    service.create(routed("other", cron="0 0 0 ? 1 1 2050"))
    service.compiled.clear()
    service.orchestrator.start_accepted()
    assert service.compiled == ["n"]


def test_another_process_finds_the_flow_that_waits(service: Service, tmp_path: Path) -> None:
    number = service.create(routed(**WAITS))
    service.orchestrator.start_accepted()
    restarted = Service(tmp_path, service.store)
    restarted.describe(direct=1)
    assert restarted.orchestrator.start_accepted() == 1
    assert restarted.execution(number).status is S.RUNNING


def test_flow_without_a_way_is_refused_unless_it_waits(service: Service) -> None:
    with pytest.raises(FlowCompileError, match="describes no topology"):
        service.create(routed())
    service.describe(direct=1)
    with pytest.raises(FlowCompileError, match="no template declares the parameter 'typo'"):
        service.create(routed(typo="x", **WAITS))


def test_flow_that_waits_can_be_killed(service: Service) -> None:
    number = service.create(routed(**WAITS))
    service.orchestrator.start_accepted()
    service.orchestrator.kill(ExecutionId(FLOW, number))
    assert service.execution(number).status is S.CANCELLED
    service.describe(direct=1)
    assert service.orchestrator.start_accepted() == 0


SCHEDULED = "0 0 0 ? 1 1 2050"


def runs_with(service: Service, **costs: int) -> int:
    """Run the flow once with these edges, and return the execution."""
    service.describe(**costs)
    number = service.run_now()
    service.orchestrator.start_accepted()
    for job in service.jobs(number):
        service.orchestrator.report(JobReport(ExecutionId(FLOW, number), job, 1, 1, S.COMPLETE))
    return number


def test_scheduled_flow_takes_another_way_when_its_edge_goes_away_if_it_says_so(service: Service) -> None:
    service.describe(first=1, second=2)
    service.create(routed(cron=SCHEDULED, **{"flow.mayChangeEdges": "true"}))
    numbers = [runs_with(service, **costs) for costs in ({"first": 1, "second": 2}, {"second": 2}, {})]
    assert list(map(service.jobs, numbers)) == [["g__n__first"], ["g__n__second"], []]
    assert service.execution(numbers[-1]).status is S.FAILED
    assert "no way from 'landing' to 'lake'" in service.execution(numbers[-1]).message


def test_flow_whose_edge_goes_away_publishes_nothing_twice_over_another_one(service: Service) -> None:
    service.describe(first=1, second=2)
    service.create(routed(cron=SCHEDULED))
    runs_with(service, first=1, second=2)
    refused = runs_with(service, second=2)
    assert (service.jobs(refused), service.execution(refused).status) == ([], S.FAILED)
    assert "its way is gone, and the next one has other jobs (g__n__second)" in service.execution(refused).message
    assert "flow.mayChangeEdges=true" in service.execution(refused).message
    assert service.jobs(runs_with(service, first=9, second=2)) == ["g__n__first"], "the way is back"


def test_cheaper_edge_does_not_lure_flows_from_their_way(service: Service) -> None:
    service.describe(first=5)
    service.create(routed(cron=SCHEDULED, **{"flow.mayChangeEdges": "true"}))
    assert service.jobs(runs_with(service, first=5)) == ["g__n__first"]
    assert service.jobs(runs_with(service, first=5, cheap=1)) == ["g__n__first"]


def test_flow_that_was_changed_to_lead_elsewhere_takes_its_new_way(service: Service) -> None:
    service.describe(first=1, second=2)
    service.create(routed(cron=SCHEDULED))
    runs_with(service, first=1, second=2)
    with service.store.write() as transaction:
        changed = routed(cron=SCHEDULED, **{"flow.excludedEdges": "first"})
        service.manager.update(transaction, changed, "me")
    assert service.jobs(runs_with(service, first=1, second=2)) == ["g__n__second"]


def test_flow_whose_way_is_gone_waits_for_it_if_it_says_so(service: Service) -> None:
    service.describe(first=1)
    service.create(routed(cron=SCHEDULED, **WAITS))
    runs_with(service, first=1)
    number = runs_with(service, second=1)
    assert service.execution(number).message.startswith("waits for a way: its way is gone")
    service.describe(first=1)
    service.orchestrator.start_accepted()
    assert service.jobs(number) == ["g__n__first"]


def test_flow_knows_its_way_however_many_executions_without_jobs_came_after(service: Service) -> None:
    service.describe(first=1)
    service.create(routed(cron=SCHEDULED))
    ran = runs_with(service, first=1)
    for _ in range(3):
        runs_with(service, second=1)
    history = ExecutionHistory(service.store, 1, timedelta(days=90))
    while history.prune():
        pass
    with service.store.read() as transaction:
        kept = [one.id.number for one in list_executions(transaction, FLOW, 10)]
    assert (len(kept), kept[-1]) == (2, ran)
    refused = runs_with(service, second=1)
    assert (service.jobs(refused), service.execution(refused).status) == ([], S.FAILED), "rows would come again"
