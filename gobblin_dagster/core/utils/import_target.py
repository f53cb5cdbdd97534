"""Targets: `module:name`, by which job files and stored records name code of the user's own."""

from __future__ import annotations

import importlib
from operator import attrgetter
from typing import Any


def load_target(target: str) -> Any:
    """Return what a target names, e.g. `my_module:MyClass` or `my_module:MyClass.method`.

    Raises:
        ImportError: there is no such module, or nothing of that name in it; the message says what is missing.

    Example:
        >>> load_target("os:path.join")("a", "b")
        'a/b'
    """
    module, _, path = target.partition(":")
    try:
        return attrgetter(path)(importlib.import_module(module))
    except (AttributeError, ValueError) as error:
        raise ImportError(str(error)) from error
