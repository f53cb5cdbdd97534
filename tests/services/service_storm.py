"""Kill the service and its worker at random moments while its flows run in Spark; then count flows, fires and rows.

    python -m tests.services.service_storm --kills 30 --seed 1 [--postgres]

Landing files grow by a day in each round. A flow of two jobs, files to the lake and the lake to a SQL table, fires
every 15 seconds and catches up all times; another one fires every 10 seconds; flows that run once are posted all the
time, each until it is acknowledged.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import signal
import sqlite3
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import chain, count
from pathlib import Path
from tempfile import mkdtemp
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq

from gobblin_dagster.client import FlowClient
from gobblin_dagster.core.errors import TransientError
from gobblin_dagster.engine.project import Project
from gobblin_dagster.service.cron import Cron
from gobblin_dagster.service.scheduler.scheduler import epoch_ms, from_epoch_ms
from gobblin_dagster.spec.load import load_project
from tests.services.gobblin_serve import ServeProcess
from tests.services.postgres import binaries, named_url, running_postgres

ROWS, DATASETS = 40, ("a", "b", "c")
LAKE, TABLE = "FS:///to_lake.template", "FS:///to_table.template"
CHAIN, SINGLE = "0/15 * * ? * *", "0/10 * * ? * *"
PROJECT = """
project: storm
lease_ttl_s: 5
spark: {{master: "local[2,4]"}}
state: '{state}'
service: {{port: 0, jobs_at_once: 3, store: '{store}'}}
"""
TEMPLATES = {
    "to_lake": """
template: to_lake
parameters: {folder: {type: path}}
job:
  source: {type: files, path: "landing/{dataset}/{date:%Y-%m-%d}.csv", format: {type: csv, columns: {id: int64}}}
  extract: {namespace: storm, table: rows}
  output: {path: "${folder}"}
""",
    "to_table": """
template: to_table
parameters: {folder: {type: path}}
job:
  source: {type: files, path: "${folder}/storm/rows/main/{dataset}/*.parquet", format: parquet}
  extract: {namespace: storm, table: loaded}
  publisher: {type: sql_table, url: "sqlite:///warehouse.db", table: loaded}
  output: {path: "${folder}-loaded"}
