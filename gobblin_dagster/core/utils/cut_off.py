"""End a connection that another thread waits on: its call then fails as if the connection were lost."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress
from typing import Protocol
from weakref import ref


def cut_off(descriptor: int) -> None:
    """Shut down the connection with this file descriptor, which stays open; one that has ended is left alone."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
        connection.shutdown(socket.SHUT_RDWR)


class Connected(Protocol):
    """A connection, or its socket."""

    def fileno(self) -> int:
        """Return the file descriptor; raises if it is closed."""


RECORD_S = 5.0
"""Seconds in which a command that was stopped may record how it ended, in a database that may not answer."""
_WAITED_ON: set[ref[Connected]] = set()
_STOPPED_AT: list[float] = []


def cut_off_when_stopped(connection: Connected) -> None:
    """Have `cut_off_all` end a connection; raises KeyboardInterrupt if it was called already.

    The error of a connection that is closed after it was cut off may hide the first KeyboardInterrupt.
    """
    if _STOPPED_AT:
        raise KeyboardInterrupt
    _WAITED_ON.add(ref(connection, _WAITED_ON.discard))


def cut_off_after_records(connection: Connected) -> None:
    """Have `cut_off_all` end a connection; one that is made afterwards ends when `time_for_records` is over."""
    if (left_s := time_for_records()) is not None:
        timer = threading.Timer(left_s, _cut_off_now, [connection])
        timer.daemon = True
        timer.start()
    _WAITED_ON.add(ref(connection, _WAITED_ON.discard))


def time_for_records() -> float | None:
    """Return the seconds that are left to record the end of what was stopped, 0 at least; None: it was not stopped."""
    return max(0.0, _STOPPED_AT[0] + RECORD_S - time.monotonic()) if _STOPPED_AT else None


def was_cut_off() -> bool:
    """Return whether `cut_off_all` was called, and make connections possible again."""
    was_stopped = bool(_STOPPED_AT)
    _STOPPED_AT.clear()
    return was_stopped


def cut_off_all() -> None:
    """End the connections that are open, whoever waits on them: a library in C would not notice Ctrl-C before.

    Handlers of signals may call it: it takes no lock.
    """
    _STOPPED_AT.append(time.monotonic())
    for found in [*_WAITED_ON]:
        if (connection := found()) is not None:
            _cut_off_now(connection)


def _cut_off_now(connection: Connected) -> None:
    with suppress(Exception):  # each library has errors of its own for a connection that is closed
        cut_off(connection.fileno())
