"""Turns: a thread that does the same thing again and again, until it is told to end."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Turns:
    """Calls a function in a thread.

    Args:
        name: of the thread, for logs.
        turn: does what there is to do, and returns how many seconds nothing else is expected; it must raise nothing.
    """

    def __init__(self, name: str, turn: Callable[[], float]) -> None:
        self._turn = turn
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_ending(self) -> bool:
        """Whether no other turn begins."""
        return self._ending.is_set()

    def start(self) -> None:
        """Begin the first turn."""
        self._thread.start()

    def wake(self) -> None:
        """Begin the next turn now."""
        self._wake.set()

    def end(self) -> None:
        """Let no other turn begin; does not wait, so that signals may call it."""
        self._ending.set()
        self._wake.set()

    def wait(self, seconds: float) -> bool:
        """Wait inside of a turn; return whether the end was ordered."""
        return self._ending.wait(seconds)

    def join(self) -> None:
        """Wait for the end of the last turn."""
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._ending.is_set():
            self._wake.wait(self._turn())
            self._wake.clear()
