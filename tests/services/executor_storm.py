"""Kill service, workers and broker at random moments while the flow of `examples/service` runs; then count rows.

    python -m tests.services.executor_storm --kills 50 --seed 1
    python -m tests.services.executor_storm --kills 50 --store postgresql --spark

Before each execution new files arrive. The flow takes them to the lake on the executor `embedded`, and from there into
PostgreSQL on two workers behind Kafka and into a second lake on a worker that is called over HTTPS. A third destination
is added to those of the example, on two workers that poll the service's database. By default jobs run on the inline
runner, and kills come closer to each other; `--spark` starts the commands that users start.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import mkdtemp

import psycopg2
import pyarrow.parquet as pq

from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.database.engine import parse_url
from gobblin_dagster.engine.project import Project
from gobblin_dagster.service.manager import FlowManager
from gobblin_dagster.service.model import Dag, ExecutionStatus, FlowConfig, FlowId, Schedule
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator
from gobblin_dagster.service.server import CoreServices
from gobblin_dagster.service.store.execution_rows import list_executions
from gobblin_dagster.service.store.job_rows import load_jobs
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.worker_node import WorkerNode
from gobblin_dagster.spec.load import load_project
from tests.services.certificates import Authority
from tests.services.kafka import KafkaBroker, jars, running_kafka
from tests.services.postgres import PostgresServer, binaries, named_url, running_postgres
from tests.services.service_example import TOPICS, copy_example

ROWS = 1000
"""Rows that each execution finds in each dataset."""
DATASETS = ("eu", "us", "asia")
FLOW = FlowId("shop", "orders")
DESTINATIONS = ("shop", "second-lake", "third-lake")
NEVER = "0 0 0 ? 1 1 2050"
THIRD = """
nodes:
  third-lake: {type: archive, properties: {path: ../third-lake}}
executors:
  east: {type: store, state: east, capabilities: [{source: lake, destination: archive}]}
edges:
  lake-to-archive: {source: lake, destination: third-lake, template: "FS:///lake-to-lake.template"}
"""
GOBBLIN = (sys.executable, "-m", "gobblin_dagster")
HERE = (sys.executable, "-m", "tests.services.executor_storm")


class Storm:
    """The processes, and the example's projects in one folder.

    Args:
        folder: a copy of the example.
        broker: where orders and reports go.
        store: URL of the service's database.
        uses_spark: whether the processes are those of a user, in place of ones without Spark.
    """

    victims = ("service", "east-1", "east-2", "west-1", "west-2", "south", "broker")

    def __init__(self, folder: Path, broker: KafkaBroker, store: str, *, uses_spark: bool) -> None:
        self._folder = folder
        self._broker = broker
        self._uses_spark = uses_spark
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        store = named_url(store)
        authority = Authority(folder / "tls")
        for name in ("service", "south"):
            authority.signed(name)
        (folder / "service" / "topology" / "third.yaml").write_text(THIRD)
        (folder / "east").mkdir()
        (folder / "east" / "gobblin.yaml").write_text(
            f"project: east\nspark: {{master: 'local[1]'}}\nworker: {{store: '{store}'}}\n"
            "allow: {paths: [../lake, ../third-lake], hosts: [], environment: [], modules: []}\n"
        )
        settings = folder / "service" / "gobblin.yaml"
        settings.write_text(settings.read_text().replace("service: {", f"service: {{store: '{store}', "))
        for path in folder.glob("*/gobblin.yaml"):
            path.write_text(f"{path.read_text()}lease_ttl_s: 5\n")

    def start(self, name: str) -> None:
        """Start a process."""
        if name == "broker":
            self._broker.start()
            return
        project = name.partition("-")[0]
        root = self._folder / project
        command = [*HERE, "--process", str(root)]
        if self._uses_spark:
            command = [
                *GOBBLIN,
                "-C",
                str(root),
                *(["serve"] if project == "service" else ["worker", "--executor", project]),
            ]
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

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


def run_process(root: Path) -> int:
    """Be the service or a worker, without Spark."""
    spec = load_project(root)
    child = [sys.executable, "-m", "tests.services.inline_worker", str(root)]
    if root.name == "service":
        return CoreServices(root, spec.service, child, spec.allow.lists, state=spec.state).run(lambda _: None)
    return WorkerNode(root.name, root, spec, child).run(lambda: None)


class Arrivals:
    """Writes files into the landing folder; no row is there twice."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.rows = {"eu": [1, 2, 3, 4, 5], "us": [1, 2], "asia": []}
        """Keys of the rows of each dataset; the example brings the first ones."""

    def come(self) -> None:
        """Let one file arrive for each dataset."""
        for dataset in DATASETS:
            first = len(self.rows[dataset]) + 1
            keys = range(first, first + ROWS)
            self.rows[dataset] += keys
            folder = self._folder / dataset
            folder.mkdir(exist_ok=True)
            arriving = folder / f".{first}"
            arriving.write_text("id,item,amount\n" + "".join(f"{key},book,{key % 97}\n" for key in keys))
            arriving.rename(folder / f"{first:08}.csv")


