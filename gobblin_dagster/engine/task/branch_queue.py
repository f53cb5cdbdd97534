"""Run branches in parallel: one thread and one bounded queue of batches per branch."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from gobblin_dagster.core.constructs import Chunk
from gobblin_dagster.core.task_state import QueueStats
from gobblin_dagster.engine.task.branch import Branch
from gobblin_dagster.spec.job import ForkSpec


class BranchRunner(Protocol):
    """Passes chunks to one branch."""

    branch: Branch

    def put(self, chunk: Chunk) -> None:
        """Give the branch a chunk; returns at once if it has failed."""

    def finish(self) -> None:
        """Let the branch process everything in its queue, and close its files."""

    def cancel(self) -> None:
        """Let the branch stop as soon as it can; its files will not be used."""

    @property
    def stats(self) -> QueueStats | None:
        """Use of the queue; None if there is no queue."""


def runners(branches: Sequence[Branch], fork: ForkSpec) -> list[BranchRunner]:
    """Return a runner per branch: with threads if there are several branches, a plain call for a single one."""
    if len(branches) == 1:
        return [DirectRunner(branches[0])]
    return [QueuedRunner(branch, fork.queue_capacity, fork.queue_timeout_s) for branch in branches]


class DirectRunner:
    """Runs the branch in the caller's thread."""

    stats: QueueStats | None = None

    def __init__(self, branch: Branch) -> None:
        self.branch = branch

    def put(self, chunk: Chunk) -> None:
        self.branch.write(chunk)

    def finish(self) -> None:
        self.branch.finish()

    def cancel(self) -> None:
        """Do nothing: no thread runs."""


class QueuedRunner:
    """Runs the branch in a thread of its own, behind a bounded queue.

    At most `capacity` batches wait; then `put` blocks. A branch that has failed goes on to empty its queue, without
    processing, so that it never blocks the others.

    Source: gobblin-runtime `Fork` with `BoundedBlockingRecordQueue`.
    """

    def __init__(self, branch: Branch, capacity: int, timeout_s: float) -> None:
        self.branch = branch
        self._timeout_s = timeout_s
        self._queue: queue.Queue[Chunk | None] = queue.Queue(capacity)
        self._cancelled = threading.Event()
        self._puts = self._gets = self._largest = 0
        self._fill = self._put_wait_s = self._get_wait_s = 0.0
        self._began = time.monotonic()
        self._ended = self._began
        self._thread = threading.Thread(target=self._work, name=f"branch {branch.name}", daemon=True)
        self._thread.start()

    def put(self, chunk: Chunk) -> None:
        if self.branch.failure is not None:
            return
        waiting = self._queue.qsize()
        self._fill += waiting / self._queue.maxsize
        self._put_wait_s += self._offer(chunk)
        self._puts += 1
        self._largest = max(self._largest, waiting + 1)

    def finish(self) -> None:
        self._offer(None)
        self._thread.join()
        self._ended = time.monotonic()

    def cancel(self) -> None:
        self._cancelled.set()
        self.finish()

    @property
    def stats(self) -> QueueStats:
        return QueueStats(
            capacity=self._queue.maxsize,
            puts=self._puts,
            gets=self._gets,
            largest=min(self._largest, self._queue.maxsize),
            fill_ratio=round(self._fill / self._puts, 3) if self._puts else 0.0,
            put_wait_s=round(self._put_wait_s, 3),
            get_wait_s=round(self._get_wait_s, 3),
            seconds=round(self._ended - self._began, 3),
        )

    def _offer(self, item: Chunk | None) -> float:
        """Put an item as soon as there is room, while the thread lives; return the seconds waited."""
        began = time.monotonic()
        while self._thread.is_alive():
            try:
                self._queue.put(item, timeout=self._timeout_s)
            except queue.Full:
                continue
            break
        return time.monotonic() - began

    def _work(self) -> None:
        while True:
            began = time.monotonic()
            chunk = self._queue.get()
            self._get_wait_s += time.monotonic() - began
            if chunk is None:
                break
            self._gets += 1
            if not self._cancelled.is_set():
                self.branch.write(chunk)
        if not self._cancelled.is_set():
            self.branch.finish()
