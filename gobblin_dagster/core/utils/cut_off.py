"""End a connection that another thread waits on: its call then fails as if the connection were lost."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet


def cut_off(descriptor: int) -> None:
    """Shut down the connection with this file descriptor, which stays open; one that has ended is left alone."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
        connection.shutdown(socket.SHUT_RDWR)


class Connected(Protocol):
    """A connection, or its socket."""

    def fileno(self) -> int:
        """Return the file descriptor; raises if it is closed."""


_WAITED_ON: WeakSet[Connected] = WeakSet()
_STOPPED = threading.Event()


def cut_off_when_stopped(connection: Connected) -> None:
    """Have `cut_off_all` end a connection; raises KeyboardInterrupt if it was called already.

    The error of a connection that is closed after it was cut off may hide the first KeyboardInterrupt.
    """
    if _STOPPED.is_set():
        raise KeyboardInterrupt
    _WAITED_ON.add(connection)


def was_cut_off() -> bool:
    """Return whether `cut_off_all` was called, and make connections possible again."""
    was_set = _STOPPED.is_set()
    _STOPPED.clear()
    return was_set


def cut_off_all() -> None:
    """End the connections that are open, whoever waits on them: a library in C would not notice Ctrl-C before."""
    _STOPPED.set()
    for connection in [*_WAITED_ON]:
        with suppress(Exception):  # each library has errors of its own for a connection that is closed
            cut_off(connection.fileno())
