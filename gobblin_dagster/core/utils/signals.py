"""Notice SIGINT and SIGTERM while a library in C waits for a database: Python calls no handler before it returns."""

from __future__ import annotations

import select
import signal
import socket
import threading
from collections.abc import Callable
from typing import Self

from gobblin_dagster.core.utils.cut_off import cut_off_all, was_cut_off

NUMBERS = (signal.SIGINT, signal.SIGTERM)
_SOON_S = 0.5
"""Seconds in which Python calls a handler, unless a library in C waits for something, such as a database."""


def raise_hidden_interrupt(error: BaseException, handled: BaseException | None = None) -> None:
    """Raise what the handler of a signal raised, if an error came up while that was on its way and took its place.

    A transaction whose connection was cut off cannot be rolled back: its error hides the KeyboardInterrupt.

    Args:
        error: the error.
        handled: what was handled before the work began that ended with the error: it is not searched, nor what led
            to it.
    """
    hidden = error.__context__
    while hidden is not None and hidden is not handled:
        if not isinstance(hidden, Exception | GeneratorExit):
            raise hidden
        hidden = hidden.__context__


class Signals:
    """Counts SIGINT and SIGTERM in a thread, as they come, whatever the main thread waits for; enter it there.

    Args:
        unnoticed: called with the number of one if neither the block has ended nor another one came soon; returns
            whether connections to databases are to be ended.
        raised: what the handlers raise. The block ends with it if connections were ended, whose errors may hide it.
    """

    def __init__(self, unnoticed: Callable[[int], bool], raised: type[BaseException] = KeyboardInterrupt) -> None:
        self._unnoticed = unnoticed
        self._raised = raised
        self._has_cut = False
        self.count = 0

    def __enter__(self) -> Self:
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._former = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._look, args=(self._reader,), name="signals", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        signal.set_wakeup_fd(self._former)
        self._writer.close()
        self._thread.join()  # it ends at once; what it cuts off after this would stop the next command of this process
        if self._has_cut:
            was_cut_off()  # makes connections possible again
            if error[0] is not self._raised:  # the error of a connection hid it
                raise self._raised()

    def _look(self, reader: socket.socket) -> None:
        with reader:
            while came := reader.recv(1):
                if came[0] not in NUMBERS:
                    continue
                self.count += 1
                if not select.select([reader], [], [], _SOON_S)[0] and self._unnoticed(came[0]):
                    self._has_cut = True
                    cut_off_all()
