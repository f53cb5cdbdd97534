"""Workers of an executor: a flow of the topology runs in another project, which says what its jobs may use."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gobblin_dagster import __version__
from gobblin_dagster.core.allow import AllowLists
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.utils.cut_off import cut_off_when_stopped, was_cut_off
from gobblin_dagster.engine.project import Project
from gobblin_dagster.service import server
from gobblin_dagster.service.executors import dispatcher
from gobblin_dagster.service.executors.store import StoreExecutor
from gobblin_dagster.service.known_jobs import with_flows
from gobblin_dagster.service.model import ExecutionId, ExecutionStatus, FlowConfig, FlowId, Schedule
from gobblin_dagster.service.server import CoreServices
from gobblin_dagster.service.store.execution_rows import load_execution
from gobblin_dagster.service.store.job_rows import JobExecution, load_jobs
from gobblin_dagster.service.store.node_rows import Node, load_nodes, save_node
from gobblin_dagster.service.store.state_place_rows import add_state_place
from gobblin_dagster.service.store.worker_rows import list_jobs
from gobblin_dagster.service.topology.capabilities import announce
from gobblin_dagster.service.worker_node import WorkerNode
from gobblin_dagster.spec.load import load_project
from tests.services.certificates import Authority
from tests.services.flow_project import NEVER, open_core
from tests.services.postgres import named_url
from tests.services.worker_channel import InlineChannel

TEMPLATE = """
template: rows
parameters:
  destination.folder: {type: path}
job:
  source:
    type: gobblin_dagster.testing.rows_source:RowsSource
    datasets: {a: {rows: 5}}
  extract: {namespace: test, table: rows}
  output: {path: "${destination.folder}"}
"""
TOPOLOGY = """
nodes:
  here: {type: files}
  lake: {type: lake, properties: {folder: lake}}
  other: {type: lake, properties: {folder: other}}
executors:
  east: {type: store, state: east, capabilities: [{source: files}]}
