"""Rename, exchange and retemplate flows at random moments while they run; then count the rows of each place.

    python -m tests.services.rename_storm --seconds 60 --seed 1 --seeds 1 --kills 0.05

Nothing is served: executions run in threads of this process, against the service's database and the state store of a
real PostgreSQL. In each round flows run and change at the same time. Then, while nothing runs, a person gives refused
flows a startpoint at the end of what their place holds, as the message says. Each place must hold the first rows of the
source, each once.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path
from tempfile import mkdtemp

import pyarrow.parquet as pq
from sqlalchemy import create_engine, inspect, make_url, text

from gobblin_dagster.core.commit import CommitSequence, CommitStep
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.engine.commit.listener import SilentListener
from gobblin_dagster.engine.listener import RunListener
from gobblin_dagster.engine.plan.model import JobPlan
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.results import RunResult
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.service.executors.job_body import read_job_body
from gobblin_dagster.service.known_jobs import with_flows
from gobblin_dagster.service.model import ExecutionId, ExecutionStatus, FlowConfig, FlowId, Schedule, Trigger
from gobblin_dagster.service.server import CoreServices
from gobblin_dagster.service.store.execution_rows import Execution, add_executions
from gobblin_dagster.service.store.flow_rows import load_flow
from gobblin_dagster.service.store.job_rows import add_jobs
from gobblin_dagster.spec.job import SpecModel
from gobblin_dagster.spec.load import load_project
from gobblin_dagster.testing.inline_runner import InlineRunner
from gobblin_dagster.testing.rows_source import RowsDataset, RowsSource
from tests.services.postgres import binaries, named_url, running_postgres

NEVER = "0 0 0 ? 1 1 2050"
DATASETS = ("a", "b")
NAMES = ("one", "two", "three", "four", "five")
PLACES = ("p", "q")
KINDS = ("files", "table")
TWINS = ("", "_twin")
TEMPLATE = """
template: {name}
parameters: {{place: {{type: path}}}}
job:
  source: {{type: "tests.services.rename_storm:GrowingSource", file: count, datasets: {datasets}}}
  extract: {{namespace: n, table: t}}
  commit: {{scope: {scope}}}
  {publisher}
  output: {{path: "{folder}"}}
