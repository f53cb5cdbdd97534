"""G16: jobs of an executor that is lost move once to another one, and it drops its copies when it is back."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from gobblin_dagster.core.allow import EVERYTHING
from gobblin_dagster.service.catalog.templates import TemplateCatalog
from gobblin_dagster.service.compiler.compilers import CompilerContext, make_compiler
from gobblin_dagster.service.compiler.routed_flow import DESTINATIONS, SOURCE
from gobblin_dagster.service.executors.dispatcher import Dispatcher
from gobblin_dagster.service.executors.store import Inbox, StoreExecutor
from gobblin_dagster.service.manager import FlowManager
from gobblin_dagster.service.model import Dag, ExecutionId, ExecutionStatus, FlowConfig, JobKey, JobReport
from gobblin_dagster.service.orchestrator.dag import FlowProgress, JobProgress, Start, Stop, move
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator
from gobblin_dagster.service.store.event_rows import list_events
from gobblin_dagster.service.store.execution_rows import load_execution
from gobblin_dagster.service.store.job_rows import JobExecution, load_jobs
from gobblin_dagster.service.store.order_rows import take_orders, take_over_jobs
from gobblin_dagster.service.store.state_place_rows import add_state_place, load_state_places
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.topology.catalog import TopologyCatalog

from ..conftest import HOP_TEMPLATE, flow

S = ExecutionStatus
TOPOLOGY = """\
nodes: {landing: {type: files}, lake: {type: lake}, shop: {type: shop}}
executors:
  east: {type: store, capabilities: [{}]}
  west: {type: store, capabilities: [{}]}
edges:
  in: {source: landing, destination: lake, template: "FS:///hop.template", executors: [east, west]}
  out: {source: lake, destination: shop, template: "FS:///hop.template", executors: [east]}
"""


class Service:
    """Two executors whose workers poll one database; a job goes to `east` first."""

    def __init__(self, root: Path, store: ServiceStore) -> None:
        (root / "hop.template").write_text(HOP_TEMPLATE)
        (root / "topology").mkdir()
        (root / "topology" / "all.yaml").write_text(TOPOLOGY)
        self.store = store
        self.topology = TopologyCatalog(root / "topology")
        context = CompilerContext(TemplateCatalog(root), self.topology, ["embedded"], EVERYTHING)
        self._compiler = make_compiler("auto", context)
        self.orchestrator = Orchestrator(store, self._compile)
        self.dispatchers = {
            name: Dispatcher(store, StoreExecutor(name, store), self.orchestrator.report) for name in ("east", "west")
        }
        self.inboxes = {name: Inbox(name, store, f"{name}-1") for name in self.dispatchers}

    def _compile(self, config: FlowConfig, former: Collection[str] = ()) -> Dag:
        return self._compiler.compile(config, former)

    def order(self, to: str = "lake") -> ExecutionId:
        """Start a flow, and hand its first job over."""
        manager = FlowManager(self.store, self._compile, self.orchestrator)
        config = flow(templates="", properties={SOURCE: "landing", DESTINATIONS: to})
        with self.store.write() as transaction:
            number = manager.create(transaction, config, "me").execution
        self.orchestrator.start_accepted()
        self.step()
        return ExecutionId(config.id, number)

    def step(self) -> None:
        for dispatcher in self.dispatchers.values():
            dispatcher.step()

    def lose(self, *names: str) -> int:
        """Do what the service's loop does."""
        self.topology.avoid(frozenset(names))
        moved = sum(self.orchestrator.move_jobs(name, names) for name in names)
        self.step()
        return moved

    def begin(self, executor: str) -> list[JobKey]:
        """Let a worker take and begin what there is."""
        inbox = self.inboxes[executor]
        keys = [one.key for one in inbox.take(10) if not one.is_stop]
        return [key for key in keys if inbox.begin(key, "run") is not None]

    def end(self, executor: str, key: JobKey, status: ExecutionStatus = S.COMPLETE) -> None:
        self.inboxes[executor].tell(JobReport(key.execution_id, key.job, key.generation, key.attempt, status, "done"))
        self.step()

    def jobs(self, execution: ExecutionId) -> list[JobExecution]:
        with self.store.read() as transaction:
            return load_jobs(transaction, execution)


@pytest.fixture
def service(tmp_path: Path, store: ServiceStore) -> Service:
    return Service(tmp_path, store)


