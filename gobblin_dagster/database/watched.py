"""Connections to PostgreSQL whose calls come to an end: a server that falls silent is given up after a while.

libpq waits for an answer as long as the connection stands. One whose other end hangs, or is behind a network that drops
everything, stands for ever, and so would the program that waits.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gobblin_dagster.core.utils.cut_off import cut_off
from gobblin_dagster.core.utils.optional_packages import optional_package

with optional_package("psycopg2"):
    import psycopg2.extensions

LOOK_S = 0.5
"""How often calls are looked at."""


class Watchdog:
    """Cuts off connections whose calls take too long; the call then raises an error of a lost connection."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._calls: dict[int, tuple[float, int]] = {}
        """When each call that runs is given up, and the file descriptor of its connection."""
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(self, descriptor: int, limit_s: float) -> Iterator[None]:
        """Give up what is called inside of the block after so many seconds."""
        number = next(self._numbers)
        with self._lock:
            self._calls[number] = time.monotonic() + limit_s, descriptor
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._look, name="database-watchdog", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                del self._calls[number]

    def _look(self) -> None:
        while True:
            time.sleep(LOOK_S)
            # Under the lock: a call that ends now cannot close its connection, so the descriptor is still its own.
            with self._lock:
                for until, descriptor in self._calls.values():
                    if time.monotonic() > until:
                        cut_off(descriptor)


_WATCHDOG = Watchdog()


def connection_arguments(limit_s: float) -> dict[str, Any]:
    """Return arguments for psycopg2's `connect`, with which each call ends within so many seconds."""

    class WatchedCursor(psycopg2.extensions.cursor):  # type: ignore[misc]  # psycopg2 has no types
        """A cursor whose calls end."""

        def execute(self, *arguments: Any) -> Any:
            with _WATCHDOG.watching(self.connection.fileno(), limit_s):
                return super().execute(*arguments)

        def executemany(self, *arguments: Any) -> Any:
            with _WATCHDOG.watching(self.connection.fileno(), limit_s):
                return super().executemany(*arguments)

    class WatchedConnection(psycopg2.extensions.connection):  # type: ignore[misc]  # psycopg2 has no types
        """A connection whose calls end."""

        def commit(self) -> None:
            with _WATCHDOG.watching(self.fileno(), limit_s):
                super().commit()

        def rollback(self) -> None:
            with _WATCHDOG.watching(self.fileno(), limit_s):
                super().rollback()

    return {"connection_factory": WatchedConnection, "cursor_factory": WatchedCursor}
