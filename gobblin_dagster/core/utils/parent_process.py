"""End this process when its parent dies."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
"""Of Linux: `man 2 prctl`."""


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent dies; do nothing on systems other than Linux.

    Args:
        parent: id of the parent; if it died before this call, this process ends at once. It must have started this
            process from its main thread: Linux takes the end of the starting thread for that of the parent.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