""",
}


@dataclass
class Storm:
    """A service in a folder, and what it acknowledged."""

    served: ServeProcess
    chance: random.Random
    numbers: count[int] = field(default_factory=count)
    days: count[int] = field(default_factory=count)
    landed: dict[str, list[int]] = field(default_factory=lambda: {dataset: [] for dataset in DATASETS})
    once: dict[str, int] = field(default_factory=dict)
    """Flows that run once: the id of the execution that was acknowledged."""
    at_least: dict[str, int] = field(default_factory=dict)
    """How many rows of each dataset had arrived before the flow was posted."""
    is_over: threading.Event = field(default_factory=threading.Event)

    def land(self) -> None:
        """Let the files of another day arrive."""
        day = date(2013, 1, 1) + timedelta(days=next(self.days))
        for dataset in DATASETS:
            folder = self.served.root / "landing" / dataset
            folder.mkdir(parents=True, exist_ok=True)
            new = [next(self.numbers) for _ in range(ROWS)]
            with (folder / ".new").open("w", newline="") as file:
                csv.writer(file).writerows([["id"], *([number] for number in new)])
            (folder / ".new").rename(folder / f"{day}.csv")
            self.landed[dataset] += new

    def client(self) -> FlowClient:
        """Return a client of the process that runs now."""
        return FlowClient(f"http://127.0.0.1:{self.served.port}", self.served.token, timeout_s=10)

    def post(self) -> None:
        """Post flows that run once, each with a key of its own until it is acknowledged, until the storm is over."""
        for number in count():
            name = f"once{number}"
            self.at_least[name] = len(self.landed[DATASETS[-1]])
            while True:
                with suppress(TransientError), self.client() as client:
                    properties = {"folder": f"once/{name}", "job.maxAttempts": "3"}
                    made = client.create("storm", name, LAKE, properties, idempotency_key=name)
                    self.once[name] = int(made["properties"]["flow.executionId"])
                    break
                time.sleep(0.2)
            if self.is_over.wait(5):
                return

    def kill(self) -> str:
        """Kill something, and return what; the service is started again if it was killed."""
        assert self.served.process is not None
        service = self.served.process.pid
        victim = self.chance.choice(["service", "service", "worker", "jvm", "service after SIGTERM"])
        if victim in ("worker", "jvm"):
            found = [pid for pid, is_java in _below(service) if is_java is (victim == "jvm")]
            with suppress(ProcessLookupError):
                for pid in found[:1]:
                    os.kill(pid, signal.SIGKILL)
            return victim if found else "nothing"
        if victim == "service after SIGTERM":
            os.kill(service, signal.SIGTERM)
            time.sleep(self.chance.uniform(0, 3))
        self.served.end(signal.SIGKILL)
        time.sleep(self.chance.choice([0, self.chance.uniform(0, 4)]))
        self.served.start()
        return victim

    def wait(self, flows: list[str], timeout_s: float) -> None:
        """Wait until no execution of some flows runs."""
        deadline = time.monotonic() + timeout_s
        with self.client() as client:
            left = list(flows)
            while left and time.monotonic() < deadline:
                left = [
                    name
                    for name in left
                    if any(not _is_over(one) for one in client.executions("storm", name, count=1000))
                ]
                time.sleep(1)


def main() -> int:
    """Run the storm, print its figures; 0 if everything is there once."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--postgres", action="store_true")
    arguments = parser.parse_args()
    begun = time.monotonic()
    with ExitStack() as services:
        urls = {"store": "sqlite:///.gobblin/service.db", "state": "sqlite:///.gobblin/state.db"}
        if arguments.postgres:
            folder = binaries()
            if folder is None:
                sys.stderr.write("No PostgreSQL server is installed here.\n")
                return 1
            server = services.enter_context(running_postgres(folder))
            urls = {name: server.url(server.new_database()) for name in urls}
        root = Path(mkdtemp(prefix="gobblin-service-storm-"))
        _write_project(root, urls)
        storm = Storm(ServeProcess(root), random.Random(arguments.seed))
        storm.land()
        storm.served.start()
        services.callback(storm.served.end)
        settings = {"flow.catchUp": "all", "job.maxAttempts": "20"}
        with storm.client() as client:
            for name, templates, cron in (("chain", f"{LAKE},{TABLE}", CHAIN), ("single", LAKE, SINGLE)):
                properties = {"folder": name, **settings}
                client.create("storm", name, templates, properties, cron=cron, run_immediately=True)
        poster = threading.Thread(target=storm.post)
        poster.start()
        killed: Counter[str] = Counter()
        while sum(killed.values()) < arguments.kills:
            storm.land()
            time.sleep(storm.chance.choice([storm.chance.uniform(0, 3), storm.chance.uniform(0, 25)]))
            victim = storm.kill()
            killed[victim] += victim != "nothing"
            sys.stderr.write(f"{sum(killed.values())} kills, last {victim}\n")
        storm.is_over.set()
        poster.join()
        problems, told = _problems(storm)
    told = f"{told}; {time.monotonic() - begun:.0f} s; problems: {problems or 'none'}"
    sys.stdout.write(f"seed {arguments.seed}: killed {dict(sorted((+killed).items()))}; {told}\ndata: {root}\n")
    return 1 if problems else 0


def _write_project(root: Path, urls: dict[str, str]) -> None:
    (root / "gobblin.yaml").write_text(PROJECT.format(**{name: named_url(url) for name, url in urls.items()}))
    (root / "templates").mkdir()
    for name, text in TEMPLATES.items():
        (root / "templates" / f"{name}.template").write_text(text)


