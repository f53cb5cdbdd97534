"""Open local files that hold something: a pipe or a device in the place of a file would keep its reader waiting.

What a path leads to is looked at once it is open, because it may have become another thing since it was listed.
"""

from __future__ import annotations

import errno
import io
import os
import stat


def open_regular(path: str | os.PathLike[str]) -> int:
    """Return a descriptor to read a regular file; the caller closes it. Neither opening nor reading waits.

    Raises:
        OSError: EISDIR for a folder, ENOENT for anything else that is no regular file, or as the system says.
    """
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    kind = os.fstat(opened).st_mode
    if not stat.S_ISREG(kind):
        os.close(opened)
        code = errno.EISDIR if stat.S_ISDIR(kind) else errno.ENOENT
        raise OSError(code, "it is no regular file", os.fspath(path))
    return opened


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: as `open_regular`; EAGAIN if the file has no end, as some of the kernel's have none.
    """
    opened = open_regular(path)
    try:
        with open(opened, "rb", closefd=False) as file:
            # None, against its type, if nothing can be read without waiting.
            content: bytes | None = file.read()
    finally:
        os.close(opened)
    if content is None:
        raise OSError(errno.EAGAIN, "it is a file of the kernel that keeps its reader waiting", os.fspath(path))
    return content


def read_regular_text(path: str | os.PathLike[str], encoding: str = "utf-8") -> str:
    """Return the text of a regular file, with one kind of line end.

    Raises:
        OSError: as `read_regular`.
        UnicodeDecodeError: it is no text in this encoding.
    """
    return io.TextIOWrapper(io.BytesIO(read_regular(path)), encoding).read()
