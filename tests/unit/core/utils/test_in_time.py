"""Calls that are given up after a time."""

from __future__ import annotations

import threading

import pytest

from gobblin_dagster.core.utils.in_time import in_time


def test_call_that_takes_too_long_is_given_up_and_errors_are_those_of_the_call() -> None:
    ended = threading.Event()
    with pytest.raises(TimeoutError, match=r"no answer in 0\.01 seconds"):
        in_time(ended.wait, 0.01)
    ended.set()

    def fail() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        in_time(fail, 10)
