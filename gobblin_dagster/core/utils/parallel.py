"""Call a function for many items in threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


R = TypeVar("R")


def in_parallel(function: Callable[[T], R], items: Sequence[T], parallelism: int) -> list[R]:
    """Return the results in order; a single item is done in the calling thread."""
    workers = min(parallelism, len(items))
    if workers <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, items))
