"""JobPolls: ask the jobs of a sensor for new data, in turn, within the time limit of a tick."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass

from gobblin_dagster.engine.new_data import NewDataPoller, PollResult, SharedStore, plans_with_spark
from gobblin_dagster.orchestration.binding import JobBinding
from gobblin_dagster.orchestration.resources import GobblinSparkResource

INTERVAL_S, SPARK_INTERVAL_S = 10, 120
"""Seconds between two plans of a job; the second for sources that plan with Spark, where each plan costs Spark jobs."""


@dataclass(slots=True)
class _JobPoll:
    binding: JobBinding
    poller: NewDataPoller
    pause_s: float
    """Seconds between two polls of the job, if they are more than those between two ticks; else 0."""
    asked_at: float = float("-inf")
    is_late: bool = False
    """Whether the poll goes on: it was begun in an earlier tick and has not answered yet."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tick knows of one job: the result of its poll, why there is none, or that the poll goes on."""

    binding: JobBinding
    result: PollResult | None = None
    error: Exception | None = None
    seconds: float = 0.0
    """For a poll that goes on: for how long."""


class JobPolls:
    """The polls of several jobs. They run one after the other, but a slow job is not waited for a second time.

    Its poll goes on in a thread, and a later tick gets the answer. Jobs for which a tick has no time left come first
    in the next one.
    """

    def __init__(self, bindings: Iterable[JobBinding], spark: GobblinSparkResource, tick_s: float) -> None:
        self._jobs = []
        for one in bindings:
            pause_s = SPARK_INTERVAL_S if plans_with_spark(one.job) and tick_s < SPARK_INTERVAL_S else 0
            poller = NewDataPoller.of(one.project, one.job, spark.spec, spark.log_path)
            self._jobs.append(_JobPoll(one, poller, pause_s))

    def ask(self, patience_s: float, is_wanted: Callable[[JobBinding], bool] = lambda _: True) -> Iterator[Answer]:
        """Yield the answers of jobs, waiting `patience_s` seconds in all. Jobs that are not due have none.

        Raises as `Project.open_store`, if a job is due.
        """
        wanted = [one for one in sorted(self._jobs, key=lambda one: one.asked_at) if is_wanted(one.binding)]
        end = time.monotonic() + patience_s
        with ExitStack() as opened:
            shared: SharedStore | None = None
            for job in wanted:
                now = time.monotonic()
                if job.is_late:
                    yield self._answer(job, max(end - now, 0.0) if len(self._jobs) == 1 else 0.0, shared)
                elif now < end and now - job.asked_at >= job.pause_s:
                    shared = shared or opened.enter_context(closing(SharedStore(job.binding.project.open_store())))
                    job.asked_at = now
                    yield self._answer(job, end - now, shared)

    @staticmethod
    def _answer(job: _JobPoll, patience_s: float, shared: SharedStore | None) -> Answer:
        job.is_late = False
        try:
            result = job.poller.ask(patience_s, shared)
        except Exception as error:  # noqa: BLE001 - the sensor tells it, and goes on with the other jobs
            return Answer(job.binding, error=error)
        job.is_late = result is None
        return Answer(job.binding, result, seconds=job.poller.seconds)
