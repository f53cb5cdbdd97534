"""Find names that appear twice, or that differ only in a way that does not count (such as upper and lower case)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that appear more than once, each of them once, sorted.

    Example:
        >>> repeated(["b", "a", "c", "a", "b"])
        ['a', 'b']
    """
    return sorted(name for name, count in Counter(names).items() if count > 1)


def alike(names: Iterable[str], key: Callable[[str], object]) -> tuple[str, str] | None:
    """Return the first two different names with equal keys; None if all keys differ.

    Args:
        names: names in any order; equal names do not count as two.
        key: how the names are compared, for example `str.lower`.

    Example:
        >>> alike(["a", "b", "A"], str.lower)
        ('a', 'A')
    """
    known: dict[object, str] = {}
    return next(((other, name) for name in names if (other := known.setdefault(key(name), name)) != name), None)
