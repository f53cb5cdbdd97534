"""Kill service, workers and broker at random moments while flows run on three executors; then count rows.

    python -m tests.services.executor_storm --kills 50 --seed 1

Each flow goes from one node to three destinations: a first hop on the executor `embedded`, then one hop each on workers
that poll the service's database, on workers behind Kafka, and on a worker that is called over HTTPS. Jobs run on the
inline runner: the subject is how orders and reports travel, and that each row is published once; real kills of Spark
are tested elsewhere.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import mkdtemp

import pyarrow.parquet as pq

from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.database.engine import parse_url
from gobblin_dagster.engine.project import Project
from gobblin_dagster.service.manager import FlowManager
from gobblin_dagster.service.model import Dag, ExecutionStatus, FlowConfig, FlowId, Schedule
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator
from gobblin_dagster.service.server import CoreServices
from gobblin_dagster.service.store.execution_rows import list_executions, load_jobs
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.worker_node import WorkerNode
from gobblin_dagster.spec.load import load_project
from tests.services.certificates import Authority
from tests.services.kafka import KafkaBroker, jars, running_kafka

ROWS, DATASETS = 3000, 3
WORKERS = ("east", "west", "south")
NEVER = "0 0 0 ? 1 1 2050"
TEMPLATE = """
template: rows
parameters: {destination.folder: {type: path}}
job:
  source:
    type: gobblin_dagster.testing.rows_source:RowsSource
    datasets: {%s}
  extract: {namespace: test, table: rows}
  output: {path: "${destination.folder}"}
"""
TOPOLOGY = """
nodes:
  files: {{type: files}}
  lake: {{type: lake, properties: {{folder: lake}}}}
  shop: {{type: database, properties: {{folder: shop}}}}
  copy: {{type: copy, properties: {{folder: copy}}}}
  cold: {{type: cold, properties: {{folder: cold}}}}
executors:
  here: {{capabilities: [{{source: files}}]}}
  east: {{type: store, state: east, capabilities: [{{destination: database}}]}}
  west:
    type: kafka
    state: west
    kafka: {{brokers: "{brokers}", orders: orders, reports: reports, timeout_s: 5}}
    capabilities: [{{destination: copy}}]
  south:
    type: rest
    state: south
    rest: {{url: "https://127.0.0.1:{port}", {service}}}
    capabilities: [{{destination: cold}}]
