"""Reach files by handles of their folders, so that a link put in a folder's place meanwhile leads nowhere else."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HANDLES = "/proc/self/fd"
"""Linux lists the open files of a process here; a path through an entry begins at the open folder itself."""
_CAN_HOLD = Path(_HANDLES).is_dir()
_PATH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC
_FOLDER = _PATH | os.O_DIRECTORY


@contextmanager
def held(root: str, path: str) -> Iterator[str]:
    """Yield another path of a file, which begins at a handle of the file's folder.

    The handle stays the same folder, whatever is renamed or linked meanwhile, and it is asked where it really lies.
    Errors of the caller's block name the file by `path` again. Costs 20 microseconds.

    Args:
        root: the folder that must not be left, without a slash at its end.
        path: of a file or folder, which need not exist. It is yielded unchanged if it is not below `root`, or if the
            system cannot reach files by handles (only Linux can).

    Raises:
        FileNotFoundError: the folder of the file does not exist.
        OSError: ELOOP if the folder lies outside of `root`, so a part of its path is a link.
    """
    folder, _, name = path.rpartition("/")
    if not (root and _CAN_HOLD and _is_inside(folder, root)):
        yield path
        return
    handle = os.open(folder, _FOLDER)
    here = f"{_HANDLES}/{handle}"
    try:
        real = os.readlink(here)  # noqa: PTH115  # twice per committed file: pathlib takes three times as long
        if not _is_inside(real, root) and not _is_inside(real, os.path.realpath(root)):
            problem = f"the folder is a link that leads to {real}, outside of {root}; remove the link"
            raise OSError(errno.ELOOP, problem, path)
        yield f"{here}/{name}"
    except OSError as error:
        for attribute in ("filename", "filename2"):
            if isinstance(at := getattr(error, attribute), str) and (at == here or at.startswith(f"{here}/")):
                setattr(error, attribute, folder + at.removeprefix(here))
        raise
    finally:
        os.close(handle)


def real_path(path: str) -> str:
    """Return a path with all links resolved; of an existing one, asked of the system at once.

    Asking part by part (`os.path.realpath`) takes seven times as long for a folder of a lake.
    """
    if not _CAN_HOLD:
        return os.path.realpath(path)
    try:
        handle = os.open(path, _PATH)
    except OSError:
        return os.path.realpath(path)  # its last parts do not exist, or may not be reached
    try:
        return os.readlink(f"{_HANDLES}/{handle}")  # noqa: PTH115  # pathlib is slower, as above
    finally:
        os.close(handle)


def _is_inside(folder: str, root: str) -> bool:
    return folder == root or folder.startswith(f"{root}/")
