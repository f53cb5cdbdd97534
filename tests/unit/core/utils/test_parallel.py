from __future__ import annotations

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
