"""Parse JSON of files and people: text that is nested too deep is no valid JSON either."""

from __future__ import annotations

import json
from typing import Any


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
