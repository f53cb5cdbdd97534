"""Ctrl-C: the first one lets running work units finish and commits the complete ones, the second stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from gobblin_dagster.cli.import_interrupt import raises_interrupt
from gobblin_dagster.core.utils.signals import NUMBERS, Signals

if TYPE_CHECKING:
    from rich.console import Console


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

    with Signals(unnoticed) as signals:
        former = {number: signal.signal(number, handle) for number in NUMBERS}
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
        with Signals(lambda signum: raises_interrupt(signal.getsignal(signum))):
            yield
    else:
        yield
