"""CoreServices: what one process of the service starts, in which order, and how it ends.

Start: store, executor, scheduler and orchestrator loop, REST. End (SIGTERM): REST takes no more requests, the loops
stop, running jobs end their work units and commit what is whole; a second signal ends at once, and the next start takes
the jobs up again.
"""

from __future__ import annotations

import logging
import os
import resource
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType

import uvicorn

from gobblin_dagster import __version__
from gobblin_dagster.core.allow import EVERYTHING, AllowLists
from gobblin_dagster.core.clock import Clock, SystemClock
from gobblin_dagster.core.errors import EnvironmentFaultError, GobblinDagsterError, StorageError, TransientError
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.utils.cut_off import cut_off_all
from gobblin_dagster.database.engine import parse_url
from gobblin_dagster.service.api.app import Health, Resource, RestApp
from gobblin_dagster.service.api.dagster_pages import DagsterPages
from gobblin_dagster.service.api.flowconfigs import FlowConfigsResource
from gobblin_dagster.service.api.flowdatasets import FlowDatasetsResource
from gobblin_dagster.service.api.flowexecutions import FlowExecutionsResource
from gobblin_dagster.service.api.flowtemplates import FlowTemplatesResource
from gobblin_dagster.service.api.guard import Guard
from gobblin_dagster.service.api.pages import LOGIN, Pages
from gobblin_dagster.service.api.rest_server import RestServer
from gobblin_dagster.service.api.topology import TopologyResource
from gobblin_dagster.service.catalog.feed import CatalogFeed, CatalogListener, LoggingListener
from gobblin_dagster.service.catalog.listeners import make_listeners
from gobblin_dagster.service.catalog.templates import TemplateCatalog
from gobblin_dagster.service.child import Child
from gobblin_dagster.service.compiler.compilers import CompilerContext, FlowCompiler, make_compiler
from gobblin_dagster.service.datasets import FlowDatasets
from gobblin_dagster.service.executors.embedded import NAME, EmbeddedExecutor
from gobblin_dagster.service.executors.monitor import JobMonitor
from gobblin_dagster.service.executors.remote import RemoteExecutors
from gobblin_dagster.service.executors.worker_process import WorkerProcess
from gobblin_dagster.service.flow_compiler import ExecutorCompiler
from gobblin_dagster.service.manager import FlowManager
from gobblin_dagster.service.model import JobReport
from gobblin_dagster.service.orchestrator.history import ExecutionHistory
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator
from gobblin_dagster.service.provisioner import Provisioner, SpecExecutorLauncher
from gobblin_dagster.service.scheduler.scheduler import BATCH, Scheduler
from gobblin_dagster.service.security.access import OWNER, Access, digest, load_token
from gobblin_dagster.service.security.sessions import Sessions
from gobblin_dagster.service.store.node_rows import BESIDE, Node, delete_node, load_workers, save_node
from gobblin_dagster.service.store.replica import Replica
from gobblin_dagster.service.store.role_rows import LEADER, RoleLease
from gobblin_dagster.service.store.state_place_rows import add_state_place, load_state_places
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.topology.capabilities import EdgeNeeds, announced_by
from gobblin_dagster.service.topology.catalog import TopologyCatalog
from gobblin_dagster.service.topology.stored import StoredTopology
from gobblin_dagster.spec.project import STATE_STORE, TOKEN_FILE, ServiceSpec
from gobblin_dagster.state import open_store
from gobblin_dagster.state.place import state_place

log = logging.getLogger(__name__)

