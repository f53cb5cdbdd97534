"""Names that stand twice, or are taken for one, where each may stand once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that appear more than once, each once and in order.

    Example:
        >>> repeated(["b", "a", "c", "a", "b"])
        ['a', 'b']
    """
    return sorted(name for name, count in Counter(names).items() if count > 1)


def alike(names: Iterable[str], key: Callable[[str], object]) -> tuple[str, str] | None:
    """Return the first two different names that somebody takes for one, by what they make of a name; None without such.

    Example:
        >>> alike(["a", "b", "A"], str.lower)
        ('a', 'A')
    """
    known: dict[object, str] = {}
    return next(((other, name) for name in names if (other := known.setdefault(key(name), name)) != name), None)
