"""Watch: notices what makes a running worker wrong: changed code, packages, environment or configuration."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from gobblin_dagster.core.utils.environment import lasting

MAX_FILES = 2_000
"""Python files of the project folder that are watched; a folder with more is no folder of code."""

MAX_ENTRIES = 1_000
"""Entries of one folder that are looked at."""
PROJECT_FILE = "gobblin.yaml"
Mark = tuple[int, int]
_UNKNOWN: Mark = (-1, -1)


class Watch:
    """What a worker was started with.

    Watched are `gobblin.yaml`, the file of each imported module, the Python files of the project
    folder, the folders in which packages are installed, and the environment. Job files are read again by each
    command, so they need no watch.

    Args:
        root: the project folder.
        environment: the environment at the start.
    """

    def __init__(self, root: Path, environment: Mapping[str, str]) -> None:
        self._root = root
        self._environment = lasting(environment)
        watched = (root / PROJECT_FILE, *_installed(), *_imported())
        self._seen: dict[Path, Mark | None] = {path: _mark(path) for path in watched}
        self._code = self._project_code()

    def learn(self, since: float) -> None:
        """Take up the modules that were imported since an instant (of `time.time`); call it after each command."""
        for path in _imported():
            if path not in self._seen:
                mark = _mark(path)
                # Whether a file that was written meanwhile was imported before or after is unknown.
                self._seen[path] = mark if mark and mark[0] < since * 1e9 else _UNKNOWN

    def changed(self, environment: Mapping[str, str]) -> str:
        """Return what has changed since the start, in words; empty if nothing has."""
        given = lasting(environment)
        if given != self._environment:
            names = sorted(
                name for name in {*given, *self._environment} if given.get(name) != self._environment.get(name)
            )
            return f"the environment changed: {', '.join(names[:5])}"
        for path, mark in self._seen.items():
            if _mark(path) != mark:
                return f"{path} changed"
        if self._project_code() != self._code:
            return f"Python files of {self._root} changed"
        return ""

    def _project_code(self) -> dict[Path, Mark | None]:
        """Return the Python files of the project: tasks may import some that this process never does."""
        return {path: _mark(path) for path, _ in zip(_python_files(self._root), range(MAX_FILES), strict=False)}


def surroundings() -> dict[str, str]:
    """Return what a process takes from its parent process: environment, and umask as if it were a variable."""
    mask = os.umask(0o077)
    os.umask(mask)
    return {**os.environ, "(umask)": f"{mask:04o}"}


def _python_files(folder: Path) -> Iterator[Path]:
    """Yield the Python files of a folder, and of folders below it that hold code: folders of data are not searched."""
    try:
        with os.scandir(folder) as found:
            entries = sorted(islice(found, MAX_ENTRIES), key=lambda entry: entry.name)
    except OSError:
        return
    code = [Path(entry.path) for entry in entries if entry.name.endswith(".py")]
    yield from code
    if code or folder.joinpath(PROJECT_FILE).exists():
        for entry in entries:
            if entry.name.isidentifier() and not entry.name.startswith("__") and entry.is_dir(follow_symlinks=False):
                yield from _python_files(Path(entry.path))


def _imported() -> Iterator[Path]:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            yield Path(file)


def _installed() -> Iterator[Path]:
    """Yield the folders whose content changes when a package is installed or removed."""
    for entry in sys.path:
        if entry.endswith(("site-packages", "dist-packages")):
            yield Path(entry)


def _mark(path: Path) -> Mark | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
