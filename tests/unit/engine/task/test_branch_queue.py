"""Branches behind queues: order, back pressure, failure that blocks nobody."""

from __future__ import annotations

import threading
from typing import cast

import pyarrow as pa
import pytest

from gobblin_dagster.core.constructs import Chunk
from gobblin_dagster.core.task_state import QueueStats, TaskFailure
from gobblin_dagster.engine.task.branch import Branch
from gobblin_dagster.engine.task.branch_queue import DirectRunner, QueuedRunner, runners
from gobblin_dagster.spec.job import BranchSpec, ForkSpec


class FakeBranch:
    """Notes the chunks that it gets; may wait for a gate or fail at one."""

    def __init__(self, name: str = "b", gate: threading.Event | None = None, fail_at: int | None = None) -> None:
        self.name = name
        self.failure: TaskFailure | None = None
        self.seen: list[int] = []
        self.finished = False
        self._gate = gate
        self._fail_at = fail_at

    def write(self, chunk: Chunk) -> None:
        if self._gate is not None:
            assert self._gate.wait(120)
        if self.failure is None and len(self.seen) == self._fail_at:
            self.failure = TaskFailure("test", "told to fail")
        if self.failure is None:
            self.seen.append(chunk.rows[0].as_py())

    def finish(self) -> None:
        self.finished = True


def _chunk(number: int) -> Chunk:
    batch = pa.RecordBatch.from_pydict({"n": [number]})
    return Chunk(batch, "file", pa.array([number], pa.int64()))


def _queued(branch: FakeBranch, capacity: int = 2) -> QueuedRunner:
    return QueuedRunner(cast("Branch", branch), capacity, timeout_s=0.01)


def test_one_branch_needs_no_thread_and_several_get_one_each_as_the_job_says() -> None:
    fork = ForkSpec(branches=(BranchSpec(name="a"), BranchSpec(name="b")), queue_capacity=3, queue_timeout_s=45)
    one = runners([cast("Branch", FakeBranch())], fork)
    assert [type(runner) for runner in one] == [DirectRunner]
    two = runners([cast("Branch", FakeBranch("a")), cast("Branch", FakeBranch("b"))], fork)
    assert [type(runner) for runner in two] == [QueuedRunner, QueuedRunner]
    assert [(runner.stats, vars(runner)["_timeout_s"]) for runner in two] == [(QueueStats(capacity=3), 45)] * 2
    for runner in two:
        runner.cancel()


def test_queue_keeps_the_order_and_finishes_the_branch() -> None:
    branch = FakeBranch()
    runner = _queued(branch)
    for number in range(50):
        runner.put(_chunk(number))
    runner.finish()
    assert branch.seen == list(range(50))
    assert branch.finished
    stats = runner.stats
    assert (stats.capacity, stats.puts, stats.gets) == (2, 50, 50)
    assert 1 <= stats.largest <= 2
    assert 0 <= stats.fill_ratio <= 1


def test_full_queue_holds_the_fork_back() -> None:
    gate = threading.Event()
    branch = FakeBranch(gate=gate)
    runner = _queued(branch, capacity=2)
    given = threading.Semaphore(0)

    def give() -> None:
        for number in range(6):
            runner.put(_chunk(number))
            given.release()

    giver = threading.Thread(target=give)
    giver.start()
    # One chunk is with the branch and two wait; the fourth finds no room until the gate opens.
    for _ in range(3):
        assert given.acquire(timeout=120)
    assert not given.acquire(timeout=0.2)
    gate.set()
    giver.join(120)
    runner.finish()
    assert branch.seen == list(range(6))
    assert runner.stats.put_wait_s > 0


def test_failed_branch_never_blocks_the_fork() -> None:
    branch = FakeBranch(fail_at=1)
    runner = _queued(branch, capacity=1)
    for number in range(100):
        runner.put(_chunk(number))
    runner.finish()
    assert branch.seen == [0]
    assert branch.failure is not None


def test_cancel_drops_what_waits_and_does_not_finish_the_branch() -> None:
    gate = threading.Event()
    branch = FakeBranch(gate=gate)
    runner = _queued(branch, capacity=5)
    for number in range(4):
        runner.put(_chunk(number))
    threading.Timer(0.05, gate.set).start()
    runner.cancel()
    assert len(branch.seen) <= 1
    assert not branch.finished


@pytest.mark.parametrize(("puts", "seconds", "rate"), [(10, 2.0, 5.0), (10, 0.0, 0.0)])
def test_rates_are_per_second(puts: int, seconds: float, rate: float) -> None:
    stats = QueueStats(capacity=1, puts=puts, gets=puts, seconds=seconds)
    assert (stats.put_rate, stats.get_rate) == (rate, rate)
