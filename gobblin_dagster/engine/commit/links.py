"""Paths whose folders may be links: one below the output may lead outside of it, and one outside may lead into it."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from gobblin_dagster.core.errors import StepRefusedError
from gobblin_dagster.core.storage import LinkStorage, Storage


def require_no_way_out(storage: Storage, output_root: str, paths: Iterable[str]) -> None:
    """Refuse files in folders that lead outside of the output at the moment when the files are touched.

    Raises:
        StepRefusedError: a folder leads outside.
    """
    for folder, real in ways_out(storage, output_root, {path.rpartition("/")[0] for path in paths}):
        problem = f"it leads to {real}, outside of {output_root}; remove the link, then `gobblin commit recover`"
        raise StepRefusedError(step=f"change files in {folder}", problem=problem)


def ways_out(storage: Storage, output_root: str, folders: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the folders that lead outside of the output, and where to, in order."""
    if not isinstance(storage, LinkStorage):
        return
    root = storage.real_path(output_root)
    for folder in sorted(folders):
        real = storage.real_path(folder)
        if real != root and not real.startswith(f"{root.rstrip('/')}/"):
            yield folder, real


def folders_above(path: str) -> Iterator[str]:
    """Yield the folders around a path, the nearest first, without the topmost."""
    while path := path.rpartition("/")[0]:
        yield path


def paths_inside(storage: Storage, output_root: str) -> Callable[[str], str]:
    """Return a function that returns the path below the output for one that leads there, and others unchanged.

    The state store keeps the paths of the time of publication. If the output was moved and a link put in its place,
    these lead to the files, but do not begin with the output's present root, in which links are resolved.
    """
    root = output_root.rstrip("/")

    @cache
    def folder_inside(folder: str) -> str:
        real = storage.real_path(folder) if isinstance(storage, LinkStorage) else folder
        return real if f"{real}/".startswith(f"{root}/") else folder

    def path_inside(path: str) -> str:
        if path.startswith(f"{root}/") or not path.startswith("/"):
            return path
        folder, _, name = path.rpartition("/")
        return posixpath.join(folder_inside(folder), name)

    return path_inside