@pytest.mark.parametrize("has_begun", [False, True])
def test_job_of_a_lost_executor_moves_once_and_its_copy_is_dropped(service: Service, has_begun: bool) -> None:
    execution = service.order()
    [job] = service.jobs(execution)
    assert job.job.executor == "east"
    [old] = service.begin("east") if has_begun else [JobKey.of(execution, job.job.name, 1, 1)]
    assert [service.lose("east") for _ in range(3)] == [1, 0, 0]
    [job] = service.jobs(execution)
    assert (job.job.executor, job.generation, job.attempt) == ("west", 2, 1)
    [new] = service.begin("west")
    assert service.begin("east") == [], "it is back, and its copy is gone"
    if has_begun:
        assert [one.is_stop for one in service.inboxes["east"].take(10)] == [True], "it is told to stop"
        service.end("east", old)
        assert service.jobs(execution)[0].status is not S.COMPLETE, "what it says counts no more"
    service.end("west", new)
    [job] = service.jobs(execution)
    assert (job.status, job.message) == (S.COMPLETE, "done")
    with service.store.read() as transaction:
        told = [one.message for one in list_events(transaction, execution)]
        found = load_execution(transaction, execution)
    assert told.count("executor east is lost; the job goes to west") == 1
    assert found is not None
    assert found.status is S.COMPLETE


def test_job_that_no_other_executor_can_run_waits_for_its_own(service: Service) -> None:
    execution = service.order(to="shop")
    assert service.lose("east", "west") == 0, "none is there that could take it"
    assert service.lose("east") == 1
    [key] = service.begin("west")
    service.end("west", key)
    assert [(one.job.executor, one.status) for one in service.jobs(execution)] == [
        ("west", S.COMPLETE),
        ("east", S.PENDING),
    ]
    assert service.lose("east") == 0
    assert len(service.begin("east")) == 1


def test_job_does_not_move_to_an_executor_that_is_lost_too(service: Service) -> None:
    execution = service.order()
    assert service.lose("east") == 1
    assert service.lose("east", "west") == 0
    assert service.jobs(execution)[0].job.executor == "west"


def test_job_that_moved_is_taken_over_while_the_order_to_the_lost_executor_waits(service: Service) -> None:
    service.dispatchers.clear()
    execution = service.order()
    assert service.lose("east") == 1
    with service.store.write() as transaction:
        assert len(take_orders(transaction, "west", "node that ends", 10)) == 1
        taken = take_over_jobs(transaction, "west", "node", ["node"])
    assert [(one, job.generation) for one, job in taken] == [(execution, 2)]


@pytest.mark.parametrize("whole", [True, False])
def test_killed_job_of_a_lost_executor_is_over_and_its_copy_is_told_to_end(service: Service, whole: bool) -> None:
    execution = service.order(to="shop")
    [key] = service.begin("east")
    if whole:
        service.orchestrator.kill(execution)
    else:
        service.orchestrator.kill_job(execution, key.job)
    service.step()
    assert service.jobs(execution)[0].status is S.ORCHESTRATED, "it is asked to end, and may still say how"
    assert service.lose("east") == 0
    assert [(one.status, one.message) for one in service.jobs(execution)] == [
        (S.CANCELLED, "killed while executor east is lost; it is told to end its copy when it is back"),
        (
            S.CANCELLED,
            "not started: the flow was killed" if whole else f"not started: job {key.job} before it is CANCELLED",
        ),
    ]
    with service.store.read() as transaction:
        found = load_execution(transaction, execution)
    assert found is not None
    assert (found.is_over, found.status) == (True, S.CANCELLED)
    assert [one.is_stop for one in service.inboxes["east"].take(10)] == [True]
    service.end("east", key)
    assert service.jobs(execution)[0].status is S.CANCELLED, "what it says when it is back counts no more"


def test_job_does_not_move_to_an_executor_that_keeps_watermarks_elsewhere(service: Service) -> None:
    execution = service.order()
    with service.store.write() as transaction:
        for name in ("east", "west"):
            add_state_place(transaction, name, f"sqlite:{name}")
    with service.store.read() as transaction:
        service.topology.avoid(frozenset(["east"]), load_state_places(transaction))
    assert service.orchestrator.move_jobs("east") == 0
    assert service.jobs(execution)[0].job.executor == "east"


def test_executor_is_lost_once_jobs_would_wait_for_too_long(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gobblin_dagster.service.executors.dispatcher.LOST_S", 0)
    dispatcher = service.dispatchers["east"]
    found = [dispatcher.is_lost]  # nobody has asked it yet
    dispatcher._turn()
    found.append(dispatcher.is_lost)
    monkeypatch.setattr("gobblin_dagster.service.executors.dispatcher.LOST_S", 3600)
    found.append(dispatcher.is_lost)
    assert found == [False, True, False]


def test_moving_is_for_jobs_that_an_executor_has() -> None:
    def moved(status: ExecutionStatus, *, is_killed: bool = False) -> bool:
        progress = FlowProgress({"a": JobProgress(status, 1, 2, is_killed)})
        step = move(progress, "a")
        assert step.actions in ((), (Stop("a", 1, 2), Start("a", 2, 1)))
        return step.progress.jobs["a"] == JobProgress(S.PENDING, 2, 1)

    assert [one for one in S if moved(one)] == [S.PENDING, S.PENDING_RETRY, S.ORCHESTRATED, S.RUNNING]
    assert not moved(S.RUNNING, is_killed=True)
    assert move(FlowProgress({}), "a").actions == ()
