"""Give up a load whose database has fallen silent, however long its statements may honestly take.

A statement that runs for an hour says nothing on the wire; nor does a connection that a proxy, a tunnel or a firewall
has lost. So the server is asked by another connection, now and then, whether it still works for ours.
"""

from __future__ import annotations

import fcntl
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, OperationalError

from gobblin_dagster.constructs.clients.sql import MYSQL, error_number
from gobblin_dagster.core.utils.cut_off import cut_off

LOOK_S = 60.0
"""How often a server is asked."""
SILENT_S = 300.0
"""Seconds after which a load is given up whose server does not answer, or does not work for it any more."""
_ASK_S = 30
_CALL = "gobblin_call"
_ACTIVE = 1
"""psycopg2's TRANSACTION_STATUS_ACTIVE: a command was sent, and its end has not come."""

_OWN = {
    "postgresql": "SELECT pg_backend_pid()",
    "mysql": "SELECT connection_id()",
}
_IS_IDLE = {
    # In COPY it waits for our rows: it has lost them if all are sent.
    "postgresql": "SELECT state LIKE 'idle%' OR wait_event = 'ClientRead' AND :is_sent FROM pg_stat_activity "
    "WHERE pid = :session",
    "mysql": "SELECT command = 'Sleep' FROM information_schema.processlist WHERE id = :session",
}


def ask_arguments(backend: str) -> dict[str, Any]:
    """Return arguments for the driver of connections by which a server is asked: each call ends."""
    if backend in MYSQL:
        return {"connect_timeout": 10, "read_timeout": _ASK_S, "write_timeout": _ASK_S}
    if backend != "postgresql":
        return {}
    # The driver of PostgreSQL is an optional package.
    from gobblin_dagster.database.watched import connection_arguments  # noqa: PLC0415

    return connection_arguments(_ASK_S)


class Watch:
    """Looks after one connection in a thread.

    Args:
        connection: the connection.
        ask: makes connections by which the server is asked.
    """

    def __init__(self, connection: sa.Connection, ask: sa.Engine) -> None:
        self._kind = "postgresql" if connection.dialect.name == "postgresql" else "mysql"
        self._connection = connection
        self._driver: Any = connection.connection.dbapi_connection
        library: Any = connection.dialect.loaded_dbapi
        self._closed = (OSError, AttributeError, library.InterfaceError)
        self._ask = ask
        self._session = connection.scalar(sa.text(_OWN[self._kind]))
        self._was_seen = False
        self._is_over = False
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self.is_silent = False
        """Whether the connection was given up."""

    def run(self) -> None:
        """Ask until the watch is over, or the connection is given up."""
        heard_at = time.monotonic()
        while not self._wake.wait(LOOK_S):
            if not self._waits() or self._is_heard():
                heard_at = time.monotonic()
            elif time.monotonic() - heard_at >= SILENT_S:
                # Under the lock: a connection that is closed may leave its number to another one.
                with self._lock:
                    if not self._is_over:
                        self.is_silent = True
                        self._cut_off()
                return

    def end(self) -> None:
        """End the watch, before the connection is closed."""
        with self._lock:
            self._is_over = True
        self._wake.set()

    def _waits(self) -> bool:
        """Return whether our side has asked for something and waits for the answer."""
        if self._kind == "postgresql":
            return bool(self._driver.info.transaction_status == _ACTIVE)
        return bool(self._connection.info.get(_CALL))

    def _is_heard(self) -> bool:
        """Return whether the server answers, and does not say that it waits for us."""
        try:
            with self._ask.connect() as other:
                facts = {"session": self._session, "is_sent": self._is_sent()}
                row = other.execute(sa.text(_IS_IDLE[self._kind]), facts).first()
        except OperationalError as error:
            return self._is_answer(error)
        except DBAPIError:
            return True
        if row is None:
            return not self._was_seen  # behind some proxies sessions have other numbers
        self._was_seen = True
        return not row[0]

    def _is_answer(self, error: OperationalError) -> bool:
        """Return whether the server itself refused, such as one connection too many."""
        if self._kind == "postgresql":
            return bool(getattr(error.orig, "pgcode", None)) or "FATAL:" in str(error.orig)
        code = error_number(error)
        return isinstance(code, int) and not 2000 <= code < 3000  # those are the client's own

    def _is_sent(self) -> bool:
        """Return whether the other end has acknowledged all that our side has written."""
        left = bytearray(4)
        try:
            fcntl.ioctl(self._descriptor(), termios.TIOCOUTQ, left)
        except self._closed:
            return False
        return not any(left)

    def _cut_off(self) -> None:
        with suppress(*self._closed):
            cut_off(self._descriptor())

    def _descriptor(self) -> int:
        # PyMySQL shows its socket in no other way.
        owner = self._driver if self._kind == "postgresql" else self._driver._sock
        return int(owner.fileno())


@contextmanager
def while_heard(connection: sa.Connection, make_ask: Callable[[], sa.Engine]) -> Iterator[Watch | None]:
    """Cut a connection off once its server has fallen silent: the call that waits for it then fails.

    Args:
        connection: to PostgreSQL, MySQL or MariaDB, for one transaction: a pool such as PgBouncer may use another
            session for the next one. Other databases are left alone.
        make_ask: returns the engine by which the server is asked, with `ask_arguments`.
    """
    if connection.dialect.name not in ("postgresql", *MYSQL):
        yield None
        return
    watch = Watch(connection, make_ask())
    _note_calls(connection)
    threading.Thread(target=watch.run, name="database-watch", daemon=True).start()
    try:
        yield watch
    finally:
        watch.end()


def _note_calls(connection: sa.Connection) -> None:
    """Note in a connection's `info` that a call runs; a commit is the last one."""

    def begins(*_: Any) -> None:
        connection.info[_CALL] = True

    def ends(*_: Any) -> None:
        connection.info[_CALL] = False

    sa.event.listen(connection, "before_cursor_execute", begins)
    sa.event.listen(connection, "after_cursor_execute", ends)
    sa.event.listen(connection, "commit", begins)