WORKER_LOG = ".gobblin/worker.log"
PAGES_LOG = ".gobblin/dagster-pages.log"
DAEMON_LOG = ".gobblin/dagster-daemon.log"
REPLICAS = ".gobblin"
"""Folder of the copies that nodes keep of a PostgreSQL database."""
BEAT_S = 3
"""How often a node says that it is alive."""
TICK_S = 0.5
"""How often due flows and accepted executions are looked for, if nobody calls."""
LEAST_S = 0.1
"""Least time between two such looks, however often somebody calls."""
MOVE_S = 5
"""How often jobs of executors that are lost are looked for."""
PRUNE_S = 60
"""How often old executions are looked for."""
ROLE_TTL = timedelta(seconds=15)
MAX_FILES = 4096
"""Files that the process may have open, connections among them, if its user may have so many."""
STOP_WAIT_S = 10
"""Seconds that running requests get to end."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the service answers."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The address as a URL."""
        return f"http://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class DagsterPrograms:
    """Dagster as it runs beside the service."""

    socket: Path
    """Unix socket on which the pages are served."""
    pages: Sequence[str]
    """Command that serves the pages."""
    daemon: Sequence[str]
    """Command that runs the daemon."""

    def children(self, root: Path) -> list[Child]:
        """Return what keeps the programs running."""
        return [
            Child("Dagster's pages", self.pages, root, root / PAGES_LOG),
            Child("Dagster's daemon", self.daemon, root, root / DAEMON_LOG),
        ]


