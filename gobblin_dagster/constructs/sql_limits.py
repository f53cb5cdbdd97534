"""How much memory and time one evaluation of SQL may take, whatever the expression is.

DuckDB's own limit counts what its buffers hold, not what a function makes of one row: `range(1000000000)` is a list of 8 GB. So
the address space of the process is bounded while a statement runs, and an allocation beyond it fails in DuckDB, which says so. A
thread interrupts statements that take too long. Measured on 100 rows: both cost less than a twentieth of the statement.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
import weakref
from contextlib import suppress

import duckdb

TIME_LIMIT_S = 60.0
"""Seconds for one batch."""
GROWTH_LIMIT_BYTES = 1 << 30
"""Bytes by which the process may grow while statements run: twice what the engine may hold."""
_TICK_S = 0.25


class _Ceiling:
    """The bound on the process's address space, there as long as any thread runs a statement.

    What other threads take meanwhile counts, too; each statement that begins lifts the bound to where the process then is.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._before = resource.RLIM_INFINITY
        self._bound = 0
        self._sizes = -1
        self._pid = 0

    def raise_above_us(self) -> None:
        """Bound the process, or lift the bound."""
        with self._lock:
            size = self._size()
            if not self._running:
                self._before, self._bound = resource.getrlimit(resource.RLIMIT_AS)[0], 0
            self._running += 1
            bound = size + GROWTH_LIMIT_BYTES
            if size and bound > self._bound and not 0 <= self._before < bound:
                self._bound = bound
                self._set(bound)

    def leave(self) -> None:
        """Take the bound away with the last statement."""
        with self._lock:
            self._running -= 1
            if not self._running and self._bound:
                self._set(self._before)

    def forget(self) -> None:
        """Begin without a statement: the threads that ran some did not come along into a forked process."""
        if self._running and self._bound:
            self._set(self._before)
        self._lock, self._running = threading.Lock(), 0

    def _set(self, bound: int) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (bound, resource.getrlimit(resource.RLIMIT_AS)[1]))

    def _size(self) -> int:
        """Return the process's address space; 0 where the system does not tell, and then nothing is bounded."""
        if sys.platform != "linux":
            return 0
        if self._pid != os.getpid():  # a forked process would read of its parent
            if self._sizes >= 0:
                os.close(self._sizes)
            self._sizes, self._pid = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC), os.getpid()
        return int(os.pread(self._sizes, 64, 0).split(b" ", 1)[0]) * resource.getpagesize()


class Limits:
    """The limits of one connection; entered for each statement, by one thread at a time."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection: duckdb.DuckDBPyConnection | None = connection
        self.due = 0.0
        """When the statement that runs must have ended, by the monotonic clock; 0 while none runs."""
        self.was_late = False
        _watch(self)

    def interrupt_if_late(self) -> None:
        """Interrupt the statement that runs, if it is late; to be repeated: it is heeded between two steps only."""
        connection = self._connection
        if connection is not None and 0 < self.due < time.monotonic():
            self.was_late = True
            with suppress(duckdb.Error):
                connection.interrupt()

    def end(self) -> None:
        """Let go of the connection: the thread that interrupts outlives the interpreter, and must hold none."""
        self._connection = None

    def __enter__(self) -> None:
        self.was_late = False
        _ceiling.raise_above_us()
        self.due = time.monotonic() + TIME_LIMIT_S

    def __exit__(self, *_: object) -> None:
        self.due = 0.0
        _ceiling.leave()


_ceiling = _Ceiling()
os.register_at_fork(after_in_child=_ceiling.forget)
_watched: weakref.WeakSet[Limits] = weakref.WeakSet()
_lock = threading.Lock()
_watchers: dict[int, threading.Thread] = {}
"""The thread of a process that interrupts, by process id: it does not come along into a forked one."""


def _watch(limits: Limits) -> None:
    with _lock:
        _watched.add(limits)
        if os.getpid() not in _watchers:
            _watchers.clear()
            thread = _watchers[os.getpid()] = threading.Thread(target=_interrupt_late, name="sql-limits", daemon=True)
            thread.start()


def _interrupt_late() -> None:
    while True:
        time.sleep(_TICK_S)
        with _lock:
            watched = list(_watched)
        for limits in watched:
            limits.interrupt_if_late()
