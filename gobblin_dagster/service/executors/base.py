"""SpecExecutor: what the service sees of a place that runs jobs, whichever way orders and reports travel.

An order goes to an executor at least once, a report comes back at least once: both may come twice and late. So an
executor begins each `JobKey` once, however often it is added, and the service takes in each report once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from gobblin_dagster.service.executors.messages import RunOrder
from gobblin_dagster.service.model import ExecutionId, JobKey, JobReport
from gobblin_dagster.service.store.job_rows import JobExecution
from gobblin_dagster.service.store.node_rows import Node
from gobblin_dagster.service.store.order_rows import Order
from gobblin_dagster.service.topology.model import CapabilitySpec


class SpecExecutor(Protocol):
    """A place that runs jobs.

    Called by the service, on one node at a time, in one thread for each executor. A method that raises TransientError
    is called again; what it did before it was killed must be harmless then.

    Source: gobblin-runtime `SpecExecutor`, `SpecProducer`. Differs: no futures; a
        call returns once its effect is durable.
    """

    name: str
    """Under this name the orchestrator gives it jobs."""

    @property
    def uri(self) -> str:
        """Where it is; holds no secret."""

    @property
    def description(self) -> str:
        """What it is, for people."""

    @property
    def config(self) -> Mapping[str, str]:
        """Its settings, for people; holds no secret."""

    @property
    def capabilities(self) -> Sequence[CapabilitySpec]:
        """Kinds of movement that it can do."""

    def health(self) -> str:
        """Return why jobs would wait there now; empty if one would be begun."""

    def add(self, order: RunOrder) -> None:
        """Order a job. A key that was added, or deleted, before changes nothing."""

    def update(self, order: RunOrder) -> None:
        """Give a job that was added and has not begun another body; one that has begun keeps its own."""

    def delete(self, key: JobKey) -> None:
        """Order the end of a job. One that has not begun, or never came, is reported as cancelled and never begins."""

    def list(self) -> Sequence[JobKey]:
        """Return the jobs that were added and are not over, oldest execution first."""


class ReportingExecutor(SpecExecutor, Protocol):
    """An executor that the service asks what became of its jobs."""

    def take_reports(self, limit: int) -> Sequence[JobReport]:
        """Return reports that were not acknowledged, in order for each job; again until they are."""

    def acknowledge(self, reports: Sequence[JobReport]) -> None:
        """Forget reports, which the service has made durable: those that `take_reports` returned last."""

    def take_announcements(self) -> Sequence[Node]:
        """Return the workers that have announced themselves since the last call, and do not do so in the store."""

    def close(self) -> None:
        """Let connections go."""


def order_key(order: Order) -> JobKey:
    """Return the key of the job that an order of the outbox is about."""
    return JobKey.of(order.execution, order.job, order.generation, order.attempt)


def job_key(execution: ExecutionId, job: JobExecution) -> JobKey:
    """Return the key of the attempt that a job is at."""
    return JobKey.of(execution, job.job.name, job.generation, job.attempt)