edges:
  to-lake: {source: here, destination: lake, template: FS:///rows.template}
  to-other: {source: here, destination: other, template: FS:///rows.template}
"""


@pytest.fixture
def core(tmp_path: Path) -> Iterator[CoreServices]:
    root = tmp_path / "service"
    for folder in ("templates", "topology"):
        (root / folder).mkdir(parents=True)
    (root / "gobblin.yaml").write_text("project: service\nservice: {port: 0}\n")
    (root / "templates" / "rows.template").write_text(TEMPLATE)
    (root / "topology" / "all.yaml").write_text(TOPOLOGY)
    core = open_core(root)
    core.start()
    yield core
    core.stop(at_once=True)


@contextmanager
def worker(core: CoreServices, root: Path) -> Iterator[WorkerNode]:
    """Run a worker in a project of its own, which allows one folder."""
    root.mkdir(exist_ok=True)
    settings = f"project: east\nworker: {{store: '{named_url(core.store.url)}'}}\nallow: {{paths: [lake]}}\n"
    (root / "gobblin.yaml").write_text(settings)
    spec = load_project(root)
    node = WorkerNode("east", root, spec, [], channel=InlineChannel(Project(root, spec)))
    node.start()
    try:
        yield node
    finally:
        node.stop()


def create(core: CoreServices, destination: str, name: str = "", schedule: Schedule | None = None) -> ExecutionId:
    ends = {"gobblin.flow.sourceIdentifier": "here", "gobblin.flow.destinationIdentifier": destination}
    flow = FlowId("g", name or destination)
    config = FlowConfig(flow, "", ends, schedule)
    with core.store.write() as transaction:
        return ExecutionId(flow, core.manager.create(transaction, config, "tester").execution)


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_over(core: CoreServices, execution: ExecutionId) -> bool:
    with core.store.read() as transaction:
        found = load_execution(transaction, execution)
    return found is not None and found.is_over


def test_worker_runs_what_its_own_project_allows_and_refuses_the_rest(core: CoreServices, tmp_path: Path) -> None:
    allowed, refused = create(core, "lake"), create(core, "other")
    wait(lambda: "east" in core.remote.dispatchers)
    assert core.remote.dispatchers["east"].executor.health() == "no worker of executor east runs"
    with worker(core, tmp_path / "east") as node:
        wait(lambda: is_over(core, allowed) and is_over(core, refused))
        with core.store.read() as transaction:
            [good], [bad] = load_jobs(transaction, allowed), load_jobs(transaction, refused)
            [announced] = load_nodes(transaction, "east")
            assert (announced.name, announced.program) == (node.name, __version__)
            assert (announced.about["roots"], announced.about["jobs_at_once"]) == (["lake"], 4)
            assert "source.files" in announced.about["constructs"]
            assert {one.name for one in load_nodes(transaction)} == {core.node}, "a worker is no node of the service"
        assert core.remote.dispatchers["east"].executor.health() == ""
    assert (good.status, good.processed_count, good.high_watermark) == (ExecutionStatus.COMPLETE, 5, "5")
    assert bad.status is ExecutionStatus.FAILED
    assert "is below none of `allow.paths` of gobblin.yaml" in bad.message
    root = tmp_path / "east"
    with closing(Project(root, load_project(root)).open_store()) as store:
        assert list(store.load_dataset_states(good.job.name)) == ["a"], "the worker's own state store has the watermark"
    with core.store.read() as transaction:
        assert load_nodes(transaction, "east") == [], "it ended"


def test_second_signal_ends_what_waits_for_a_database(
    core: CoreServices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = socket.socketpair()
    answer = threading.Timer(5, theirs.send, [b"x"])
    said: list[bytes] = []

    def stop() -> None:
        threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGTERM]).start()
        said.append(ours.recv(1))

    former = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with ours, theirs, worker(core, tmp_path / "east") as node, monkeypatch.context() as patch:
        cut_off_when_stopped(ours)
        patch.setattr(node, "start", lambda: None)
        patch.setattr(node, "stop", stop)
        answer.start()
        try:
            node.run(lambda: os.kill(os.getpid(), signal.SIGINT))
        finally:
            answer.cancel()
            for number, handler in former.items():
                signal.signal(number, handler)
    assert was_cut_off()
    assert said == [b""], "the connection has ended"


def test_worker_leaves_a_job_that_names_a_module_which_its_project_does_not_allow(
    core: CoreServices, tmp_path: Path
) -> None:
    settings = f"project: east\nworker: {{store: '{named_url(core.store.url)}'}}\nallow: {{modules: []}}\n"
    (tmp_path / "gobblin.yaml").write_text(settings)
    spec = load_project(tmp_path)
    create(core, "lake")
    node = WorkerNode("east", tmp_path, spec, [], channel=InlineChannel(Project(tmp_path, spec)))
    wait(lambda: bool(StoreExecutor("east", core.store).list()))
    node.monitor.step()
    with core.store.read() as transaction:
        assert [job.holder for job in list_jobs(transaction, "east")] == [""]
    node.monitor.stop()
    node.store.close()


def test_worker_behind_https_knows_flows_beside_each_other_from_renamed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path / "tls")
    (certificate, key), (own, own_key) = authority.signed("worker"), authority.signed("service")
    far, root = tmp_path / "far", tmp_path / "service"
    for folder in (far, root / "templates", root / "topology"):
        folder.mkdir(parents=True)
    inlet = f"{{type: rest, host: 127.0.0.1, port: 0, certificate: {certificate}, key: {key}, ca: {authority.ca}}}"
    (far / "gobblin.yaml").write_text(f"project: east\nworker: {{inlet: {inlet}}}\n")
    spec = load_project(far)
    node = WorkerNode("east", far, spec, [], channel=InlineChannel(with_flows(Project(far, spec))))
    node.start()
    (root / "gobblin.yaml").write_text("project: service\nservice: {port: 0}\n")
    (root / "templates" / "rows.template").write_text(TEMPLATE)
    address = f"{{url: '{node.inlet}', certificate: {own}, key: {own_key}, ca: {authority.ca}}}"
    topology = TOPOLOGY.replace("type: store, state: east", f"type: rest, rest: {address}")
    (root / "topology" / "all.yaml").write_text(topology)
    for module in (dispatcher, server):
        monkeypatch.setattr(module, "TICK_S", 0.02)
    core = open_core(root)
    core.start()

    def run(flow: str) -> JobExecution:
        execution = create(core, "lake", flow)
        wait(lambda: is_over(core, execution))
        with core.store.read() as transaction:
            [job] = load_jobs(transaction, execution)
        return job

    try:
        former = run("former")
        refused = run("later")  # a flow that ran once is not there any more
        create(core, "lake", "former", Schedule(NEVER))
        twin = run("later")
        (root / "templates" / "rows.template").write_text(TEMPLATE.replace("rows: 5", "rows: 6"))
        beside = run("later")
    finally:
        core.stop(at_once=True)
        node.stop()
    assert (former.processed_count, refused.status) == (5, ExecutionStatus.FAILED)
    says = f"job {former.job.name!r}, which no flow had here when this job was ordered, published this dataset up to 5"
    assert says in refused.message
    assert twin.status is ExecutionStatus.FAILED
    assert f"job {former.job.name!r} of another flow, which has the same source and the same steps" in twin.message
    assert (beside.status, beside.processed_count) == (ExecutionStatus.COMPLETE, 6), "it publishes other rows"


@pytest.mark.parametrize(
    ("inlet", "problem"),
    [
        ("kafka", "`worker.inlet` in gobblin.yaml has faults: brokers: Field required; orders: Field required"),
        ("{type: kafka, brokers: b, orders: o, reports: r, topik: t}", "topik: Extra inputs are not permitted"),
        ("rabbit", "`worker.inlet` in gobblin.yaml is 'rabbit'"),
        ("{type: store, brokers: b}", "is 'store' with brokers"),
    ],
)
def test_inlet_with_faults_is_refused(inlet: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "gobblin.yaml").write_text(f"project: east\nworker: {{inlet: {inlet}}}\n")
    with pytest.raises(UsageError, match=re.escape(problem)):
        WorkerNode("east", tmp_path, load_project(tmp_path), [])


def test_first_execution_after_a_start_knows_where_executors_keep_watermarks_and_what_they_lack(
    tmp_path: Path,
) -> None:
    for folder in ("templates", "topology"):
        (tmp_path / folder).mkdir()
    (tmp_path / "gobblin.yaml").write_text("project: service\nservice: {port: 0}\n")
    (tmp_path / "templates" / "rows.template").write_text(TEMPLATE)
    off_and_on = "{type: store, enabled: false, capabilities: [{}]}\n  here: {capabilities: [{}]}"
    off_and_on += "\n  far: {type: store, state: far, capabilities: [{}]}"
    topology = TOPOLOGY.replace("{type: store, state: east, capabilities: [{source: files}]}", off_and_on)
    for edge, executors in (("to-lake", "[east, here]"), ("to-other", "[far]")):
        topology = topology.replace(f"{edge}: {{", f"{edge}: {{executors: {executors}, ")
    (tmp_path / "topology" / "all.yaml").write_text(topology)
    core = open_core(tmp_path)
    execution, other = create(core, "lake"), create(core, "other")
    with core.store.write() as transaction:
        add_state_place(transaction, "east", "sqlite:elsewhere")
        now = core.store.now(transaction)
        about = announce(AllowLists(modules=("shop",)))
        save_node(transaction, Node("w", LeaseOwner.current("w"), "", "1", now, now, now, "far", about))
    core.start()
    wait(lambda: is_over(core, execution) and is_over(core, other))
    with core.store.read() as transaction:
        found, refused = load_execution(transaction, execution), load_execution(transaction, other)
    core.stop(at_once=True)
    assert found is not None
    assert "east is not enabled, and here keeps watermarks in another state store" in found.message
    assert refused is not None
    assert "no worker of far has module gobblin_dagster.testing.rows_source" in refused.message
