"""Ctrl-C: the first one lets running work units finish and commits the complete ones, the second stops at once."""

from __future__ import annotations

import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Self

from gobblin_dagster.cli.import_interrupt import raises_interrupt
from gobblin_dagster.core.utils.cut_off import cut_off_all, was_cut_off

if TYPE_CHECKING:
    from rich.console import Console

_NUMBERS = (signal.SIGINT, signal.SIGTERM)
_SOON_S = 0.5
"""Seconds in which Python calls a handler, unless a library in C waits for something, such as a database."""


@contextmanager
def stop_on_interrupt(console: Console) -> Iterator[threading.Event]:
    """Yield an event that the first SIGINT or SIGTERM sets; the second one raises KeyboardInterrupt.

    While a library in C waits for a database, Python calls no handler: a thread sets the event then, and the second
    signal ends the connections.
    """
    stop = threading.Event()
    came: list[int] = []
    told: list[int] = []

    def tell(signum: int) -> None:
        told.append(signum)
        stop.set()
        console.print("Stopping: running work units end, what is whole is committed. Once more stops at once.")

    def handle(signum: int, frame: FrameType | None) -> None:
        came.append(signum)
        # Not `stop.is_set()`: one that comes while the event is set would wait for its lock for ever.
        if len(came) > 1 or signals.count > 1:  # of two that came while a library waited, Python tells one
            raise KeyboardInterrupt
        if not told:
            tell(signum)

    def unnoticed(signum: int) -> bool:
        if signals.count == 1 and not came:
            tell(signum)
        return signals.count > 1

    with _Signals(unnoticed) as signals:
        former = {number: signal.signal(number, handle) for number in _NUMBERS}
        try:
            yield stop
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)


@contextmanager
def waits_end_on_interrupt() -> Iterator[None]:
    """Have SIGINT and SIGTERM raise KeyboardInterrupt also while a library in C waits for a database.

    Where they do something else, such as in a server, nothing changes.
    """
    if threading.current_thread() is threading.main_thread():
        with _Signals(lambda signum: raises_interrupt(signal.getsignal(signum))):
            yield
    else:
        yield


class _Signals:
    """Counts SIGINT and SIGTERM in a thread, as they come, whatever the main thread waits for.

    Args:
        unnoticed: called with the number of one if neither the block has ended nor another one came soon; returns
            whether connections to databases are to be ended.
    """

    def __init__(self, unnoticed: Callable[[int], bool]) -> None:
        self._unnoticed = unnoticed
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
            if error[0] is not KeyboardInterrupt:  # the error of a connection hid it
                raise KeyboardInterrupt

    def _look(self, reader: socket.socket) -> None:
        with reader:
            while came := reader.recv(1):
                if came[0] not in _NUMBERS:
                    continue
                self.count += 1
                if not select.select([reader], [], [], _SOON_S)[0] and self._unnoticed(came[0]):
                    self._has_cut = True
                    cut_off_all()
