"""WorkerNode: one process of `gobblin worker --executor`, which runs the jobs of an executor of the topology.

It supervises a child that holds Spark, so that a construct that crashes takes neither heartbeat nor reports with it.
What jobs may use is what the `gobblin.yaml` of the worker's own project allows, whatever an order says.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Protocol

from pydantic import ValidationError

from gobblin_dagster import __version__
from gobblin_dagster.core.clock import Clock, SystemClock
from gobblin_dagster.core.errors import GobblinDagsterError, UsageError
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.utils.cut_off import cut_off_all
from gobblin_dagster.database.engine import parse_url
from gobblin_dagster.service.executors.announcements import STATE
from gobblin_dagster.service.executors.kafka import KafkaLink
from gobblin_dagster.service.executors.monitor import JobMonitor
from gobblin_dagster.service.executors.rest import RestInletSpec, RestLink
from gobblin_dagster.service.executors.store import Inbox, StoreExecutor
from gobblin_dagster.service.executors.worker_process import WorkerChannel, WorkerProcess
from gobblin_dagster.service.store.node_rows import Node, delete_node, save_node
from gobblin_dagster.service.store.state_place_rows import add_state_place
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.store.worker_rows import forget_old_jobs
from gobblin_dagster.service.topology.capabilities import announce
from gobblin_dagster.service.topology.model import KafkaTopics
from gobblin_dagster.spec.job import ConstructSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.state.place import state_place

log = logging.getLogger(__name__)

WORKER_LOG = ".gobblin/worker-{executor}.log"
WORKER_STORE = "sqlite:///.gobblin/worker.db"
"""Where a worker keeps orders that come from elsewhere than a database."""
BEAT_S = 3
"""How often a worker says that it is alive."""


class Link(Protocol):
    """Carries orders into a worker's store, and reports out of it."""

    def start(self) -> None:
        """Begin, in threads."""

    def stop(self) -> None:
        """End, once what can be carried is."""


def make_link(inlet: ConstructSpec, inbox: StoreExecutor, root: Path, worker: str) -> Link | None:
    """Return what carries orders of an inlet; None if the service writes them into the store itself.

    Raises:
        UsageError: there is no such inlet, or its options have faults.
    """
    if inlet.type == "store" and not inlet.options:
        return None
    try:
        if inlet.type == "kafka":
            return KafkaLink(KafkaTopics.model_validate(inlet.options), inbox, root, worker=worker)
        if inlet.type == "rest":
            return RestLink(RestInletSpec.model_validate(inlet.options), inbox, root)
    except ValidationError as error:
        told = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise UsageError(
            problem=f"`worker.inlet` in gobblin.yaml has faults: {told}.",
            hint="Its keys stand on the page on the topology, with the workers of an executor.",
        ) from error
    raise UsageError(
        problem=f"`worker.inlet` in gobblin.yaml is {inlet.type!r} with {', '.join(inlet.options) or 'no options'}.",
        hint="Set `{type: store}`, `{type: kafka, brokers: ..., orders: ..., reports: ...}`, or `{type: rest, ...}`.",
    )


class WorkerNode:
    """A worker of one executor.

    Args:
        executor: its name in the topology.
        root: the folder of the worker's own project.
        spec: the worker's `gobblin.yaml`.
        command: starts the child that runs jobs.
        clock: tells the time where the database has no clock.
        channel: what runs jobs, in place of the child.

    Raises:
        StorageError, StoreVersionError: the store of orders cannot be opened, and waiting would not help.
        UsageError: the inlet has faults, or a package of the user declares a construct with a fault.

    Source: gobblin-cluster `GobblinTaskRunner`, `GobblinClusterManager`.
    """

    def __init__(
        self,
        executor: str,
        root: Path,
        spec: ProjectSpec,
        command: Sequence[str],
        clock: Clock | None = None,
        channel: WorkerChannel | None = None,
    ) -> None:
        self._executor = executor
        self._clock = clock or SystemClock()
        own = {"jobs_at_once": spec.worker.jobs_at_once, "inlet": spec.worker.inlet.type}
        self._state_place = state_place(spec.state, root)
        self._about = own | announce(spec.allow.lists) | {STATE: self._state_place}
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        is_shared = spec.worker.inlet.type == "store"
        url = parse_url(spec.worker.store or (spec.service.store if is_shared else WORKER_STORE), root)
        self.store = ServiceStore(url, self._clock, may_be_away=True)
        log_file = root / WORKER_LOG.format(executor=executor)
        self.monitor = JobMonitor(
            executor,
            Inbox(executor, self.store, self.name, self._about),
            channel or WorkerProcess(command, root, log_file),
            self._clock,
            spec.worker.jobs_at_once,
        )
        self.link = make_link(spec.worker.inlet, StoreExecutor(executor, self.store), root, self.name)
        self._ended = threading.Event()
        self._beats: threading.Thread | None = None
        self._started_at: datetime | None = None

    @property
    def inlet(self) -> str:
        """Where orders come from, once `start` has returned: the address that the service calls, or the database."""
        return self.link.url if isinstance(self.link, RestLink) else str(self.store.url)

    def start(self) -> None:
        """Say that the worker is alive, and take jobs."""
        self._beat_or_warn()
        self._beats = threading.Thread(target=self._beat_on, name="heartbeat", daemon=True)
        self._beats.start()
        self.monitor.start()
        if self.link is not None:
            self.link.start()

    def stop(self, *, at_once: bool = False) -> None:
        """End the jobs that run: what is whole is committed, the rest is another worker's.

        Args:
            at_once: do not wait for running jobs.
        """
        if at_once:
            self.monitor.kill()
            self.monitor.join()
        else:
            self.monitor.stop()
        if self.link is not None:
            self.link.stop()
        # Until here the worker says that it is alive, so that no other one takes up the jobs that end.
        self._ended.set()
        if self._beats is not None:
            self._beats.join()
        try:
            with self.store.write() as transaction:
                delete_node(transaction, self.name)
        except GobblinDagsterError as error:
            log.warning("other workers notice by its silence that this one has ended: %s", error)
        self.store.close()

    def run(self, started: Callable[[], None]) -> int:
        """Take jobs until a signal comes; return the exit code. A second signal ends the worker at once."""
        signals: list[int] = []

        def end(number: int, _frame: FrameType | None) -> None:
            signals.append(number)
            log.info("signal %d: %s", number, "ending" if len(signals) == 1 else "ending at once")
            if len(signals) > 1:
                self.monitor.kill()
                cut_off_all()  # threads may wait for a database that does not answer

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)
        self.start()
        started()
        while not signals:  # the main thread must stay free for signals, and hold no lock that their handler takes
            time.sleep(0.2)
        self.stop()
        return 0

    def _beat_on(self) -> None:
        while not self._ended.wait(BEAT_S):
            self._beat_or_warn()

    def _beat_or_warn(self) -> None:
        try:
            with self.store.write() as transaction:
                now = self.store.now(transaction)
                started_at = self._started_at = self._started_at or now
                owner = LeaseOwner.current(self.name)
                node = Node(self.name, owner, "", __version__, started_at, now, self._clock.now(), self._executor)
                save_node(transaction, replace(node, about=self._about))
                add_state_place(transaction, self._executor, self._state_place)
                forget_old_jobs(transaction, self._executor, now)
        except GobblinDagsterError as error:
            log.warning("the worker waits for its store: %s", error)
