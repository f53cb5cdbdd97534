"""EmbeddedExecutor: orders wait in the service's outbox until a node takes them; `dagster` takes them by a sensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gobblin_dagster.service.catalog.flow_config import ExecutorName
from gobblin_dagster.service.executors.base import job_key, order_key
from gobblin_dagster.service.executors.messages import RunOrder
from gobblin_dagster.service.executors.monitor import Taken
from gobblin_dagster.service.executors.rates import job_rate, with_rate
from gobblin_dagster.service.model import ExecutionStatus, JobKey, JobReport
from gobblin_dagster.service.store.job_rows import load_job, open_jobs, update_job
from gobblin_dagster.service.store.node_rows import load_nodes
from gobblin_dagster.service.store.order_rows import Order, add_orders, list_orders, take_orders, take_over_jobs
from gobblin_dagster.service.store.store import ServiceStore
from gobblin_dagster.service.topology.model import CapabilitySpec

NAME = ExecutorName.EMBEDDED.value
_ALL = 1_000_000


class QueuedExecutor:
    """An executor that takes orders from the outbox by itself: `embedded`, and `dagster`.

    Args:
        name: of the executor.
        store: the service's store.
        description: for people.
    """

    def __init__(self, name: str, store: ServiceStore, description: str = "") -> None:
        self.name = name
        self.description = description
        self._store = store

    @property
    def uri(self) -> str:
        """Where it is."""
        return f"{self.name}:"

    @property
    def config(self) -> Mapping[str, str]:
        """Its settings."""
        return {"store": self._store.url}

    @property
    def capabilities(self) -> Sequence[CapabilitySpec]:
        """All: what a job needs is in the project."""
        return [CapabilitySpec()]

    def health(self) -> str:
        """Return why jobs would wait now: whether a node runs; of Dagster's daemon nothing is known."""
        with self._store.read() as transaction:
            now = self._store.now(transaction)
            alive = [node for node in load_nodes(transaction) if node.is_alive(now)]
        return "" if alive else "no node of the service runs"

    def add(self, order: RunOrder) -> None:
        """Order a job that the store has, unless it is ordered already, begun or over."""
        self._order(order.key, is_stop=False)

    def update(self, order: RunOrder) -> None:
        """Give a job another body, if it has not begun."""
        with self._store.write() as transaction:
            job = load_job(transaction, order.key.execution_id, order.key.job)
            if job is not None and not job.run_id and not job.status.is_final:
                update_job(transaction, order.key.execution_id, order.key.job, {"body": order.body})

    def delete(self, key: JobKey) -> None:
        """Order the end of a job."""
        self._order(key, is_stop=True)

    def list(self) -> Sequence[JobKey]:
        """Return the jobs that are not over."""
        with self._store.read() as transaction:
            return [job_key(execution, job) for execution, job in open_jobs(transaction, self.name)]

    def _order(self, key: JobKey, *, is_stop: bool) -> None:
        order = Order(self.name, key.execution_id, key.job, key.generation, key.attempt, is_stop)
        with self._store.write() as transaction:
            job = load_job(transaction, key.execution_id, key.job)
            if job is None or job.status.is_final or job_key(key.execution_id, job) != key:
                return
            waiting = [(order_key(one), one.is_stop) for one in list_orders(transaction, self.name, _ALL)]
            if (key, is_stop) not in waiting and (is_stop or not job.holder):
                add_orders(transaction, [order])


class EmbeddedExecutor(QueuedExecutor):
    """The executor inside of the service's own process tree: the inlet of each node's `JobMonitor`.

    Args:
        store: the service's store.
        report: called with what becomes of jobs; raises TransientError or StorageError while the store is away.
        node: names this process; jobs that it took are its own while it is alive.

    Source: gobblin-runtime `InMemorySpecExecutor`. Differs: the jobs run, in a process that can be killed.
    """

    def __init__(self, store: ServiceStore, report: Callable[[JobReport], None], node: str) -> None:
        super().__init__(NAME, store, "the worker processes of the service")
        self._report = report
        self._node = node

    def take_over(self) -> Sequence[JobKey]:
        """Take up the jobs of nodes that are gone."""
        with self._store.write() as transaction:
            now = self._store.now(transaction)
            alive = [node.name for node in load_nodes(transaction) if node.is_alive(now)]
            left = take_over_jobs(transaction, self.name, self._node, alive)
        return [job_key(execution, job) for execution, job in left]

    def take(self, free: int) -> Sequence[Taken]:
        """Take orders from the outbox."""
        with self._store.read() as transaction:
            if not list_orders(transaction, self.name, 1):
                return []
        with self._store.write() as transaction:
            orders = take_orders(transaction, self.name, self._node, free)
        return [Taken(order_key(order), order.is_stop) for order in orders]

    def begin(self, key: JobKey, run_id: str) -> str | None:
        """Report the job as handed over, and return its body."""
        with self._store.read() as transaction:
            job = load_job(transaction, key.execution_id, key.job)
            rate = job_rate(transaction, key.execution_id)
        is_other = job is None or job_key(key.execution_id, job) != key
        if job is None or is_other or job.status.is_final or job.holder != self._node:
            return None
        self.tell(JobReport.of(key, ExecutionStatus.ORCHESTRATED, run_id=run_id))
        return with_rate(job.job.body, rate)

    def tell(self, report: JobReport) -> None:
        """Hand a report to the orchestrator."""
        self._report(report)
