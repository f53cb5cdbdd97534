from __future__ import annotations

from collections.abc import Iterator

import pytest

from gobblin_dagster.core.utils.iteration_clock import IterationClock


def test_only_the_making_of_values_is_counted() -> None:
    now = [0.0]

    def slow() -> Iterator[int]:
        for value in range(3):
            now[0] += 2
            yield value
        now[0] += 1

    clock = IterationClock(lambda: now[0])
    for _ in clock.timed(slow()):
        now[0] += 100  # the caller's work
    assert clock.seconds == 7


def test_time_until_an_error_counts_and_the_error_comes_through() -> None:
    now = [0.0]

    def failing() -> Iterator[int]:
        yield 1
        now[0] += 3
        raise ValueError("no")

    clock = IterationClock(lambda: now[0])
    with pytest.raises(ValueError, match="no"):
        list(clock.timed(failing()))
    assert clock.seconds == 3
