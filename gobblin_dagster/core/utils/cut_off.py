"""End a connection that another thread waits on: its call then fails as if the connection were lost."""

from __future__ import annotations

import os
import socket
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


def cut_off_when_stopped(connection: Connected) -> None:
    """Have `cut_off_all` end a connection."""
    _WAITED_ON.add(connection)


def cut_off_all() -> None:
    """End the connections that are open, whoever waits on them: a library in C would not notice Ctrl-C before."""
    for connection in [*_WAITED_ON]:
        with suppress(Exception):  # each library has errors of its own for a connection that is closed
            cut_off(connection.fileno())