class CoreServices:
    """One process of the service.

    Args:
        root: the project folder.
        spec: the section `service` of `gobblin.yaml`.
        worker_command: starts the worker process of the embedded executor.
        allow: what jobs may use, as `gobblin.yaml` says.
        clock: tells the time where the database has no clock.
        state: URL of the project's state store.
        dagster: the programs that run Dagster beside the service; None: there is none.
        launcher: starts the workers that executors of the topology ask for; None: nobody does.
        listeners: hear of every change of the catalog, whichever node makes it, after those that `spec` names.

    A store that cannot be reached yet is waited for: until then the service answers 503.

    Raises:
        StorageError, StoreVersionError: the store cannot be opened, and waiting would not help.
        UsageError: a listener that `spec` names cannot be made, or `state` is no URL of a store.

    Source: gobblin-service `GobblinServiceManager`.
    """

    def __init__(
        self,
        root: Path,
        spec: ServiceSpec,
        worker_command: Sequence[str],
        allow: AllowLists = EVERYTHING,
        clock: Clock | None = None,
        state: str = STATE_STORE,
        listeners: Sequence[CatalogListener] = (),
        dagster: DagsterPrograms | None = None,
        launcher: SpecExecutorLauncher | None = None,
    ) -> None:
        self._spec = spec
        self._clock = clock or SystemClock()
        self._state_place = state_place(state, root)
        self.token, self.is_new_token = load_token(root / TOKEN_FILE)
        self.store = ServiceStore(parse_url(spec.store, root), self._clock, may_be_away=True)
        templates = TemplateCatalog(root / spec.templates)
        stored = StoredTopology(self.store, root / spec.topology, templates, allow, root)
        self.topology = TopologyCatalog(root / spec.topology, stored=stored, needs=EdgeNeeds(templates))
        compiler = ExecutorCompiler(
            lambda names: make_compiler(spec.compiler, CompilerContext(templates, self.topology, names, allow)),
            self.store,
        )
        self.compile = compiler.compile
        self.orchestrator = Orchestrator(
            self.store,
            compiler.compile,
            spec.executions_per_group,
            spec.executions_per_user,
            spec.executions_per_owning_group,
        )
        self.topology.add_listener(self.orchestrator)
        self.manager = FlowManager(self.store, compiler.compile, self.orchestrator)
        self.history = ExecutionHistory(self.store, spec.keep_executions, timedelta(days=spec.keep_days))
        self.node = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.url = ""
        """Where REST answers; empty before it does."""
        self._role = RoleLease(LEADER, self.node, ROLE_TTL)
        self.feed = CatalogFeed(
            self.store, [LoggingListener(), self.orchestrator, *make_listeners(spec.listeners), *listeners]
        )
        self.scheduler = Scheduler(
            self.store,
            self.orchestrator,
            lambda transaction: self._role.renew(transaction, self.store.now(transaction)),
        )
        self.executor = JobMonitor(
            NAME,
            EmbeddedExecutor(self.store, self._take_in, self.node),
            WorkerProcess(worker_command, root, root / WORKER_LOG),
            self._clock,
            spec.jobs_at_once,
        )
        self.remote = RemoteExecutors(self.store, self._take_in, lambda: self._role.is_held, root)
        self.topology.add_listener(self.remote)
        self.provisioner = (
            None
            if launcher is None
            else Provisioner(
                launcher, lambda: self.topology.graph, lambda: self._role.is_held and self.topology.is_known
            )
        )
        self.datasets = FlowDatasets(self.store, compiler.compile, lambda: open_store(state, root, self._clock))
        access = Access(digest(self.token), allows_anonymous=spec.anonymous)
        guard = Guard(self.store, access)
        resources: dict[str, Resource] = {
            **_catalog_resources(self.store, self.manager, self.orchestrator, guard, compiler),
            "flowdatasets": FlowDatasetsResource(self.store, self.datasets, guard),
            "flowtemplates": FlowTemplatesResource(templates, guard),
            "topology": TopologyResource(self.topology, stored, guard, self.store),
        }
        # SQLite is a file: it can be read as long as the node lives.
        self._replica = None if self.store.is_sqlite else Replica(self.store, root / REPLICAS, self._clock)
        self._sessions = Sessions(self.token, self._clock.now)
        self._dagster = [] if dagster is None else dagster.children(root)
        pages = (
            None if dagster is None else Pages(access, self._sessions, DagsterPages(dagster.socket, guard, self.store))
        )
        self.app = RestApp(
            resources,
            access,
            Health(lambda: True, self._problems, lambda: self.store.is_open, self._copy_age_s),
            self._changed,
            None if self._replica is None else (self._replica, self._on_copy(self._replica, guard, compiler)),
            pages,
        )
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._loop_thread: threading.Thread | None = None
        self._watch_thread: threading.Thread | None = None
        self._replica_thread: threading.Thread | None = None
        self._store_problem = ""
        self._started_at: datetime | None = None

    def login_link(self) -> str:
        """Return an address that logs a browser in, once."""
        return f"{self.url}{LOGIN}?ticket={self._sessions.ticket(OWNER)}"

    @property
    def is_leader(self) -> bool:
        """Whether this node fires schedules and starts executions."""
        return self._role.is_held

    def start(self) -> None:
        """Start the executor and the loops."""
        self._first_beat()
        self._watch_thread = threading.Thread(target=self._watch, name="catalog-feed", daemon=True)
        self._watch_thread.start()
        if self._replica is not None:
            self._replica_thread = threading.Thread(
                target=self._follow, args=[self._replica], name="replica", daemon=True
            )
            self._replica_thread.start()
        self.executor.start()
        self.remote.start(self.topology.graph)
        for child in self._dagster:
            child.start()
        if self.provisioner is not None:
            self.provisioner.start()
        self._loop_thread = threading.Thread(target=self._loop, name="scheduler", daemon=True)
        self._loop_thread.start()

    def stop(self, *, at_once: bool = False) -> None:
        """End the loops and the executor.

        Args:
            at_once: do not wait for running jobs; the next start takes them up again.
        """
        self._stopping.set()
        self._wake.set()
        if self._loop_thread is not None:
            self._loop_thread.join()
        self.remote.stop()
        if self.provisioner is not None:
            # Before another node leads, which starts workers of its own.
            self.provisioner.stop(at_once=at_once)
        self._hand_over_role()
        for child in self._dagster:
            child.stop(at_once=at_once)
        if at_once:
            self.executor.kill()
            self.executor.join()
        else:
            self.executor.stop()
        # Until here the node says that it is alive, so that no other node takes up the jobs that end.
        self._ended.set()
        if self._watch_thread is not None:
            self._watch_thread.join()
        try:
            with self.store.write() as transaction:
                delete_node(transaction, self.node)
        except GobblinDagsterError as error:
            log.warning("other nodes notice by its silence that this one has ended: %s", error)
        if self._replica_thread is not None:
            self._replica_thread.join()
        if self._replica is not None:
            self._replica.close()
        self.datasets.close()
        self.store.close()

    def _on_copy(self, replica: Replica, guard: Guard, compiler: FlowCompiler) -> dict[str, Resource]:
        """Return the resources that read from the copy; nothing is written to it."""
        orchestrator = Orchestrator(replica.store, compiler.compile)
        manager = FlowManager(replica.store, compiler.compile, orchestrator)
        return _catalog_resources(replica.store, manager, orchestrator, guard, compiler)

    def run(self, started: Callable[[Address], None]) -> int:
        """Serve until a signal comes; return the exit code.

        Args:
            started: called once requests are answered.

        Raises:
            EnvironmentFaultError: the port is taken, or the address is not one of this machine's.
        """
        _allow_files()
        listener = self._listen()
        address = Address(self._spec.host, listener.getsockname()[1])
        config = uvicorn.Config(
            self.app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=STOP_WAIT_S
        )
        server = RestServer(config)
        signals: list[float] = []

        def end(number: int, _frame: FrameType | None) -> None:
            signals.append(time.monotonic())
            log.info("signal %d: %s", number, "ending" if len(signals) == 1 else "ending at once")
            server.should_exit = True
            if len(signals) == 1:  # the next one may come while the lock of an event is held here
                # No new work from now on; requests that run may take until `STOP_WAIT_S`.
                self._stopping.set()
                self._wake.set()
            else:
                server.force_exit = True
                self.executor.kill()
                if self.provisioner is not None:
                    self.provisioner.kill()
                cut_off_all()  # threads may wait for a database that does not answer

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)
        self.start()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="rest")
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        self.url = address.url
        self._first_beat()
        started(address)
        while thread.is_alive():  # the main thread must stay free for signals
            thread.join(0.2)
        self.stop(at_once=len(signals) > 1)
        return 0

    def _listen(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._spec.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self._spec.host, self._spec.port))
        except OSError as error:
            listener.close()
            raise EnvironmentFaultError(
                problem=f"The service cannot listen on {self._spec.host}:{self._spec.port}: {error.strerror}.",
                hint="Set another `service: {port: ...}` in gobblin.yaml, or end what uses the port.",
            ) from error
        return listener

    def _loop(self) -> None:
        """Fire what is due, start what was accepted and prune what is old, until the end."""
        prune_at = move_at = time.monotonic()
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                while self.scheduler.fire_due().flows == BATCH:
                    pass
                is_due = time.monotonic() >= move_at
                if is_due:
                    # Before any execution starts: which executors may run its jobs depends on their state stores.
                    self._note_executors()
                if self._role.is_held and self.orchestrator.expire_deadlines() + self._start_accepted():
                    self._wake_executors()
                if is_due:
                    if self._role.is_held:
                        self._leave_lost_executors()
                    move_at = time.monotonic() + MOVE_S
                if self._role.is_held and time.monotonic() >= prune_at and not self.history.prune():
                    prune_at = time.monotonic() + PRUNE_S
                self._store_problem = ""
            except GobblinDagsterError as error:
                self._store_problem = str(error)
                log.warning("the scheduler waits: %s", error)
                self._stopping.wait(1)
            except Exception:  # one bad flow must not stop the others for ever
                log.exception("the scheduler goes on after an error")
                self._stopping.wait(1)
            self._wake.wait(TICK_S)
            # Many requests in a short time are one reason to look, not many.
            self._stopping.wait(max(0.0, began + LEAST_S - time.monotonic()))
            self._wake.clear()

    def _start_accepted(self) -> int:
        """Start what was accepted, once the topology is known: no flow must fail for want of what is in the store."""
        return self.orchestrator.start_accepted() if self.topology.is_known else 0

    def _note_executors(self) -> None:
        """Tell the topology which executors are lost, where all keep watermarks, and what their workers can do."""
        with self.store.read() as transaction:
            places = load_state_places(transaction)
            now = self.store.now(transaction)
            workers = [one for one in load_workers(transaction) if one.is_alive(now)]
        self.topology.avoid(self.remote.lost, places)
        self.topology.note_workers(announced_by(workers))

    def _leave_lost_executors(self) -> None:
        """Give the jobs of executors that are lost to others that can run them."""
        lost = self.topology.graph.lost
        if sum(self.orchestrator.move_jobs(name, lost) for name in sorted(lost)):
            self._wake_executors()

    def _hand_over_role(self) -> None:
        """Let another node fire at once."""
        try:
            with self.store.write() as transaction:
                self._role.give_back(transaction)
        except GobblinDagsterError as error:
            log.warning("the role is given back by its end, since the store is away: %s", error)

    def _watch(self) -> None:
        """Tell listeners of changes, and others that this node is alive, until the end."""
        beat_at = 0.0 if self._started_at is None else time.monotonic() + BEAT_S
        while not self._ended.wait(TICK_S):
            try:
                if time.monotonic() >= beat_at:
                    self._beat()
                    beat_at = time.monotonic() + BEAT_S
                if self.topology.refresh(waits=False):
                    self._wake_up()
                self.feed.poll()
            except GobblinDagsterError as error:
                log.warning("the catalog's changes wait: %s", error)
            except Exception:  # the node must go on to say that it is alive
                log.exception("the catalog's changes wait")

    def _follow(self, replica: Replica) -> None:
        """Keep this node's copy of the database like it, until the end."""
        while not self._ended.wait(TICK_S):
            try:
                replica.follow()
            except (TransientError, StorageError) as error:
                log.debug("the copy of the database waits: %s", error)
                self._ended.wait(1)
            except Exception:  # the service works without it
                log.exception("the copy of the database waits")
                self._ended.wait(10)

    def _first_beat(self) -> None:
        """Say that this node is alive; if the store is away, it is said when it is there."""
        try:
            self._beat()
        except TransientError as error:
            log.warning("the service waits for its store: %s", error)

    def _beat(self) -> None:
        with self.store.write() as transaction:
            now = self.store.now(transaction)
            owner = LeaseOwner.current(self.node)
            started_at = self._started_at = self._started_at or now
            about = {BESIDE: {child.name: child.problem for child in self._dagster}} if self._dagster else {}
            node = Node(self.node, owner, self.url, __version__, started_at, now, self._clock.now(), about=about)
            save_node(transaction, node)
            add_state_place(transaction, NAME, self._state_place)

    def _take_in(self, report: JobReport) -> None:
        self.orchestrator.report(report)
        if report.status.is_final:
            self._wake_up()

    def _changed(self) -> None:
        """Look soon what a request changed; executors look for orders many times a second by themselves."""
        self._wake.set()

    def _wake_up(self) -> None:
        self._wake.set()
        self._wake_executors()

    def _wake_executors(self) -> None:
        self.executor.wake()
        self.remote.wake()

    def _copy_age_s(self) -> float | None:
        return self._replica.age_s if self._replica is not None and self._replica.has_flows else None

    def _problems(self) -> list[str]:
        try:
            with self.store.read() as transaction:
                self.store.now(transaction)
        except GobblinDagsterError as error:
            return [str(error)]
        return [self._store_problem] if self._store_problem else []


def _catalog_resources(
    store: ServiceStore, manager: FlowManager, orchestrator: Orchestrator, guard: Guard, compiler: FlowCompiler
) -> dict[str, Resource]:
    flows = FlowConfigsResource(store, manager, guard, compiler.explain)
    executions = FlowExecutionsResource(store, orchestrator, guard)
    return {"flowconfigs": flows, "flowconfigsV2": flows, "flowexecutions": executions, "flowstatuses": executions}


def _allow_files() -> None:
    """Let the process open as many files as its user may: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(MAX_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
