"""End a connection that another thread waits on: its call then fails as if the connection were lost."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def cut_off(descriptor: int) -> None:
    """Shut down the connection with this file descriptor, which stays open; one that has ended is left alone."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
        connection.shutdown(socket.SHUT_RDWR)
