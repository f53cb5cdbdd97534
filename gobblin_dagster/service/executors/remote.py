"""RemoteExecutors: the executors of the topology that run elsewhere, each with its dispatcher."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.service.executors.base import ReportingExecutor, job_key
from gobblin_dagster.service.executors.dispatcher import Dispatcher
from gobblin_dagster.service.executors.kafka import KafkaExecutor
from gobblin_dagster.service.executors.rates import Rate
from gobblin_dagster.service.executors.remote_dagster import DagsterExecutor, GraphqlDagster
from gobblin_dagster.service.executors.rest import HttpsClient, RestExecutor
from gobblin_dagster.service.executors.store import StoreExecutor
from gobblin_dagster.service.model import JobKey, JobReport
from gobblin_dagster.service.store.job_rows import open_jobs
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.topology.graph import EMPTY, FlowGraph
from gobblin_dagster.service.topology.model import TopologySpec

log = logging.getLogger(__name__)


def make_executor(name: str, spec: TopologySpec, store: ServiceStore, root: Path) -> ReportingExecutor | None:
    """Return an executor of the topology; None if it takes orders from the outbox by itself.

    Args:
        name: of the executor.
        spec: its declaration.
        store: the service's store.
        root: the service's project.
    """
    if spec.type == "store":
        return StoreExecutor(name, store, spec.description, spec.capabilities)
    if spec.kafka is not None:
        return KafkaExecutor(name, spec.kafka, partial(_open_jobs, store, name), spec.description, spec.capabilities)
    if spec.rest is not None:
        client = HttpsClient(spec.rest, root)
        return RestExecutor(name, spec.rest.url, client, spec.description, spec.capabilities)
    if spec.dagster is not None:
        dagster = GraphqlDagster(spec.dagster, root)
        return DagsterExecutor(name, spec.dagster, store, dagster, spec.description, spec.capabilities)
    return None


def _open_jobs(store: ServiceStore, executor: str) -> Sequence[JobKey]:
    with store.read() as transaction:
        return [job_key(execution, job) for execution, job in open_jobs(transaction, executor)]


class RemoteExecutors:
    """Starts and ends dispatchers as the topology changes; a listener of the topology.

    One that leaves the topology is served until the process ends, as jobs may be with it. Connections are made and
    ended in threads of their own: who tells of a change, such as the node's heartbeat, never waits for an executor.

    Args:
        store: the service's store.
        report: called with what becomes of jobs.
        is_active: whether this node hands over orders now.
        root: the service's project.
    """

    def __init__(
        self, store: ServiceStore, report: Callable[[JobReport], None], is_active: Callable[[], bool], root: Path
    ) -> None:
        self._root = root
        self._store = store
        self._report = report
        self._is_active = is_active
        self._lock = threading.Lock()
        self._specs: dict[str, TopologySpec] = {}
        self._dispatchers: dict[str, Dispatcher] = {}
        self._changes: dict[str, threading.Thread] = {}
        """The newest change of each executor; it waits for the one before it."""
        self._is_ending = False

    @property
    def dispatchers(self) -> Mapping[str, Dispatcher]:
        """Dispatchers by the names of their executors."""
        with self._lock:
            return dict(self._dispatchers)

    @property
    def lost(self) -> frozenset[str]:
        """Executors that keep jobs waiting for too long."""
        return frozenset(name for name, dispatcher in self.dispatchers.items() if dispatcher.is_lost)

    def start(self, graph: FlowGraph) -> None:
        """Serve the executors of a topology."""
        self.topology_changed(EMPTY, graph)

    def topology_changed(self, old: FlowGraph, new: FlowGraph) -> None:
        """Serve the executors that are new, and those whose settings changed with the new ones."""
        for name, spec in new.executors.items():
            with self._lock:
                if self._specs.get(name) == spec:
                    continue
                self._specs[name] = spec
                change = threading.Thread(
                    target=self._change, args=(name, spec, self._changes.get(name)), name=f"serve-{name}", daemon=True
                )
                self._changes[name] = change
                change.start()  # inside of the lock: the next change of this executor joins it

    def wake(self) -> None:
        """Look at the outbox now."""
        for dispatcher in self.dispatchers.values():
            dispatcher.wake()

    def stop(self) -> None:
        """End the dispatchers; jobs go on where they run."""
        self._is_ending = True
        with self._lock:
            changes = list(self._changes.values())
        for change in changes:
            change.join()
        with self._lock:
            ended = list(self._dispatchers.values())
            self._dispatchers.clear()
        for dispatcher in ended:
            dispatcher.stop()

    def _change(self, name: str, spec: TopologySpec, before: threading.Thread | None) -> None:
        """Serve an executor with new settings, once nothing serves it with the former ones."""
        if before is not None:
            before.join()
        with self._lock:
            former = self._dispatchers.pop(name, None)
        if former is not None:
            former.stop()
        if not self._is_ending and self._specs.get(name) == spec:
            self._serve(name, spec)

    def _serve(self, name: str, spec: TopologySpec) -> None:
        try:
            executor = make_executor(name, spec, self._store, self._root)
        except GobblinDagsterError as error:
            log.warning("executor %s cannot be served: %s", name, error)
            return
        if executor is None:
            return
        rate = Rate(spec.rows_per_second, spec.bytes_per_second).split(spec.jobs_at_once or 1)
        dispatcher = Dispatcher(
            self._store,
            executor,
            self._report,
            self._is_active,
            spec.jobs_at_once,
            rate,
            tells_flows=spec.type != "store",
        )
        with self._lock:
            self._dispatchers[name] = dispatcher
        dispatcher.start()
