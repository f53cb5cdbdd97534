"""Standard error that takes nothing, such as a log on a full disk or a pipe whose reader has ended."""

from __future__ import annotations

import io
import sys
from contextlib import suppress
from typing import Any


def unfailing_stderr() -> io.TextIOWrapper:
    """Return standard error as a stream that drops what cannot be written.

    What is told there decides nothing: a write that fails would end a command in the midst of its jobs, without its
    JSON, and with an exit code of Python's own (120).
    """
    raw = _Unfailing(2, "wb", closefd=False)
    encoding = getattr(sys.stderr, "encoding", None)
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors="backslashreplace", line_buffering=True)


class _Unfailing(io.FileIO):
    def write(self, data: Any, /) -> int:
        with suppress(OSError):
            if (written := super().write(data)) is not None:  # None if the file does not block, and is full
                return written
        return memoryview(data).nbytes