edges:
  in: {{source: files, destination: lake, template: FS:///rows.template, executors: [here]}}
  out: {{source: lake, destination: shop, template: FS:///rows.template, executors: [east]}}
  over: {{source: lake, destination: copy, template: FS:///rows.template, executors: [west]}}
  far: {{source: lake, destination: cold, template: FS:///rows.template, executors: [south]}}
"""


class Storm:
    """The processes, and their projects below one folder."""

    def __init__(self, folder: Path, broker: KafkaBroker) -> None:
        self._folder = folder
        self._broker = broker
        self.url = f"sqlite:///{folder}/service/.gobblin/service.db"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("service", *WORKERS):
            (folder / name).mkdir()
        for part in ("templates", "topology", ".gobblin"):
            (folder / "service" / part).mkdir()
        authority = Authority(folder / "authority")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        datasets = ", ".join(f"d{one}: {{rows: {ROWS}, unit_rows: 500}}" for one in range(DATASETS))
        (folder / "service" / "templates" / "rows.template").write_text(TEMPLATE % datasets)
        (folder / "service" / "topology" / "all.yaml").write_text(
            TOPOLOGY.format(brokers=broker.address, port=port, service=_files(authority, "service"))
        )
        (folder / "service" / "gobblin.yaml").write_text("project: service\nservice: {port: 0}\nlease_ttl_s: 5\n")
        inlets = {
            "east": f"store: '{self.url}'",
            "west": f"inlet: {{type: kafka, brokers: '{broker.address}', orders: orders, reports: reports}}",
            "south": f"inlet: {{type: rest, port: {port}, {_files(authority, 'south')}}}",
        }
        for name, inlet in inlets.items():
            (folder / name / "gobblin.yaml").write_text(f"project: {name}\nlease_ttl_s: 5\nworker: {{{inlet}}}\n")

    @property
    def victims(self) -> list[str]:
        """What can be killed."""
        return ["service", "east-1", "east-2", "west-1", "west-2", "south", "broker"]

    def start(self, name: str) -> None:
        """Start a process."""
        if name == "broker":
            self._broker.start()
            return
        command = [sys.executable, "-m", "tests.services.executor_storm", "--process", name.partition("-")[0]]
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [*command, "--folder", str(self._folder)], stdout=log, stderr=log, start_new_session=True
            )

    def kill(self, name: str) -> None:
        """Kill a process; its child ends by itself."""
        if name == "broker":
            self._broker.stop(signal.SIGKILL)
            return
        self._processes[name].kill()
        self._processes[name].wait()

    def end(self) -> None:
        """End all processes."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.wait(60)


def _files(authority: Authority, name: str) -> str:
    certificate, key = authority.signed(name)
    return f"ca: '{authority.ca}', certificate: '{certificate}', key: '{key}'"


def run_process(kind: str, folder: Path) -> int:
    """Be one of the processes."""
    root = folder / kind
    spec = load_project(root)
    child = [sys.executable, "-m", "tests.services.inline_worker", str(root)]
    if kind == "service":
        return CoreServices(root, spec.service, child, state=spec.state).run(lambda _: None)
    return WorkerNode(kind, root, spec, child).run(lambda: None)


def main() -> int:
    """Run the storm, print its figures; 0 if every row is there once and every job complete."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--process")
    parser.add_argument("--folder", type=Path, default=None)
    arguments = parser.parse_args()
    if arguments.process:
        return run_process(arguments.process, arguments.folder)
    libs = jars()
    if libs is None:
        sys.stderr.write("Kafka's jars cannot be had here.\n")
        return 1
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    chance = random.Random(arguments.seed)
    folder = Path(mkdtemp(prefix="gobblin-storm-"))
    begun = time.monotonic()
    with ExitStack() as services:
        broker = services.enter_context(running_kafka(libs))
        broker.new_topic("orders", 2)
        broker.new_topic("reports", 2)
        storm = Storm(folder, broker)
        services.callback(storm.end)
        store = ServiceStore(parse_url(storm.url), SystemClock())
        killed: Counter[str] = Counter()
        for name in storm.victims[:-1]:
            storm.start(name)
        flows: list[FlowId] = []
        while sum(killed.values()) < arguments.kills:
            flows.append(_create(store, len(flows)))
            time.sleep(chance.uniform(0.2, 4))
            victim = chance.choice(storm.victims)
            storm.kill(victim)
            killed[victim] += 1
            time.sleep(chance.uniform(0, 2))
            storm.start(victim)
            sys.stderr.write(f"{sum(killed.values())} kills, last {victim}\n")
        over = _wait(store, flows, 600)
        problems = _problems(store, flows, folder)
        store.close()
    told = (
        f"seed {arguments.seed}: {sum(killed.values())} kills ({dict(sorted(killed.items()))}),",
        f"{len(flows)} flows, {over} of them over, {4 * len(flows)} jobs, {time.monotonic() - begun:.0f} s;",
        f"{4 * len(flows) * ROWS * DATASETS:,} rows expected once each; problems: {problems or 'none'}",
        f"logs and data: {folder}",
    )
    sys.stdout.write("\n".join(told) + "\n")
    return 1 if problems else 0


def _create(store: ServiceStore, number: int) -> FlowId:
    """Store a flow of a schedule that fires once, now; the service's own scheduler finds it."""

    def compiled(config: FlowConfig, former: object = ()) -> Dag:
        return Dag(())

    flow = FlowId("storm", f"f{number}")
    ends = {"gobblin.flow.sourceIdentifier": "files", "gobblin.flow.destinationIdentifier": "shop,copy,cold"}
    manager = FlowManager(store, compiled, Orchestrator(store, compiled))
    with store.write() as transaction:
        manager.create(transaction, FlowConfig(flow, "", ends, Schedule(NEVER)), "storm")
        manager.run_now(transaction, flow)
    return flow


def _wait(store: ServiceStore, flows: list[FlowId], timeout_s: float) -> int:
    deadline = time.monotonic() + timeout_s
    while True:
        with store.read() as transaction:
            over = sum(one.is_over for flow in flows for one in list_executions(transaction, flow))
        if over == len(flows) or time.monotonic() > deadline:
            return over
        time.sleep(1)


def _problems(store: ServiceStore, flows: list[FlowId], folder: Path) -> list[str]:
    """Return what is wrong: executions that are not complete, rows that are missing or there twice."""
    found = []
    where = {"in": "service", "out": "east", "over": "west", "far": "south"}
    expected = list(range(ROWS))
    for flow in flows:
        with store.read() as transaction:
            [execution] = list_executions(transaction, flow)
            jobs = load_jobs(transaction, execution.id)
        if execution.status is not ExecutionStatus.COMPLETE:
            found.append(f"{execution.id} is {execution.status}: {execution.message}")
        for job in jobs:
            edge = job.job.name.split("__")[2]
            root = folder / where[edge]
            with closing(Project(root, load_project(root)).open_store()) as state:
                for number in range(DATASETS):
                    files = state.load_snapshot(job.job.name, f"d{number}")
                    ids = sorted(id_ for file in files for id_ in pq.read_table(file.path)["id"].to_pylist())
                    if ids != expected:
                        found.append(f"{job.job.name} d{number}: {len(ids)} rows, {len(set(ids))} of them different")
    return found


if __name__ == "__main__":
    sys.exit(main())