"""


class GrowingSource(RowsSource):
    """Rows of which there are as many as a file says."""

    class Options(SpecModel):
        """Where the number of rows stands, and the datasets."""

        file: str
        datasets: list[str]

    def __init__(self, options: Options, context: ConstructContext) -> None:
        rows = int((Path(context.base_dir) / options.file).read_text())
        super().__init__(
            RowsSource.Options(datasets={one: RowsDataset(rows=rows) for one in options.datasets}), context
        )


class Killed(BaseException):
    """Ends a run as a crash would."""


@dataclass
class Flow:
    """A flow as the storm knows it."""

    id: FlowId
    kind: str
    twin: str
    place: str


@dataclass
class Storm:
    """A project, its flows, and what happened."""

    root: Path
    core: CoreServices
    chance: random.Random
    table_url: str
    scope: str
    kills: float
    counts: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    numbers: count[int] = field(default_factory=lambda: count(1))
    rows: int = 0
    begun: float = field(default_factory=time.monotonic)
    refused: dict[tuple[FlowId, str], str] = field(default_factory=dict)
    set_for: set[tuple[FlowId, str, str]] = field(default_factory=set)
    """Startpoints that may wait: flow, dataset, job."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    pauses: Callable[[], float] = lambda: 0.0

    def say(self, line: str) -> None:
        self.log.append(f"{time.monotonic() - self.begun:8.3f} {threading.current_thread().name}: {line}")

    # -- what a person does --------------------------------------------------------------------------------------------
    def grow(self) -> None:
        self.rows += self.chance.randint(1, 5)
        temporary = self.root / ".count"
        temporary.write_text(str(self.rows))
        temporary.rename(self.root / "count")

    def post(self, flow: Flow) -> None:
        config = FlowConfig(flow.id, f"FS:///{flow.kind}{flow.twin}.template", {"place": flow.place}, Schedule(NEVER))
        with self.core.store.write() as transaction:
            if self.core.manager.exists(transaction, flow.id):
                self.core.manager.update(transaction, config, "storm")
            else:
                self.core.manager.create(transaction, config, "storm")

    def delete(self, flow: FlowId) -> None:
        with self.core.store.write() as transaction:
            self.core.manager.delete(transaction, flow, "storm")

    def change(self) -> None:
        """Change one flow, or two."""
        chance = self.chance
        what = chance.choice(["rename", "rename", "rename", "template", "template", "names", "places"])
        flow = chance.choice(self.flows)
        others = [one for one in self.flows if one is not flow and one.kind == flow.kind]
        free = [name for name in NAMES if name not in {one.id.name for one in self.flows}]
        if what == "rename":
            former, flow.id = flow.id, FlowId("g", chance.choice(free))
            self.forget(former, flow.id)
            self.say(f"RENAME {former} -> {flow.id}")
            steps: list[Callable[[], object]] = [lambda: self.delete(former), lambda: self.post(flow)]
            if chance.random() < 0.2:
                steps.reverse()
            for step in steps:
                step()
                time.sleep(chance.choice([0, chance.uniform(0, 0.05)]))
        elif what == "template":
            flow.twin = TWINS[not TWINS.index(flow.twin)]
            self.forget(flow.id)
            self.say(f"TEMPLATE {flow}")
            self.post(flow)
        elif others:
            other = chance.choice(others)
            # A flow of files that gets a place where nobody has published goes on there: so the docs say.
            if what == "places" and not (self.is_begun(flow) and self.is_begun(other)):
                return
            self.forget(flow.id, other.id)
            if what == "names":
                flow.id, other.id = other.id, flow.id
            else:
                flow.place, other.place = other.place, flow.place
            self.say(f"EXCHANGE {what}: {flow} {other}")
            self.post(flow)
            time.sleep(chance.choice([0, chance.uniform(0, 0.05)]))
            self.post(other)
        self.counts[what] += 1

    def is_begun(self, flow: Flow) -> bool:
        """Return whether the place of a flow has rows of each dataset."""
        return all(self.held(flow.kind, flow.place, urn) for urn in DATASETS)

    def forget(self, *flows: FlowId) -> None:
        """Remove startpoints that were set for what flows were before: only the person knows what they were for."""
        for flow, urn, job in [one for one in self.set_for if one[0] in flows]:
            self.set_for.discard((flow, urn, job))
            with suppress(GobblinDagsterError):
                self.core.datasets.remove_startpoint(flow, urn, job=job, who="storm")

    # -- what the service does -----------------------------------------------------------------------------------------
    def run(self, flow: FlowId, seed: int) -> None:
        chance = random.Random(seed)
        number = next(self.numbers)
        with self.core.store.write() as transaction:
            stored = load_flow(transaction, flow)
            if stored is None:
                return
            execution = ExecutionId(flow, number)
            now = self.core.store.now(transaction)
            row = Execution(execution, stored.version, Trigger.RUN_NOW, ExecutionStatus.RUNNING, now)
            add_executions(transaction, [row])
            dag = self.core.compile(stored.config)
            add_jobs(transaction, execution, dag)
        project = with_flows(Project(self.root, load_project(self.root)))
        job = read_job_body(dag.jobs[0].name, dag.jobs[0].body, self.root, project.spec)
        self.say(f"run {number} of {job.job} to {stored.config.properties['place']} begins")
        try:
            hooks = Hooks(self, chance, f"run {number} of {job.job}")
            result = run_job(
                project,
                job,
                runner=InlineRunner(),
                run_id=f"r{number}",
                listeners=[hooks],
                commit_listener=Steps(hooks),
            )
        except Killed:
            self.counts["killed"] += 1
            self.say(f"run {number} killed")
            return
        except GobblinDagsterError as error:
            self.counts["error"] += 1
            self.say(f"run {number} error {error}")
            return
        self.counts["run"] += 1
        self.say(f"run {number} of {job.job}: {result.status} {told(result)}")
        with self.lock:
            for one in result.datasets:
                key = (flow, one.dataset_urn)
                self.refused.pop(key, None)
                if one.failures:
                    self.refused[key] = one.failures[0].message
                    self.counts["refused"] += 1
                elif one.is_committed:
                    self.counts["committed"] += 1

    # -- rounds --------------------------------------------------------------------------------------------------------
    def round(self) -> None:
        """Let flows run and change at the same time, until all runs are over."""
        chance = self.chance
        self.grow()
        threads: list[threading.Thread] = []
        slow = chance.choice([0.0, 0.05, 0.3])
        self.pauses = lambda: slow
        for _ in range(chance.randint(2, 6)):
            if chance.random() < 0.55:
                flow = chance.choice(self.flows).id
                threads.append(threading.Thread(target=self.run, args=(flow, chance.random()), name=f"t{len(threads)}"))
                threads[-1].start()
            else:
                self.change()
                if chance.random() < 0.3:
                    self.grow()
            time.sleep(chance.choice([0, 0, chance.uniform(0, 0.3)]))
        for thread in threads:
            thread.join()
        self.say("-- quiet")

    def decide(self) -> None:
        """Let a person set startpoints for what is refused, at the end of what the place holds."""
        for flow in self.flows:
            for urn in DATASETS:
                message = self.refused.pop((flow.id, urn), "")
                if "startpoint" not in message:
                    continue
                held = self.held(flow.kind, flow.place, urn)
                end = str(max(held) + 1 if held else 0)
                self.say(f"STARTPOINT {flow} {urn} {end}: {message[:200]}")
                job = f"g__{flow.id.name}__{flow.kind}{flow.twin}"
                with suppress(GobblinDagsterError):
                    self.core.datasets.set_startpoint(
                        flow.id,
                        urn,
                        end,
                        job=job,
                        who="storm",
                        why="renamed",
                        expires=timedelta(days=1),
                        on_rewind="append",
                    )
                    self.set_for.add((flow.id, urn, job))
                    self.counts["startpoint"] += 1

    def held(self, kind: str, place: str, urn: str) -> list[int]:
        """Return the ids in a place."""
        if kind == "table":
            engine = create_engine(make_url(self.table_url).set(drivername="postgresql+psycopg2"))
            try:
                if not inspect(engine).has_table(f"t_{place}"):
                    return []
                with engine.connect() as connection:
                    return [
                        row.id
                        for row in connection.execute(
                            text(f"SELECT id FROM t_{place} WHERE dataset = :urn"), {"urn": urn}
                        )
                    ]
            finally:
                engine.dispose()
        found: list[int] = []
        project = Project(self.root, load_project(self.root))
        with closing(project.open_store()) as store:
            for job in store.list_jobs([urn]):
                for file in store.load_snapshot(job, urn):
                    if file.path.startswith(f"{self.root}/out_{place}/"):
                        found += pq.read_table(file.path)["id"].to_pylist()
        return found

    def problems(self) -> list[str]:
        found = []
        for kind in KINDS:
            for place in PLACES:
                for urn in DATASETS:
                    ids = sorted(self.held(kind, place, urn))
                    if ids != list(range(len(ids))):
                        twice = sorted(one for one, times in Counter(ids).items() if times > 1)
                        gaps = sorted({*range(max(ids, default=-1) + 1)} - {*ids})
                        found.append(f"{kind} {place} {urn}: {len(ids)} rows, twice {twice}, missing {gaps}")
        return found


