"""Names that stand twice where each may stand once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that appear more than once, each once and in order.

    Example:
        >>> repeated(["b", "a", "c", "a", "b"])
        ['a', 'b']
    """
    return sorted(name for name, count in Counter(names).items() if count > 1)
