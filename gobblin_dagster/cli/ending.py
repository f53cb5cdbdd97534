"""End of a process that ran one command: what Python promises is done, and nothing is taken apart.

Python's own end takes every module and object apart, which took a quarter of the CPU time of a short command.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn

_BUFFERED = frozenset({io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom})


def end_process(code: int) -> NoReturn:
    """End this process with an exit code: exit handlers run, and what files hold in memory is written.

    If Python would wait for a thread, if standard output cannot be written, or if memory is too short for the search,
    the process ends as Python ends it, which waits, or says what is wrong.
    """
    if any(one is not threading.main_thread() and not one.daemon for one in threading.enumerate()):
        sys.exit(code)
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)
    try:
        files = [found for found in gc.get_objects() if type(found) in _BUFFERED]
    except MemoryError:
        sys.exit(code)
    for file in files:
        with suppress(OSError, ValueError):
            file.flush()
    os._exit(code)
