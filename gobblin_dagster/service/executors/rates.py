"""Rates: the speed that a flow, or an executor, shares among its jobs, and the part of it that a job gets.

A job gets its part when it is handed over and keeps it to its end: jobs that end leave more to those that begin later.
The parts are so small that those of all jobs that may run at once are the whole together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gobblin_dagster.service.catalog.flow_config import FlowSettings
from gobblin_dagster.service.catalog.templates import keys_of_body
from gobblin_dagster.service.model import DagJob, ExecutionId
from gobblin_dagster.service.store.execution_rows import load_execution
from gobblin_dagster.service.store.flow_rows import load_version
from gobblin_dagster.service.store.job_rows import unfinished_jobs
from gobblin_dagster.service.store.store import Transaction


@dataclass(frozen=True, slots=True)
class Rate:
    """A highest speed; None: no limit."""

    rows_per_second: float | None = None
    bytes_per_second: float | None = None

    def split(self, ways: int) -> Rate:
        """Return one of so many equal parts."""
        return Rate(*(None if one is None else one / ways for one in (self.rows_per_second, self.bytes_per_second)))

    def lower(self, other: Rate) -> Rate:
        """Return the lower one of two rates, of rows and of bytes."""
        return Rate(
            _lower(self.rows_per_second, other.rows_per_second), _lower(self.bytes_per_second, other.bytes_per_second)
        )


NO_LIMIT = Rate()


def job_rate(transaction: Transaction, execution: ExecutionId, of_executor: Rate = NO_LIMIT) -> Rate:
    """Return the speed that a job of an execution may have if it begins now.

    Args:
        transaction: open.
        execution: the job's.
        of_executor: what its executor lets each of its jobs have.

    Source: gobblin-restli `LimiterServerResource`, `ThrottlingPolicy`. Differs: no server is asked while the job
        runs; it gets a part of the whole that it keeps.
    """
    found = load_execution(transaction, execution)
    spec = None if found is None else load_version(transaction, execution.flow, found.version)
    if spec is None:
        return of_executor
    settings = FlowSettings.stored(spec.config.properties)
    of_flow = Rate(settings.rows_per_second, settings.bytes_per_second)
    if of_flow == NO_LIMIT:
        return of_executor
    by_execution: dict[ExecutionId, list[DagJob]] = {}
    for one, job in unfinished_jobs(transaction, execution.flow):
        by_execution.setdefault(one, []).append(job.job)
    ways = sum(width(jobs) for jobs in by_execution.values())
    return of_flow.split(max(1, ways)).lower(of_executor)


def with_rate(body: str, rate: Rate) -> str:
    """Return a job file as JSON with a rate of the whole job, unless it has a lower one; keys of Gobblin's stay."""
    if rate == NO_LIMIT or keys_of_body(body) is not None:
        return body
    document = json.loads(body)
    execution = document.get("execution") or {}
    own = execution.get("rate") or {}
    wanted = {"rows_per_second": rate.rows_per_second, "bytes_per_second": rate.bytes_per_second}
    changed = own | {name: _lower(_number(own.get(name)), value) for name, value in wanted.items() if value is not None}
    return json.dumps({**document, "execution": {**execution, "rate": changed}}, separators=(",", ":"))


def width(jobs: Sequence[DagJob]) -> int:
    """Return how many jobs of a DAG may run at once: the most jobs among which none is before another.

    By Dilworth's theorem that is the least number of chains which hold all jobs; a matching of jobs with later ones
    finds it. Jobs stand after their parents; parents that are missing are over.
    """
    before: dict[str, set[str]] = {}
    for job in jobs:
        parents = [parent for parent in job.parents if parent in before]
        before[job.name] = set(parents).union(*(before[parent] for parent in parents))
    follower: dict[str, str] = {}
    """For each job the one after it in its chain."""

    def finds_chain(name: str, tried: set[str]) -> bool:
        for earlier in before[name] - tried:
            tried.add(earlier)
            if earlier not in follower or finds_chain(follower[earlier], tried):
                follower[earlier] = name
                return True
        return False

    return len(jobs) - sum(finds_chain(name, set()) for name in before)


def _lower(*rates: float | None) -> float | None:
    return min(_known(rates), default=None)


def _known(rates: Iterable[float | None]) -> list[float]:
    return [one for one in rates if one is not None]


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None
