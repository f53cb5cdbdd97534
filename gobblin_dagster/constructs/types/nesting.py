"""How deep lists and objects may be nested in values whose types are inferred."""

from __future__ import annotations

import itertools
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

MAX_LEVELS = 200
"""Most lists and objects inside each other, the row among them: twice what Parquet holds, and far below the limit of
Python's stack. Arrow takes minutes and gigabytes to infer types of 3,000 levels, or crashes."""
_NESTED = (dict, list, tuple, set, frozenset, np.ndarray)


def first_deep(values: Sequence[Any]) -> int | None:
    """Return the index of the first value of a row with too many levels, also one that holds itself; None if none.

    Example:
        >>> cycle = {}
        >>> cycle["itself"] = cycle
        >>> first_deep([1, [[2]], cycle])
        2
    """
    if not _is_deep(values):
        return None
    return next(index for index, value in enumerate(values) if _is_deep([value]))


def deep_problem(value: Any) -> str:
    """Return the message on a value that is nested too deep."""
    return f"values nested more than {MAX_LEVELS} levels deep: {reprlib.repr(value)[:80]}"


def _is_deep(values: Iterable[Any]) -> bool:
    levels, found = 1, _nested(list(values))
    while found and levels < MAX_LEVELS:
        inside = _nested(list(itertools.chain.from_iterable(map(_items, found))))
        # A list that is in several places is looked at once for each level.
        levels, found = levels + 1, list({id(one): one for one in inside}.values())
    return bool(found)


def _nested(values: list[Any]) -> list[Any]:
    kinds = tuple(kind for kind in set(map(type, values)) if issubclass(kind, _NESTED))
    return [value for value in values if isinstance(value, kinds)] if kinds else []


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, np.ndarray):
        return value.flat if value.dtype == object else ()
    return value.values() if isinstance(value, dict) else value
