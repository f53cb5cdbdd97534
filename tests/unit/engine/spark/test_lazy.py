"""Spark starts once, whoever asks for it first."""

from __future__ import annotations

import threading
from contextlib import suppress

from gobblin_dagster.engine.spark.lazy import LazySparkRunner
from gobblin_dagster.spec.project import SparkSpec


class _Meeting(LazySparkRunner):
    """Counts its starts; who sees that nothing has started waits for a second one to see the same."""

    both = threading.Barrier(2)
    starts = 0

    @property
    def _thread(self) -> threading.Thread | None:
        seen: threading.Thread | None = self.__dict__.get("thread")
        if seen is None:
            with suppress(threading.BrokenBarrierError):
                self.both.wait(0.2)
        return seen

    @_thread.setter
    def _thread(self, thread: threading.Thread | None) -> None:
        self.__dict__["thread"] = thread

    def _start(self) -> None:
        self.starts += 1


def test_jobs_that_begin_at_once_start_one_spark() -> None:
    runner = _Meeting(SparkSpec(start="always"))
    jobs = [threading.Thread(target=runner.start_early) for _ in range(2)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    started = runner._thread
    assert started is not None
    started.join()
    assert runner.starts == 1


def test_spark_that_did_not_start_is_not_said_to_have_ended() -> None:
    class Failing(LazySparkRunner):
        def _start(self) -> None:
            self._error = RuntimeError("no Java")

    runner = Failing(SparkSpec(start="always"))
    with suppress(RuntimeError):
        runner.started()
    assert not runner.is_started
