"""Parse JSON of files and people: text that is nested too deep is no valid JSON either."""

from __future__ import annotations

import json
from typing import Any

from gobblin_dagster.core.utils.duplicates import repeated


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; raises ValueError if it is none, or is nested too deep to be read.

    Example:
        >>> parse_json('{"a": [1]}')
        {'a': [1]}
        >>> parse_json("[" * 100_000)
        Traceback (most recent call last):
        ...
        ValueError: lists or objects are nested too deep
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("lists or objects are nested too deep") from None


def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; raises ValueError if it has two values of one name, so that one would be lost.

    Example:
        >>> json.loads('{"a": 1, "a": 2}', object_pairs_hook=object_of)
        Traceback (most recent call last):
        ...
        ValueError: field 'a' was specified twice
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"field {repeated([name for name, _ in pairs])[0]!r} was specified twice")
    return found
