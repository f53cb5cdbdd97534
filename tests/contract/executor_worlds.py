"""Executors under contract: a service and a worker in one thread, killed together at any durable step, and restarted.

The jobs are fakes that note what they did: the subject is how orders and reports travel, not what jobs do. What stays
after a kill is what is durable: databases, brokers, and the notes of jobs, which stand for their published data.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection

from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.core.errors import TransientError
from gobblin_dagster.service.catalog.templates import keys_body
from gobblin_dagster.service.executors.base import ReportingExecutor, SpecExecutor, job_key
from gobblin_dagster.service.executors.dispatcher import Dispatcher
from gobblin_dagster.service.executors.embedded import EmbeddedExecutor
from gobblin_dagster.service.executors.kafka import KafkaExecutor, KafkaLink
from gobblin_dagster.service.executors.messages import JobNews, Message, RunOrder, StopOrder, from_line
from gobblin_dagster.service.executors.monitor import JobMonitor
from gobblin_dagster.service.executors.remote_dagster import OUTCOME_TAG, DagsterExecutor, FoundRun, outcome_tag
from gobblin_dagster.service.executors.rest import RestExecutor, RestInlet
from gobblin_dagster.service.executors.store import Inbox, StoreExecutor
from gobblin_dagster.service.manager import FlowManager
from gobblin_dagster.service.model import (
    Dag,
    DagJob,
    ExecutionId,
    ExecutionStatus,
    FlowConfig,
    FlowId,
    JobKey,
    JobReport,
    Schedule,
)
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator
from gobblin_dagster.service.store.execution_rows import load_execution
from gobblin_dagster.service.store.job_rows import JobExecution, load_jobs, open_jobs
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.topology.model import DagsterAddress, KafkaTopics
from tests.contract.memory_kafka import MemoryKafka

NEVER = "0 0 0 ? 1 1 2050"


class Killed(BaseException):
    """Ends everything but what is durable."""


class Kills:
    """Counts durable steps, and kills at one of them; `count` and `at` are set for each run."""

    def __init__(self) -> None:
        self.count = 0
        self.at = 0

    def arm(self, at: int) -> None:
        """Kill at a step, counted from 1; 0: never."""
        self.count, self.at = 0, at

    def point(self) -> None:
        """A step is durable; the kill before the next one is the same as the kill after this one."""
        self.count += 1
        if self.count == self.at:
            raise Killed


class MortalStore(ServiceStore):
    """A store whose user is killed after a transaction was committed."""

    def __init__(self, url: str, kills: Kills) -> None:
        super().__init__(url, SystemClock())
        self._kills = kills

    @contextmanager
    def write(self) -> Iterator[Connection]:
        with super().write() as transaction:
            yield transaction
        self._kills.point()


class NotingWorker:
    """Runs jobs when the test says so, and notes them; the notes outlive it, as published data do."""

    def __init__(self, kills: Kills, begun: list[JobKey], published: set[JobKey]) -> None:
        self._kills = kills
        self._begun = begun
        self._published = published
        self._orders: list[RunOrder] = []
        self._stopped: set[JobKey] = set()
        self._tell: Callable[[JobNews], None] = lambda _: None

    def listen(self, tell: Callable[[JobNews], None], ended: Callable[[int, str], None]) -> None:
        self._tell = tell

    def send(self, message: Message) -> int:
        if isinstance(message, RunOrder):
            self._orders.append(message)
        elif isinstance(message, StopOrder):
            self._stopped.add(message.key)
        return 1

    def shutdown(self) -> None:
        """Nothing runs between two calls."""

    def kill(self) -> None:
        """Nothing runs between two calls."""

    def forget(self) -> None:
        """Lose what was handed over."""
        self._orders.clear()

    def run(self) -> None:
        """Run what was handed over."""
        while self._orders:
            key = self._orders.pop(0).key
            if key in self._stopped:
                self._tell(JobNews(key, ExecutionStatus.CANCELLED))
                continue
            self._begun.append(key)
            self._tell(JobNews(key, ExecutionStatus.RUNNING))
            self._published.add(key)
            self._kills.point()
            self._tell(JobNews(key, ExecutionStatus.COMPLETE, processed_count=7))


class World:
    """A service, an executor and a worker; subclasses say how orders and reports travel.

    Args:
        url: the service's database.
        folder: for files of a worker.
    """

    queue = "east"
    body = '{"n": 1}'
    stride = 1
    """Each how many steps there is a kill."""
    about: Mapping[str, Any] = MappingProxyType({})
    """What the worker announces from its next start on."""

    def __init__(self, url: str, folder: Path) -> None:
        self.kills = Kills()
        self.begun: list[JobKey] = []
        self.published: set[JobKey] = set()
        self.store = MortalStore(url, self.kills)
        self.folder = folder
        self.orchestrator = Orchestrator(self.store, self._compile)
        self._manager = FlowManager(self.store, self._compile, self.orchestrator)
        self._numbers = itertools.count()
        self.start()

    def start(self) -> None:
        """Make all that lives in memory; called again after a kill."""
        raise NotImplementedError

    def service_pass(self) -> None:
        """Let the service look once at what there is to do for the executor."""

    def worker_pass(self) -> None:
        """Let the worker look once, and run what it has."""
        raise NotImplementedError

    def executor(self) -> SpecExecutor:
        """Return the executor as the service sees it."""
        raise NotImplementedError

    def lose_it(self) -> None:
        """Take away what the executor needs; default: nobody was heard of anyway."""

    def close(self) -> None:
        """Let connections go."""
        self.store.close()

    def order(self, attempts: int = 1) -> ExecutionId:
        """Start an execution with one job."""
        flow = FlowId("g", f"n{next(self._numbers)}")
        properties = {"job.maxAttempts": str(attempts)}
        with self.store.write() as transaction:
            config = FlowConfig(flow, "FS:///a", properties, Schedule(NEVER))
            self._manager.create(transaction, config, "tester")
            number = self._manager.run_now(transaction, flow)
        self.orchestrator.start_accepted()
        return ExecutionId(flow, number)

    def passes(self, execution: ExecutionId, at_most: int = 30) -> bool:
        """Let both sides look until the execution is over; return whether it is."""
        for _ in range(at_most):
            self.service_pass()
            self.worker_pass()
            if self.is_over(execution):
                return True
        return False

    def is_over(self, execution: ExecutionId) -> bool:
        with self.store.read() as transaction:
            found = load_execution(transaction, execution)
        return found is not None and found.is_over

    def job(self, execution: ExecutionId) -> JobExecution:
        with self.store.read() as transaction:
            [found] = load_jobs(transaction, execution)
        return found

    def _compile(self, config: FlowConfig, former: object = ()) -> Dag:
        attempts = int(config.properties["job.maxAttempts"])
        return Dag((DagJob(f"{config.id.name}_a", self.queue, self.body, (), attempts),))

    def _report(self, report: JobReport) -> None:
        self.orchestrator.report(report)


_names = itertools.count()


class EmbeddedWorld(World):
    """Orders wait in the outbox; the service's own process takes them."""

    queue = "embedded"

    def start(self) -> None:
        self.worker = NotingWorker(self.kills, self.begun, self.published)
        self.inlet = EmbeddedExecutor(self.store, self._report, f"node-{next(_names)}")
        self.monitor = JobMonitor("embedded", self.inlet, self.worker, SystemClock(), 2)

    def worker_pass(self) -> None:
        self.monitor.step()
        self.worker.run()

    def executor(self) -> SpecExecutor:
        return self.inlet


