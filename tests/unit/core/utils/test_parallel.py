from __future__ import annotations

import signal
import threading

import pytest

from gobblin_dagster.core.utils.parallel import in_parallel


def test_results_come_in_the_order_of_the_items_from_several_threads() -> None:
    gate = threading.Barrier(3)

    def twice(number: int) -> int:
        gate.wait(timeout=60)  # all three must be at work at once
        return 2 * number

    assert in_parallel(twice, [3, 1, 2], 3) == [6, 2, 4]


@pytest.mark.parametrize(("items", "parallelism"), [([1, 2], 1), ([1], 8), ([], 8)])
def test_one_thread_or_one_item_stays_in_the_calling_thread(items: list[int], parallelism: int) -> None:
    here = threading.get_ident()
    assert in_parallel(lambda _: threading.get_ident(), items, parallelism) == [here] * len(items)


def test_first_error_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        in_parallel(lambda number: 1 // number, [1, 0], 2)


def test_no_other_call_begins_after_an_error_and_those_that_run_end_before_it_is_raised() -> None:
    gate, begun, ended = threading.Barrier(2), [], []

    def work(number: int) -> None:
        begun.append(number)
        if number < 2:
            gate.wait(timeout=60)
        if number == 0:
            raise ValueError("first")
        ended.append(number)

    with pytest.raises(ValueError, match="first"):
        in_parallel(work, [0, 1], 2)
    assert (sorted(begun), ended) == ([0, 1], [1])


def test_interrupt_waits_for_no_call_and_no_other_begins() -> None:
    """As a second Ctrl-C while two datasets are published, of which one takes an hour."""
    go_on, begun, ended = threading.Event(), [], threading.Semaphore(0)
    here = threading.get_ident()

    def work(number: int) -> None:
        begun.append(number)
        if number == 1:
            signal.pthread_kill(here, signal.SIGINT)
        go_on.wait(timeout=5)
        ended.release()

    with pytest.raises(KeyboardInterrupt):
        in_parallel(work, [0, 1, 2, 3], 2)
    assert not ended.acquire(blocking=False)
    go_on.set()
    assert ended.acquire(timeout=60)
    assert ended.acquire(timeout=60)
    assert sorted(begun) == [0, 1]