def _problems(storm: Storm) -> tuple[list[str], str]:
    """End the schedules, let everything end, and return what is wrong, and what was counted."""
    with storm.client() as client:
        for name in ("chain", "single"):
            client.unschedule("storm", name)
        storm.wait(["chain", "single", *storm.once], 900)
        for name in ("chain", "single"):  # what arrived last
            client.run("storm", name)
        storm.wait(["chain", "single"], 120)
        executions = {name: client.executions("storm", name, count=1000) for name in ("chain", "single", *storm.once)}
    found = [
        f"{name} {one['id']['flowExecutionId']} is {one['executionStatus']}: {one['message']}"
        for name, ones in executions.items()
        for one in ones
        if one["executionStatus"] != "COMPLETE"
    ]
    for name, number in storm.once.items():
        numbers = [one["id"]["flowExecutionId"] for one in executions[name]]
        if numbers != [number]:
            found.append(f"{name} was acknowledged as execution {number} and has {numbers}")
    for name, cron in (("chain", CHAIN), ("single", SINGLE)):
        found += _wrong_fires(name, cron, [one["id"]["flowExecutionId"] for one in executions[name]])
    found += _wrong_rows(storm)
    rows = sum(map(len, storm.landed.values()))
    count_all = sum(map(len, executions.values()))
    return found, f"{count_all} executions of {len(executions)} flows, {rows} rows once each in chain, table and single"


def _wrong_fires(name: str, cron: str, numbers: list[int]) -> list[str]:
    """Return fire times that are missing between the first and the last one."""
    fired = sorted(number for number in numbers if number % 1000 == 0)  # others were asked for
    expected: list[int] = []
    if not fired:
        return [f"{name}: it never fired"]
    first = from_epoch_ms(fired[0])
    for instant in chain([first], Cron.parse(cron).fire_times(first, ZoneInfo("UTC"))):
        if epoch_ms(instant) > fired[-1]:
            break
        expected.append(epoch_ms(instant))
    missing, other = sorted({*expected} - {*fired}), sorted({*fired} - {*expected})
    return [f"{name}: {len(fired)} fires, missing {missing}, other {other}"] if missing or other else []


def _wrong_rows(storm: Storm) -> list[str]:
    """Return targets in which rows are missing or stand twice."""
    root = storm.served.root
    found = []
    targets = {"chain": "chain", "single": "single", **{name: f"once/{name}" for name in storm.once}}
    with closing(Project(root, load_project(root)).open_store()) as state:
        for name, folder in targets.items():
            for dataset, landed in storm.landed.items():
                files = state.load_snapshot(f"storm__{name}__to_lake", dataset)
                ids = sorted(chain.from_iterable(pq.read_table(file.path)["id"].to_pylist() for file in files))
                there = sorted((root / folder / "storm/rows/main" / dataset).rglob("*.parquet"))
                if len(there) != len(files):
                    found.append(f"{name} {dataset}: {len(files)} files are published, {len(there)} lie there")
                least = storm.at_least.get(name, len(landed))
                if ids != landed[: len(ids)] or len(ids) < least:
                    found.append(
                        f"{name} {dataset}: {len(ids)} rows, {len({*ids})} different, at least {least} expected"
                    )
    with closing(sqlite3.connect(root / "warehouse.db")) as warehouse:
        loaded = sorted(id_ for (id_,) in warehouse.execute("SELECT id FROM loaded"))
    if loaded != list(range(sum(map(len, storm.landed.values())))):
        found.append(f"the table has {len(loaded)} rows, {len({*loaded})} different")
    return found


def _is_over(execution: dict[str, object]) -> bool:
    return execution["executionStatus"] in ("COMPLETE", "FAILED", "CANCELLED")


def _below(pid: int) -> list[tuple[int, bool]]:
    """Return the processes that a process started, and those that they started: their ids, and whether each is Java."""
    found = []
    with suppress(OSError):
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, children.read_text().split()):
                found += [(child, Path(f"/proc/{child}/comm").read_text().strip() == "java"), *_below(child)]
    return found


if __name__ == "__main__":
    sys.exit(main())
