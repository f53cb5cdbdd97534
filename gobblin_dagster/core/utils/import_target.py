"""Find and import code of the user's own, which job files and stored records name by a target `module:name`."""

from __future__ import annotations

import importlib
import sys
from operator import attrgetter
from pathlib import Path
from typing import Any


def find_modules_in(folder: Path | str) -> None:
    """Let Python find modules in a project's folder first: constructs of the user's own lie there."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


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
