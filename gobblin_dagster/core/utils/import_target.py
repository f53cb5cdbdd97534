"""Find and import code of the user's own, which job files and stored records name by a target `module:name`."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

_project_folders: set[str] = set()
"""Folders that were put before Python's own modules."""


def find_modules_in(folder: Path | str) -> None:
    """Let Python find modules in a project's folder first: constructs of the user's own lie there."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
        _project_folders.add(str(folder))


def python_for_module(module: str) -> list[str]:
    """Return the command that runs a module of ours in a process of its own, to be used with `python_environment`."""
    # Without -P the current folder, which is mostly the project's, would come first.
    return [sys.executable, "-P", "-m", module]


def python_environment() -> dict[str, str]:
    """Return the environment of a Python process that finds the modules that this one finds.

    A project may have a `queue.py`: this process has imported Python's own before it looks into the project, so the
    other one has to find Python's own first, too. Hashes of texts do not change from run to run, as in Spark's workers.
    """
    path = sorted(sys.path, key=_project_folders.__contains__)
    return {"PYTHONHASHSEED": "0", **os.environ, "PYTHONPATH": os.pathsep.join(path)}


def load_target(target: str) -> Any:
    """Import a target and return the object, e.g. `my_module:MyClass` or `my_module:MyClass.method`.

    Raises:
        ImportError: the module does not exist, or has no such name, or the name leads through another module
            (`my_module:os.system`), which `allow.modules` may not allow; the message says which of them.

    Example:
        >>> load_target("pathlib:PurePosixPath.as_posix").__name__
        'as_posix'
    """
    module, _, path = target.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for position, name in enumerate(path.split(".")):
            if position and isinstance(found, ModuleType):
                raise ImportError(f"{target!r} leads through the module {found.__name__!r}; name that module itself")
            if name.startswith("__"):
                raise ImportError(f"{target!r}: names that begin with two underscores are Python's own")
            found = getattr(found, name)
    except (AttributeError, ValueError) as error:
        raise ImportError(str(error)) from error
    return found
