"""Call a function for many items in threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


R = TypeVar("R")


def in_parallel(function: Callable[[T], R], items: Sequence[T], parallelism: int) -> list[R]:
    """Call `function` for each item in at most `parallelism` threads; return the results in the order of the items.

    With one item or one thread, everything runs in the calling thread. The first exception of a call is raised again.
    """
    workers = min(parallelism, len(items))
    if workers <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, items))
