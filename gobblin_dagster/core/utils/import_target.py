"""Import a target `module:name`: the way job files and stored records name user code."""

from __future__ import annotations

import importlib
from operator import attrgetter
from typing import Any


def load_target(target: str) -> Any:
    """Import a target and return the object, e.g. `my_module:MyClass` or `my_module:MyClass.method`.

    Raises:
        ImportError: the module does not exist, or has no such name; the message says which of the two.

    Example:
        >>> load_target("os:path.join")("a", "b")
        'a/b'
    """
    module, _, path = target.partition(":")
    try:
        return attrgetter(path)(importlib.import_module(module))
    except (AttributeError, ValueError) as error:
        raise ImportError(str(error)) from error
