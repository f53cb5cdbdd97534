"""Rename a file without overwriting, on systems with and without a system call for it."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL})
"""Errors of a kernel or file system (NFS, some FUSE) that does not support the flag."""
_NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP})
"""Errors of a file system (buckets and FAT behind FUSE) without hard links."""


def _find_renameat2() -> Callable[[str, str], int] | None:
    """Return the C library's `renameat2` as a function (source, target) -> errno, 0 if it succeeded.

    None if the library has no such function.
    """
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)

    def call(source: str, target: str) -> int:
        done = function(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE) == 0
        return 0 if done else ctypes.get_errno()

    return call


_renameat2 = _find_renameat2()


def rename_new(source: str, target: str) -> None:
    """Rename in one step; raises FileExistsError (target), FileNotFoundError (source), or OSError(EXDEV).

    Raises OSError with a sentence of its own if the file system can do neither this nor hard links.
    """
    code = _renameat2(source, target) if _renameat2 else errno.ENOSYS
    if code in _UNSUPPORTED:
        try:
            link_new(source, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            why = "this file system has no hard links, and cannot rename without overwriting: choose another one"
            raise OSError(error.errno, f"{error.strerror}: {why}", source, None, target) from error
    elif code:
        raise OSError(code, os.strerror(code), source, None, target)


def link_new(source: str, target: str) -> None:
    """Rename by a hard link and an unlink; raises like `rename_new`.

    Readers of the target see the whole file at once. A crash between both steps leaves the file under both names; a
    commit step that is repeated then finds its target and deletes the source.
    """
    Path(target).hardlink_to(source)
    Path(source).unlink()