def main() -> int:
    """Run the storm, print its figures; 0 if every row is there once and every execution complete."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=["sqlite", "postgresql"], default="sqlite", help="the service's database")
    parser.add_argument("--spark", action="store_true", help="jobs run on Spark")
    parser.add_argument("--process", type=Path)
    arguments = parser.parse_args()
    if arguments.process:
        return run_process(arguments.process)
    libs, programs = jars(), binaries()
    if libs is None or programs is None:
        sys.stderr.write("A Kafka broker (Maven, Java) and a PostgreSQL server are needed here.\n")
        return 2
    folder = Path(mkdtemp(prefix="gobblin-storm-")) / "example"
    begun = time.monotonic()
    with ExitStack() as services:
        broker = services.enter_context(running_kafka(libs))
        server = services.enter_context(running_postgres(programs))
        for topic in TOPICS:
            broker.new_topic(topic, 2)
        copy_example(folder, broker.address)
        database, own = server.new_database(), server.new_database()
        url = f"sqlite:///{folder}/service/.gobblin/service.db" if arguments.store == "sqlite" else server.url(own)
        os.environ |= {"PYTHONPATH": str(Path(__file__).parents[2]), "SHOP_DATABASE": server.url(database)}
        (folder / "service" / ".gobblin").mkdir()
        storm = Storm(folder, broker, url, uses_spark=arguments.spark)
        services.callback(storm.end)
        store = services.enter_context(ServiceStore(parse_url(url), SystemClock()))
        arrivals = Arrivals(folder / "landing")
        killed = _rage(storm, store, arrivals, arguments.kills, arguments.seed, 40 if arguments.spark else 8)
        problems = _problems(store, server, database, folder, arrivals)
        with store.read() as transaction:
            executions = list_executions(transaction, FLOW, 1000)
    rows = sum(map(len, arrivals.rows.values()))
    told = (
        f"seed {arguments.seed}, {arguments.store}, {'Spark' if arguments.spark else 'inline runner'}: "
        f"{killed.total()} kills ({dict(sorted(killed.items()))}),",
        f"{len(executions)} executions, {4 * len(executions)} jobs, {time.monotonic() - begun:.0f} s, "
        f"load {os.getloadavg()[1]:.1f};",
        f"{rows:,} rows expected once in the lake and in each of {len(DESTINATIONS)} destinations; "
        f"problems: {problems or 'none'}",
        f"logs and data: {folder}",
    )
    sys.stdout.write("\n".join(told) + "\n")
    return 1 if problems else 0


def _rage(storm: Storm, store: ServiceStore, arrivals: Arrivals, kills: int, seed: int, pause_s: float) -> Counter[str]:
    """Kill processes while executions run; return how often each was killed, once the last execution is over."""
    chance = random.Random(seed)
    for name in storm.victims[:-1]:
        storm.start(name)
    manager = _manager(store)
    killed: Counter[str] = Counter()
    while killed.total() < kills:
        if _is_idle(store):
            arrivals.come()
            with store.write() as transaction:
                manager.run_now(transaction, FLOW)
        time.sleep(chance.uniform(0.2, pause_s))
        victim = chance.choice(storm.victims)
        storm.kill(victim)
        killed[victim] += 1
        time.sleep(chance.uniform(0, 2))
        storm.start(victim)
        sys.stderr.write(f"{killed.total()} kills, last {victim}\n")
        # Some executions are hit more than once; if all were hit until the last kill, there would be one execution.
        if chance.random() < 0.7 and not _wait_until_idle(store, 600):
            break
    _wait_until_idle(store, 600)
    return killed


def _manager(store: ServiceStore) -> FlowManager:
    """Store the flow, and return what fires it; the service's own scheduler and compiler find both."""

    def compiled(config: FlowConfig, former: object = ()) -> Dag:
        return Dag(())

    manager = FlowManager(store, compiled, Orchestrator(store, compiled))
    ends = {
        "gobblin.flow.sourceIdentifier": "landing",
        "gobblin.flow.destinationIdentifier": ",".join(DESTINATIONS),
    }
    with store.write() as transaction:
        manager.create(transaction, FlowConfig(FLOW, "", ends, Schedule(NEVER)), "storm")
    return manager


def _wait_until_idle(store: ServiceStore, patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while not _is_idle(store):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def _is_idle(store: ServiceStore) -> bool:
    with store.read() as transaction:
        newest = list_executions(transaction, FLOW, 1)
    return not newest or newest[0].is_over


def _problems(
    store: ServiceStore, server: PostgresServer, database: str, folder: Path, arrivals: Arrivals
) -> list[str]:
    """Return what is wrong: executions that are not complete, rows that are missing or there twice."""
    found = []
    with store.read() as transaction:
        executions = list_executions(transaction, FLOW, 1000)
        jobs = load_jobs(transaction, executions[0].id)
    for execution in executions:
        if execution.status is not ExecutionStatus.COMPLETE:
            found.append(f"{execution.id} is {execution.status}: {execution.message}")
    roots = {"files_to_lake": "service", "lake_to_lake": "south", "lake_to_archive": "east"}
    places = {job.job.name: roots.get(job.job.name.split("__")[2]) for job in jobs}
    for dataset in DATASETS:
        expected = arrivals.rows[dataset]
        with closing(psycopg2.connect(server.url(database))) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT id FROM orders WHERE region = %s", [dataset])
            there = {"table orders": [key for (key,) in cursor.fetchall()]}
        for job, root in places.items():
            if root is not None:
                there[job] = _published(folder / root, job, dataset)
        for place, keys in there.items():
            if sorted(keys) != expected:
                found.append(
                    f"{place} {dataset}: {len(keys)} rows, {len(set(keys))} different, {len(expected)} expected"
                )
    return found


def _published(root: Path, job: str, dataset: str) -> list[int]:
    with closing(Project(root, load_project(root)).open_store()) as state:
        files = state.load_snapshot(job, dataset)
        return [key for file in files for key in pq.read_table(file.path)["id"].to_pylist()]


if __name__ == "__main__":
    sys.exit(main())