class RemoteWorld(World):
    """Orders and reports go through a dispatcher."""

    dispatcher: Dispatcher

    def service_pass(self) -> None:
        self.dispatcher.step()

    def executor(self) -> ReportingExecutor:
        return self.dispatcher.executor


class StoreWorld(RemoteWorld):
    """Workers share the service's database."""

    def start(self) -> None:
        self.worker = NotingWorker(self.kills, self.begun, self.published)
        executor = StoreExecutor(self.queue, self.store)
        self.dispatcher = Dispatcher(self.store, executor, self._report)
        inbox = Inbox(self.queue, self.store, f"worker-{next(_names)}", self.about)
        self.monitor = JobMonitor(self.queue, inbox, self.worker, SystemClock(), 2)

    def worker_pass(self) -> None:
        self.monitor.step()
        self.worker.run()


class KafkaWorld(RemoteWorld):
    """Orders and reports go through topics; the worker has a store of its own."""

    own: MortalStore | None = None
    broker: MemoryKafka
    topics = KafkaTopics(brokers="127.0.0.1:1", orders="orders", reports="reports")

    def start(self) -> None:
        if self.own is None:
            self.broker = MemoryKafka(self.kills.point)
            shutil.copy(self.folder / "empty.db", self.folder / "worker.db")
            self.own = MortalStore(f"sqlite:///{self.folder}/worker.db", self.kills)
        clients: Any = self.broker
        self.worker = NotingWorker(self.kills, self.begun, self.published)
        executor = KafkaExecutor(self.queue, self.topics, self._open_jobs, clients=clients)
        self.dispatcher = Dispatcher(self.store, executor, self._report)
        self.link = KafkaLink(self.topics, StoreExecutor(self.queue, self.own), self.folder, clients)
        inbox = Inbox(self.queue, self.own, f"worker-{next(_names)}", self.about)
        self.monitor = JobMonitor(self.queue, inbox, self.worker, SystemClock(), 2)

    def worker_pass(self) -> None:
        self.link.step()
        self.monitor.step()
        self.worker.run()

    def close(self) -> None:
        super().close()
        if self.own is not None:
            self.own.close()

    def _open_jobs(self) -> Sequence[JobKey]:
        with self.store.read() as transaction:
            return [job_key(execution, job) for execution, job in open_jobs(transaction, self.queue)]

    def lose_it(self) -> None:
        self.broker.topics.clear()


