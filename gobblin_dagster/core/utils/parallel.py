"""Call a function for many items in threads.

Unlike those of a ThreadPoolExecutor, the threads hold up neither an interrupt nor the end of the process: who presses
Ctrl-C twice, or lets Dagster terminate a run, does not wait for a copy or a Spark job that takes an hour.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


R = TypeVar("R")


def in_parallel(function: Callable[[T], R], items: Sequence[T], parallelism: int) -> list[R]:
    """Call `function` for each item in at most `parallelism` threads; return the results in the order of the items.

    With one item or one thread, everything runs in the calling thread. After an exception of a call no other call
    begins; once those that run have ended, the first one's exception is raised again. An exception that interrupts
    the waiting itself (KeyboardInterrupt) is raised at once: calls that run then go on, as long as the process lives.
    """
    found = sorted(as_they_end(function, items, parallelism), key=lambda done: done[0])
    return [result for _, result in found]


def as_they_end(function: Callable[[T], R], items: Sequence[T], parallelism: int) -> Iterator[tuple[int, R]]:
    """Yield the position and the result of each call as soon as it has ended; otherwise as `in_parallel`."""
    workers = min(parallelism, len(items))
    if workers <= 1:
        yield from ((position, function(item)) for position, item in enumerate(items))
        return
    calls = _Calls(function, iter(enumerate(items)))
    failed: list[tuple[int, BaseException]] = []
    try:
        for number in range(workers):
            threading.Thread(target=calls.work, name=f"in-parallel-{number}", daemon=True).start()
        while workers:
            ended = calls.ended.get()
            if ended is None:
                workers -= 1
            elif ended.error is not None:
                failed.append((ended.position, ended.error))
            else:
                yield ended.position, ended.results[0]
    finally:
        calls.end()
    if failed:
        raise min(failed, key=lambda one: one[0])[1]


@dataclass(frozen=True, slots=True)
class _Ended(Generic[R]):
    """A call that has ended: with a result, or with an error."""

    position: int
    results: tuple[R, ...] = ()
    error: BaseException | None = None


class _Calls(Generic[T, R]):
    """The calls of one `as_they_end`, as its threads see them."""

    def __init__(self, function: Callable[[T], R], items: Iterator[tuple[int, T]]) -> None:
        self._function = function
        self._items = items
        self._lock = threading.Lock()
        self._is_over = False
        self.ended: SimpleQueue[_Ended[R] | None] = SimpleQueue()
        """Calls that have ended; None for each thread that has."""

    def end(self) -> None:
        """Let no other call begin."""
        with self._lock:
            self._is_over = True

    def work(self) -> None:
        """Make calls until none is left; the body of a thread."""
        while (item := self._next()) is not None:
            try:
                self.ended.put(_Ended(item[0], (self._function(item[1]),)))
            except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
                self.end()
                self.ended.put(_Ended(item[0], error=error))
        self.ended.put(None)

    def _next(self) -> tuple[int, T] | None:
        with self._lock:
            return None if self._is_over else next(self._items, None)
