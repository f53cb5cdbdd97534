"""Ctrl-C: the first one lets running work units finish and commits the complete ones, the second stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console


@contextmanager
def stop_on_interrupt(console: Console) -> Iterator[threading.Event]:
    """Yield an event that the first SIGINT or SIGTERM sets; the second one raises KeyboardInterrupt."""
    stop = threading.Event()
    came: list[int] = []

    def handle(signum: int, frame: FrameType | None) -> None:
        came.append(signum)
        if len(came) > 1:  # not `stop.is_set()`: one that comes while the event is set would wait for its lock for ever
            raise KeyboardInterrupt
        stop.set()
        console.print("Stopping: running work units end, what is whole is committed. Once more stops at once.")

    former = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
