"""Claims: which jobs of its executor a worker takes. A job that it cannot run is left to a worker that can.

Workers of one executor may have different packages, and each announces what it can do. A job that none of the workers
that are alive can run waits for one that can, and then fails with what is missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gobblin_dagster.service.executors.job_body import body_needs
from gobblin_dagster.service.model import ExecutionStatus, JobKey, JobReport
from gobblin_dagster.service.store.node_rows import load_nodes
from gobblin_dagster.service.store.store import ServiceStore, Transaction
from gobblin_dagster.service.store.worker_rows import WorkerJob, free_jobs, take_free
from gobblin_dagster.service.topology.capabilities import NO_NEEDS, Needs, read_announced

PATIENCE_S = 60.0
"""How long a job that no worker can run waits, for instance for a worker that starts again."""


_MORE = 4
"""How many jobs are looked at for each one that is taken."""
_PAUSE = 9
"""How long the next look at jobs that are left waits, as a multiple of the time that the last one took."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What became of jobs that nobody held."""

    taken: list[JobKey] = field(default_factory=list)
    failed: list[JobReport] = field(default_factory=list)
    """Jobs that no worker can run, with what is missing."""


@dataclass(frozen=True, slots=True)
class _Left:
    """A job that is left to other workers."""

    body: int
    """Hash of its body, which may be replaced while the job waits."""
    needs: Needs
    since: float
    """Since when no worker that is alive can run it, by the process's own clock."""


class Claims:
    """Chooses jobs for one worker.

    Args:
        executor: the executor that it works for.
        store: where the jobs are.
        worker: its name among the nodes.
        about: what it announces; a worker that announces no constructs takes every job.
        patience_s: seconds that a job waits while no worker can run it.
        clock: returns seconds that only grow.
    """

    def __init__(
        self,
        executor: str,
        store: ServiceStore,
        worker: str,
        about: Mapping[str, Any],
        patience_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._executor = executor
        self._store = store
        self._worker = worker
        self._own = read_announced(about)
        self._patience_s = patience_s
        self._clock = clock
        self._left: dict[JobKey, _Left] = {}
        self._look_at = 0.0

    def can_run(self, job: WorkerJob) -> bool:
        """Tell whether this worker has what a job needs."""
        return not self._misses(self._needs(job))

    def _needs(self, job: WorkerJob) -> Needs:
        return NO_NEEDS if self._own is None else body_needs(job.key.job, job.body)

    def _misses(self, needs: Needs) -> list[str]:
        return [] if self._own is None else self._own.lacks(needs)

    def take(self, transaction: Transaction, limit: int) -> Choice:
        """Take at most `limit` jobs that nobody holds and that this worker can run, the oldest execution first.

        Jobs that are left are looked at again, for a tenth of the time at most, however many they are.
        """
        begun_at = self._clock()
        if limit <= 0 or begun_at < self._look_at:
            return Choice()
        most = _MORE * limit  # others may be quicker with the first ones
        free = free_jobs(transaction, self._executor, most + 2 * len(self._left))
        known, self._left = self._left, {}
        fit: list[JobKey] = []
        for job in free:
            left = known.get(job.key)
            if left is None or left.body != hash(job.body):
                if len(fit) == most:
                    continue
                left = _Left(hash(job.body), self._needs(job), begun_at)
                if not self._misses(left.needs):
                    fit.append(job.key)
                    continue
            self._left[job.key] = left
        taken = take_free(transaction, self._executor, self._worker, fit, limit)
        failed = self._fail_hopeless(transaction) if self._left else []
        if self._left and self._left.keys() <= known.keys():
            self._look_at = self._clock() + _PAUSE * (self._clock() - begun_at)
        return Choice(taken, failed)

    def _fail_hopeless(self, transaction: Transaction) -> list[JobReport]:
        """Return reports of the jobs that were left for long while no worker could run them."""
        now = self._store.now(transaction)
        nodes = [one for one in load_nodes(transaction, self._executor) if one.is_alive(now)]
        others = [read_announced(one.about) for one in nodes if one.name != self._worker]
        failed = []
        for key, left in list(self._left.items()):
            missing = [one.lacks(left.needs) if one is not None else [] for one in (self._own, *others)]
            if not all(missing):  # a worker of an older program, which announces nothing, may be one that can
                self._left[key] = replace(left, since=self._clock())
            elif self._clock() - left.since >= self._patience_s:
                del self._left[key]
                failed.append(JobReport.of(key, ExecutionStatus.FAILED, self._told(missing)))
        return failed

    def _told(self, missing: Sequence[list[str]]) -> str:
        least = min(missing, key=len)
        return (
            f"no worker of {self._executor} has {', '.join(least)}; it waited {self._patience_s:g} s for one that has"
        )