class GobblinKafkaWorld(KafkaWorld):
    """Orders are job specs of Gobblin's."""

    body = keys_body({"source.class": "shop.Source"})
    topics = KafkaTopics(brokers="127.0.0.1:1", orders="orders", reports="reports", format="gobblin")
    stride = 3


class PostgresStoreWorld(StoreWorld):
    """The same on PostgreSQL, where transactions take longer."""

    stride = 3


class MortalLine:
    """Carries requests to a worker in this process; the caller is killed before it hears the answer."""

    def __init__(self, inlet: RestInlet, kills: Kills) -> None:
        self._inlet = inlet
        self._kills = kills
        self.is_cut = False

    def call(self, method: str, path: str, body: str) -> tuple[int, Any]:
        if self.is_cut:
            raise TransientError(problem="the line is cut")
        what = path.rpartition("/")[2].partition("?")[0]
        status, document = self._inlet.answer(method, what, body)
        self._kills.point()
        return status, json.loads(json.dumps(document))

    def close(self) -> None:
        """Nothing is open."""


class RestWorld(RemoteWorld):
    """The service calls the worker, which has a store of its own."""

    own: MortalStore | None = None

    def start(self) -> None:
        if self.own is None:
            shutil.copy(self.folder / "empty.db", self.folder / "worker.db")
            self.own = MortalStore(f"sqlite:///{self.folder}/worker.db", self.kills)
        self.line = MortalLine(RestInlet(StoreExecutor(self.queue, self.own)), self.kills)
        executor = RestExecutor(self.queue, "https://worker", self.line)
        self.dispatcher = Dispatcher(self.store, executor, self._report)
        self.worker = NotingWorker(self.kills, self.begun, self.published)
        inbox = Inbox(self.queue, self.own, f"worker-{next(_names)}", self.about)
        self.monitor = JobMonitor(self.queue, inbox, self.worker, SystemClock(), 2)

    def worker_pass(self) -> None:
        self.monitor.step()
        self.worker.run()

    def close(self) -> None:
        super().close()
        if self.own is not None:
            self.own.close()

    def lose_it(self) -> None:
        self.line.is_cut = True


class MemoryDagster:
    """A Dagster instance in memory; the caller is killed before it hears an answer that changed something."""

    def __init__(self, point: Callable[[], None] = lambda: None) -> None:
        self.runs: dict[str, FoundRun] = {}
        """By id, the oldest first."""
        self.orders: dict[str, RunOrder] = {}
        self.announced = ""
        self.is_cut = False
        self._point = point

    def look(self) -> str:
        self._answer()
        return self.announced

    def find(self, tags: Sequence[Mapping[str, str]]) -> Sequence[FoundRun | None]:
        self._answer()
        return [next((run for run in self.runs.values() if one.items() <= run.tags.items()), None) for one in tags]

    def read(self, run_ids: Sequence[str]) -> Mapping[str, FoundRun]:
        self._answer()
        return {run_id: self.runs[run_id] for run_id in run_ids if run_id in self.runs}

    def launch(self, order: str, tags: Mapping[str, str]) -> str:
        self._answer()
        run_id = f"run-{len(self.runs)}"
        found = from_line(order)
        assert isinstance(found, RunOrder)
        self.orders[run_id] = found
        self.runs[run_id] = FoundRun(run_id, "QUEUED", tags)
        self._point()
        return run_id

    def end(self, run_id: str, *, at_once: bool) -> None:
        self._answer()
        self.show(run_id, "CANCELED")
        self._point()

    def close(self) -> None:
        """Nothing is open."""

    def show(self, run_id: str, status: str, **tags: str) -> None:
        """Change a run."""
        run = self.runs[run_id]
        self.runs[run_id] = replace(run, status=status, tags={**run.tags, **tags})

    def _answer(self) -> None:
        if self.is_cut:
            raise TransientError(problem="the line is cut")


FAR = DagsterAddress(url="https://far.example/dagster", location="gobblin")


class RemoteDagsterWorld(RemoteWorld):
    """The service launches runs of another Dagster instance."""

    queue = "far"
    stride = 4
    there: MemoryDagster | None = None

    def start(self) -> None:
        self.there = self.there or MemoryDagster(self.kills.point)
        executor = DagsterExecutor(self.queue, FAR, self.store, self.there, wait_s=0)
        self.dispatcher = Dispatcher(self.store, executor, self._report)

    def worker_pass(self) -> None:
        """Let all runs that wait begin, and end."""
        assert self.there is not None
        for run in list(self.there.runs.values()):
            if run.status == "QUEUED":
                key = self.there.orders[run.run_id].key
                self.begun.append(key)
                self.published.add(key)
                self.kills.point()
                attempt = key.execution_id, key.job, key.generation, key.attempt
                outcome = outcome_tag(JobReport(*attempt, ExecutionStatus.COMPLETE, "", run.run_id, 7))
                self.there.show(run.run_id, "FAILURE", **{OUTCOME_TAG: outcome})  # Dagster's word does not count

    def lose_it(self) -> None:
        assert self.there is not None
        self.there.is_cut = True
