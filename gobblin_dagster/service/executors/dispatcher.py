"""Dispatcher: hands the orders of the outbox to an executor, and the executor's reports to the orchestrator.

An order is dropped once the executor has it, a report is acknowledged once it is durable. So a kill between two steps
repeats the first one, which changes nothing the second time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from gobblin_dagster.core.errors import GobblinDagsterError, StorageError, TransientError
from gobblin_dagster.service.executors.announcements import save_announced
from gobblin_dagster.service.executors.base import ReportingExecutor, job_key, order_key
from gobblin_dagster.service.executors.flows_around import FlowsAround, with_flows_around
from gobblin_dagster.service.executors.messages import RunOrder
from gobblin_dagster.service.executors.rates import NO_LIMIT, Rate, job_rate, with_rate
from gobblin_dagster.service.executors.turns import Turns
from gobblin_dagster.service.logs import about
from gobblin_dagster.service.model import ExecutionStatus, JobReport
from gobblin_dagster.service.store.job_rows import load_job, open_jobs
from gobblin_dagster.service.store.order_rows import Order, drop_orders, list_orders
from gobblin_dagster.service.store.store import ServiceStore, Transaction

log = logging.getLogger(__name__)

BATCH = 100
"""Orders, and reports, that one step works on at most."""
_ALL = 1_000_000
TICK_S = 0.5
"""How often the outbox and the executor are looked at."""
MAX_WAIT_S = 10.0
"""Seconds between two tries at most, while the executor is away."""
HEALTH_S = 5.0
"""How often the executor is asked whether jobs would wait there."""
LOST_S = 30.0
"""An executor that would keep jobs waiting for so long counts as lost: others take its jobs, if they can."""


class Dispatcher:
    """Serves one executor.

    Args:
        store: the service's store.
        executor: the executor.
        report: called with what becomes of jobs; raises TransientError or StorageError while the store is away.
        is_active: whether this node is to do the work now; two nodes that do harm nothing.
        jobs_at_once: jobs that the executor has at most; more wait in the outbox, in order. None: as many as there are.
        rate: speed that each of its jobs may have.
        tells_flows: whether its workers must learn from orders which flows there are: they do not reach this store.

    Source: gobblin-service `DagManager` and `KafkaJobStatusMonitor`, at their edge to `SpecProducer`.
    """

    def __init__(
        self,
        store: ServiceStore,
        executor: ReportingExecutor,
        report: Callable[[JobReport], None],
        is_active: Callable[[], bool] = lambda: True,
        jobs_at_once: int | None = None,
        rate: Rate = NO_LIMIT,
        *,
        tells_flows: bool = False,
    ) -> None:
        self._tells_flows = tells_flows
        self._rate = rate
        self._jobs_at_once = jobs_at_once
        self.executor = executor
        self.problem = ""
        """Why orders and reports wait; empty if they do not."""
        self._store = store
        self._report = report
        self._is_active = is_active
        self._look_at = 0.0
        self._away_since: float | None = None
        self._wait_s = TICK_S
        self._turns = Turns(f"executor-{executor.name}", self._turn)

    @property
    def is_lost(self) -> bool:
        """Whether jobs have waited, or would have, for too long; only the node knows that hands over the orders."""
        since = self._away_since
        return since is not None and time.monotonic() - since >= LOST_S

    def start(self) -> None:
        """Serve the executor in a thread."""
        self._turns.start()

    def wake(self) -> None:
        """Look at the outbox now."""
        self._turns.wake()

    def stop(self) -> None:
        """End the thread; jobs go on where they run."""
        self._turns.end()
        self._turns.join()
        self.executor.close()

    def step(self) -> int:
        """Hand over what there is to, in both directions; return how much it was."""
        return self._hand_over() + self._collect()

    def _hand_over(self) -> int:
        with self._store.read() as transaction:
            orders = self._next_orders(transaction)
        done: list[Order] = []
        away: GobblinDagsterError | None = None
        for order in orders:
            with about(order.execution, order.job):
                try:
                    self._order(order)
                except (TransientError, StorageError) as error:
                    away = error
                    break
                except GobblinDagsterError as error:
                    # Tried again it would fail again, and keep all orders behind it waiting.
                    self._report(_refused(order, error))
                done.append(order)
        if done:
            with self._store.write() as transaction:
                drop_orders(transaction, done)
        if away is not None:
            raise away
        return len(done)

    def _next_orders(self, transaction: Transaction) -> list[Order]:
        """Return orders, the oldest first; of those to run jobs as many as the executor has room for."""
        if self._jobs_at_once is None:
            return list_orders(transaction, self.executor.name, BATCH)
        orders = list_orders(transaction, self.executor.name, _ALL)
        # Counted, so that a restart neither loses nor invents any. Orders of attempts that are over take no place.
        open_keys = {job_key(execution, job) for execution, job in open_jobs(transaction, self.executor.name)}
        starts = [order for order in orders if not order.is_stop and order_key(order) in open_keys]
        there = len(open_keys - set(map(order_key, starts)))
        waiting = {order.number for order in starts[max(self._jobs_at_once - there, 0) :]}
        return [order for order in orders if order.number not in waiting][:BATCH]

    def _order(self, order: Order) -> None:
        key = order_key(order)
        if order.is_stop:
            self.executor.delete(key)
            log.info("executor %s has the order to end job %s", self.executor.name, key)
            return
        with self._store.read() as transaction:
            job = load_job(transaction, order.execution, order.job)
            rate = job_rate(transaction, order.execution, self._rate)
            around = FlowsAround.of(transaction, order.job) if self._tells_flows else None
        if job is not None and job_key(order.execution, job) == key and not job.status.is_final:
            body = with_rate(job.job.body, rate)
            self.executor.add(RunOrder(key, "", body if around is None else with_flows_around(body, around)))
            log.info("executor %s has the order to run job %s", self.executor.name, key)

    def _collect(self) -> int:
        reports = self.executor.take_reports(BATCH)
        for report in reports:
            if self._is_ours(report):
                self._report(report)
        self.executor.acknowledge(reports)
        return len(reports)

    def _is_ours(self, report: JobReport) -> bool:
        """Tell whether a job was given to this executor: none may report jobs of others."""
        with self._store.read() as transaction:
            job = load_job(transaction, report.execution, report.job)
        is_ours = job is not None and job.job.executor == self.executor.name
        if job is not None and not is_ours:
            log.warning("executor %s reports job %s, which is not its own", self.executor.name, report.key)
        return is_ours

    def _look(self) -> None:
        """Note since when the executor keeps jobs waiting."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + HEALTH_S
        problem = "it could not be asked"
        try:
            problem = self.executor.health() if self._is_active() else ""
        finally:  # an executor that answers what none does keeps jobs waiting too
            if not problem:
                self._away_since = None
            elif self._away_since is None:
                self._away_since = time.monotonic()

    def _turn(self) -> float:
        try:
            self._look()
            while self._is_active() and not self._turns.is_ending and self.step() >= BATCH:
                pass
            self._note_workers()
            self._wait_s, self.problem = TICK_S, ""
        except GobblinDagsterError as error:
            self._wait_s = min(2 * self._wait_s, MAX_WAIT_S)
            self._tell(str(error))
        except Exception as error:  # a fault with one executor must not stop it for ever
            log.exception("executor %s: orders and reports wait", self.executor.name)
            self._wait_s, self.problem = MAX_WAIT_S, f"{type(error).__name__}: {error}"
        return self._wait_s

    def _note_workers(self) -> None:
        """Keep what workers have announced."""
        if workers := self.executor.take_announcements():
            with self._store.write() as transaction:
                save_announced(transaction, self.executor.name, workers, self._store.now(transaction))

    def _tell(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("executor %s: orders and reports wait: %s", self.executor.name, problem)
        self.problem = problem


def _refused(order: Order, error: GobblinDagsterError) -> JobReport:
    message = f"executor {order.executor} cannot take the order: {error}"
    attempt = order.execution, order.job, order.generation, order.attempt
    return JobReport(*attempt, ExecutionStatus.FAILED, message, may_retry=False)
