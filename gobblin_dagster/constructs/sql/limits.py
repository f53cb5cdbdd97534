"""Limit the memory and the time that one SQL statement may take.

DuckDB's own limit counts its buffers only, not the value that a function returns: `range(1000000000)` is a list of 8
GB. So the address space of the process is bounded while a statement runs; an allocation beyond the bound fails in
DuckDB, which reports it. A thread interrupts statements that take too long;
if DuckDB does not stop one, `stuck` ends the process. Measured on 100 rows: both together cost
less than a twentieth of the statement.
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
import pyarrow as pa

from gobblin_dagster.constructs.sql.stuck import end_process
from gobblin_dagster.core.memory import address_space, limit_in_force

TIME_LIMIT_S = 60.0
"""Seconds that a statement may take for one batch. One that does not end when it is interrupted gets as many again."""
GROWTH_LIMIT_BYTES = 3 << 29
"""Bytes by which the process may grow while statements run: three times DuckDB's own memory limit. Well above 1 GiB:
Arrow's allocator reserves as much at once, and if nothing were left then, its next allocation would end the process."""
_TICK_S = 0.25


class _AddressSpaceBound:
    """The bound on the process's address space; set while at least one thread runs a statement.

    Memory that other threads allocate meanwhile counts, too. So each statement that begins raises the bound to the
    present size of the process plus GROWTH_LIMIT_BYTES.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: weakref.WeakSet[Limits] = weakref.WeakSet()
        self._bound = 0
        """The bound that is set; 0 if none is."""
        self._sizes = -1
        self._pid = 0
        self.is_outer_lower = False
        """Whether a limit of the process leaves a statement less than GROWTH_LIMIT_BYTES."""

    def enter(self, limits: Limits) -> None:
        """Set the bound, or raise it, for a statement that begins."""
        with self._lock:
            size = self._size()
            self._running.add(limits)
            bound = size + GROWTH_LIMIT_BYTES
            self.is_outer_lower = 0 <= address_space.outer_limit < bound
            if size and bound > self._bound and not self.is_outer_lower:
                self._bound = bound
                why = f"the SQL expressions that it runs ({GROWTH_LIMIT_BYTES >> 20:,} MB more for each batch)"
                address_space.lower(bound, why)

    def leave(self, limits: Limits) -> None:
        """Remove the bound after the last statement; may be called for one that did not enter."""
        with self._lock:
            self._running.discard(limits)
            if not self._running and self._bound:
                address_space.restore()
                self._bound = 0

    def forget(self) -> None:
        """Reset in a forked process: the threads that ran statements do not exist there."""
        address_space.forget()
        self._bound = 0
        self._lock, self._running = threading.Lock(), weakref.WeakSet()

    def _size(self) -> int:
        """Return the bytes of the process's address space; 0 (no bound is set) on systems other than Linux."""
        if sys.platform != "linux":
            return 0
        if self._pid != os.getpid():  # a forked process would read its parent's size
            if self._sizes >= 0:
                os.close(self._sizes)
            self._sizes, self._pid = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC), os.getpid()
        return int(os.pread(self._sizes, 64, 0).split(b" ", 1)[0]) * resource.getpagesize()


class Limits:
    """The limits of one connection; entered for each statement, by one thread at a time."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection: duckdb.DuckDBPyConnection | None = connection
        pa.allocate_buffer(1)  # what Arrow reserves for all that follows must not count as the statement's
        self.due = 0.0
        """Deadline of the running statement, in seconds of the monotonic clock; 0 while none runs."""
        self.was_late = False
        self.expression = ""
        """The running statement, for people."""
        _watch(self)

    @property
    def is_outer_lower(self) -> bool:
        """Whether a limit of the process leaves a statement less than GROWTH_LIMIT_BYTES."""
        return _bound.is_outer_lower

    def most_memory(self) -> str:
        """Return for people what a statement may take beside its tables, and who sets that."""
        if self.is_outer_lower:
            return limit_in_force().removesuffix(".").replace("Its", "its")
        return f"{GROWTH_LIMIT_BYTES >> 20} MB in all, which no option changes"

    def interrupt_if_late(self) -> None:
        """Interrupt the running statement if its deadline is over; call again until it ends.

        DuckDB looks for an interrupt only between two steps of a statement; see `stuck`.
        """
        connection, due, now = self._connection, self.due, time.monotonic()
        if connection is not None and 0 < due < now:
            self.was_late = True
            with suppress(duckdb.Error):
                connection.interrupt()
            if due + TIME_LIMIT_S < now:
                end_process(self.expression, TIME_LIMIT_S)

    def end(self) -> None:
        """Drop the connection, so that the interrupting thread, which outlives the interpreter, does not hold it."""
        self._connection = None

    def __enter__(self) -> None:
        self.was_late = False
        try:
            _bound.enter(self)
            self.due = time.monotonic() + TIME_LIMIT_S
        except BaseException:  # Ctrl-C: `__exit__` is not called, and the process would stay bounded
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        self.due = 0.0
        _bound.leave(self)


_bound = _AddressSpaceBound()
os.register_at_fork(after_in_child=_bound.forget)
_watched: weakref.WeakSet[Limits] = weakref.WeakSet()
_lock = threading.Lock()
_watchers: dict[int, threading.Thread] = {}
"""The interrupting thread, by process id: a forked process has none and starts its own."""


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
        _look()  # a function of its own, so that nothing keeps the connection of a thread that ended while this sleeps


def _look() -> None:
    with _lock:
        watched = list(_watched)
    for limits in watched:
        limits.interrupt_if_late()
