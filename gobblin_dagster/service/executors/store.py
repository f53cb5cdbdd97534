"""The executor `store`: workers share a database with the service. `Inbox` is the worker's side of it.

Workers behind other ways of transport keep their orders in the same tables, in a database of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from gobblin_dagster.service.executors.announcements import is_afar
from gobblin_dagster.service.executors.claims import PATIENCE_S, Claims
from gobblin_dagster.service.executors.messages import RunOrder
from gobblin_dagster.service.executors.monitor import Taken
from gobblin_dagster.service.model import JobKey, JobReport
from gobblin_dagster.service.store.node_rows import Node, load_nodes
from gobblin_dagster.service.store.role_rows import database_name
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.store.worker_rows import (
    add_job,
    begin_job,
    change_body,
    give_jobs,
    has_jobs,
    left_jobs,
    list_jobs,
    mark_told,
    save_report,
    stop_job,
    stops_of,
    untold_reports,
)
from gobblin_dagster.service.topology.model import CapabilitySpec

log = logging.getLogger(__name__)


class StoreExecutor:
    """Orders jobs from workers by rows of a database, and reads their reports there.

    Args:
        name: of the executor.
        store: the database: the service's own, or the worker's behind another way of transport.
        description: for people.
        capabilities: kinds of movement that it can do.

    Each method is one transaction.

    Source: gobblin-runtime `FsSpecExecutor`, whose specs are files. Differs: rows, so that each job goes to one worker.
    """

    def __init__(
        self, name: str, store: ServiceStore, description: str = "", capabilities: Sequence[CapabilitySpec] = ()
    ) -> None:
        self.name = name
        self.description = description
        self.capabilities = tuple(capabilities)
        self._store = store

    @property
    def uri(self) -> str:
        """The database and the executor."""
        return f"store:{self._store.url}#{self.name}"

    @property
    def config(self) -> Mapping[str, str]:
        """Its settings."""
        return {"store": self._store.url}

    def health(self) -> str:
        """Return why jobs would wait: no worker was heard of."""
        return "" if self.alive_workers() else f"no worker of executor {self.name} runs"

    def add(self, order: RunOrder) -> None:
        """Order a job."""
        with self._store.write() as transaction:
            add_job(transaction, self.name, order.key, order.body, self._store.now(transaction))

    def update(self, order: RunOrder) -> None:
        """Give a job that has not begun another body."""
        with self._store.write() as transaction:
            change_body(transaction, order.key, order.body)

    def delete(self, key: JobKey) -> None:
        """Order the end of a job."""
        with self._store.write() as transaction:
            stop_job(transaction, self.name, key, self._store.now(transaction))

    def list(self) -> Sequence[JobKey]:
        """Return the jobs that are not over."""
        with self._store.read() as transaction:
            return [job.key for job in list_jobs(transaction, self.name)]

    def take_reports(self, limit: int) -> Sequence[JobReport]:
        """Return reports that were not acknowledged."""
        with self._store.read() as transaction:
            return untold_reports(transaction, self.name, limit)

    def acknowledge(self, reports: Sequence[JobReport]) -> None:
        """Note that the service has reports."""
        if not reports:
            return
        with self._store.write() as transaction:
            mark_told(transaction, reports)

    def take_announcements(self) -> Sequence[Node]:
        """Return none: workers write theirs into the store."""
        return ()

    def alive_workers(self) -> Sequence[Node]:
        """Return the workers that say in this store that they are alive."""
        with self._store.read() as transaction:
            now = self._store.now(transaction)
            known = [worker for worker in load_nodes(transaction, self.name) if not is_afar(worker)]
            return [worker for worker in known if worker.is_alive(now)]

    def store_name(self) -> str:
        """Return the name of the database; a database that is older has a name that sorts before it."""
        with self._store.write() as transaction:
            return database_name(transaction, self._store.now(transaction))

    def close(self) -> None:
        """Leave the store open: it is its maker's."""


class Inbox:
    """The inlet of a worker's `JobMonitor`: the jobs that were ordered from its executor.

    Args:
        executor: the executor.
        store: where the orders are.
        worker: names this process; jobs that it took are its own while it is alive.
        about: what the worker announces (`Node.about`); it takes only jobs that it can run then. Default: all.
        patience_s: seconds that a job waits while no worker can run it.
    """

    def __init__(
        self,
        executor: str,
        store: ServiceStore,
        worker: str,
        about: Mapping[str, Any] = MappingProxyType({}),
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._executor = executor
        self._store = store
        self._worker = worker
        self._claims = Claims(executor, store, worker, about, patience_s)

    def take_over(self) -> Sequence[JobKey]:
        """Take up the jobs of workers that are gone; those that this one cannot run are free for others."""
        with self._store.write() as transaction:
            now = self._store.now(transaction)
            alive = [one.name for one in load_nodes(transaction, self._executor) if one.is_alive(now)]
            left = left_jobs(transaction, self._executor, self._worker, alive)
            own = [one.key for one in left if one.is_stop_requested or self._claims.can_run(one)]
            give_jobs(transaction, own, self._worker)
            give_jobs(transaction, {one.key for one in left} - set(own), "")
            return own

    def take(self, free: int) -> Sequence[Taken]:
        """Take jobs, and orders to end jobs of this worker."""
        with self._store.read() as transaction:
            if not has_jobs(transaction, self._executor):
                return []
        with self._store.write() as transaction:
            stops = [Taken(key, is_stop=True) for key in stops_of(transaction, self._executor, self._worker)]
            choice = self._claims.take(transaction, free)
            now = self._store.now(transaction)
            failed = [report for report in choice.failed if save_report(transaction, report, "", now)]
        for report in failed:
            log.warning("job %s fails: %s", report.key, report.message)
        return [*stops, *map(Taken, choice.taken)]

    def begin(self, key: JobKey, run_id: str) -> str | None:
        """Note that a job is handed over, and return its body."""
        with self._store.write() as transaction:
            return begin_job(transaction, key, self._worker, run_id, self._store.now(transaction))

    def tell(self, report: JobReport) -> None:
        """Store a report."""
        with self._store.write() as transaction:
            save_report(transaction, report, self._worker, self._store.now(transaction))