def told(result: RunResult) -> str:
    return "; ".join(
        f"{one.dataset_urn} {one.outcome.value} {one.low}-{one.actual_high} "
        + " ".join(failure.message[:160] for failure in one.failures)
        for one in result.datasets
    )


@dataclass
class Hooks(RunListener):
    """Pauses a run, or ends it, at its turning points."""

    storm: Storm
    chance: random.Random
    name: str

    def planned(self, plan: JobPlan) -> None:
        self.at("planned")

    def at(self, what: str) -> None:
        self.storm.say(f"{self.name} {what}")
        if self.chance.random() < self.storm.kills:
            raise Killed
        time.sleep(self.chance.choice([0, self.chance.uniform(0, self.storm.pauses())]))


class Steps(SilentListener):
    """Passes the turning points of a commit on."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    def prepared(self, sequence: CommitSequence) -> None:
        self._hooks.at(f"prepared {sequence.dataset_urn}")

    def step_done(self, sequence: CommitSequence, step: CommitStep, number: int) -> None:
        self._hooks.at(f"step {number} {sequence.dataset_urn}")

    def committed(self, sequence: CommitSequence) -> None:
        self._hooks.at(f"committed {sequence.dataset_urn}")


def write_project(root: Path, urls: Mapping[str, str], scope: str) -> None:
    (root / "gobblin.yaml").write_text(
        f"project: storm\nlease_ttl_s: 5\nstate: '{named_url(urls['state'])}'\n"
        f"service: {{store: '{named_url(urls['store'])}'}}\n"
    )
    (root / "templates").mkdir()
    (root / "count").write_text("3")
    for kind in KINDS:
        for twin in TWINS:
            table = 'publisher: {type: sql_table, url_env: STORM_TABLE, table: "t_${place}"}'
            publisher, folder = ("", "out_${place}") if kind == "files" else (table, "staged_${place}")
            body = TEMPLATE.format(
                name=f"{kind}{twin}", publisher=publisher, folder=folder, scope=scope, datasets=list(DATASETS)
            )
            (root / "templates" / f"{kind}{twin}.template").write_text(body)


def storm(seed: int, seconds: float, urls: Mapping[str, str], kills: float) -> tuple[list[str], Storm]:
    chance = random.Random(seed)
    scope = chance.choice(["dataset", "dataset", "job"])
    os.environ["STORM_TABLE"] = urls["table"]
    root = Path(mkdtemp(prefix="gobblin-rename-storm-")).resolve()
    write_project(root, urls, scope)
    spec = load_project(root)
    core = CoreServices(root, spec.service, ["false"], state=spec.state)
    try:
        one = Storm(root, core, chance, urls["table"], scope, kills)
        one.rows = 3
        for number, (kind, place) in enumerate((kind, place) for kind in KINDS for place in PLACES):
            one.flows.append(Flow(FlowId("g", NAMES[number]), kind, "", place))
            one.post(one.flows[-1])
        found: list[str] = []
        while time.monotonic() - one.begun < seconds and not found:
            one.round()
            one.counts["round"] += 1
            found = one.problems()
            one.decide()
        (root / "storm.log").write_text("\n".join(one.log))
        return found, one
    finally:
        core.datasets.close()
        core.store.close()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--kills", type=float, default=0.0)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    folder = binaries()
    assert folder is not None
    bad = 0
    with ExitStack() as services:
        server = services.enter_context(running_postgres(folder))
        for seed in range(arguments.seed, arguments.seed + arguments.seeds):
            urls = {name: server.url(server.new_database()) for name in ("state", "store", "table")}
            found, one = storm(seed, arguments.seconds, urls, arguments.kills)
            bad += bool(found)
            ends = f"{found}\ndata: {one.root}" if found else "all rows once"
            sys.stdout.write(f"seed {seed} (commit.scope {one.scope}): {dict(one.counts)}; {ends}\n")
            sys.stdout.flush()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
