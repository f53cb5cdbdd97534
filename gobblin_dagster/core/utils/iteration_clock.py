"""Measure how long an iterator works, apart from what is done with its values."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


class IterationClock:
    """Adds up the time in which iterators make their values.

    Example:
        >>> clock = IterationClock()
        >>> list(clock.timed([1, 2])), clock.seconds < 1
        ([1, 2], True)
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.seconds = 0.0

    def timed(self, values: Iterable[T]) -> Iterator[T]:
        """Yield the values; the time between two of them, in which the caller works, is not counted."""
        iterator = iter(values)
        while True:
            began = self._clock()
            try:
                value = next(iterator)
            except StopIteration:
                return
            finally:
                self.seconds += self._clock() - began
            yield value
