"""RestServer: carries REST's connections, and ends those on which nothing goes on, so that nobody keeps others out.

uvicorn ends a connection that is idle after an answer. One on which no whole request ever comes, or whose client does
not read the answer, it would keep for ever, until the process may open no more files.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import uvicorn

IDLE_S = 15.0
"""Seconds in which a request must come whole, but for its body."""
UNREAD_S = 60.0
"""Seconds after which an answer is given up if the client reads nothing of it."""
MAX_CONNECTIONS = 800
"""Beyond this many, those that wait longest without a request are ended first."""


@dataclass(slots=True)
class _Seen:
    """What was last seen of a connection, and since when it is so."""

    state: tuple[int, int]
    since: float


class RestServer(uvicorn.Server):
    """Leaves signals to the service: it hands over roles and ends jobs too."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._seen: WeakKeyDictionary[Any, _Seen] = WeakKeyDictionary()

    def install_signal_handlers(self) -> None:
        """Install none."""

    async def on_tick(self, counter: int) -> bool:
        """End idle connections, ten times a second; return whether the server is to end."""
        self.end_idle(time.monotonic())
        return await super().on_tick(counter)

    def end_idle(self, now_s: float) -> None:
        """End the connections on which nothing went on for too long.

        Args:
            now_s: seconds of a clock that never goes back.
        """
        idle: list[tuple[float, Any]] = []
        for connection in list(self.server_state.connections):
            transport = getattr(connection, "transport", None)
            if not hasattr(connection, "cycle") or transport is None:
                continue  # a websocket, or one that begins at this moment
            cycle = connection.cycle
            is_answering = cycle is not None and not cycle.response_complete
            unread = transport.get_write_buffer_size()
            seen = self._seen.setdefault(connection, _Seen((0, 0), now_s))
            if (is_answering and not unread) or seen.state != (id(cycle), unread):
                self._seen[connection] = _Seen((id(cycle), unread), now_s)
            elif unread and now_s - seen.since > UNREAD_S:
                transport.abort()
            elif not unread:
                idle.append((seen.since, transport))
        idle.sort(key=lambda one: one[0])
        too_many = len(self.server_state.connections) - MAX_CONNECTIONS
        for number, (since, transport) in enumerate(idle):
            if number < too_many or now_s - since > IDLE_S:
                transport.close()
