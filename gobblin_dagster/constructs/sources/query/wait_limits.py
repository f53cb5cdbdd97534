"""How long statements of the `query` source may take, so that one table does not keep all others waiting."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import sqlalchemy as sa

from gobblin_dagster.constructs.clients.sql import MYSQL

_LEAST_LOCK_S = 1.0
_LOCKS_OF_POSTGRESQL = sa.text("SELECT set_config('lock_timeout', :lock_ms, true)")
_STATEMENTS_OF_POSTGRESQL = sa.text("""
    SELECT set_config(name, CAST(least(nullif(CAST(setting AS bigint), 0), :statement_ms) AS text), true)
    FROM pg_settings WHERE name = 'statement_timeout'
""")
_STATEMENTS_OF_MARIADB = sa.text(
    "SET SESSION max_statement_time = if(@@max_statement_time = 0, :statement_s, "
    "least(@@max_statement_time, :statement_s))"
)
_STATEMENTS_OF_MYSQL = sa.text(
    "SET SESSION max_execution_time = if(@@max_execution_time = 0, :statement_ms, "
    "least(@@max_execution_time, :statement_ms))"
)


@dataclass(slots=True)
class WaitLimits:
    """Limits of waits for locks, and of statements that plan one table; SQLite has the latter alone.

    Times of other sessions' locks are counted together for all tables of a plan: a migration may have locked hundreds.
    """

    lock_s: float = 30.0
    """Seconds to wait for a lock: at reading each time, while planning for all tables together."""
    statement_s: float = 1800.0
    """Seconds that one statement of a plan may take."""
    _waited_s: float = 0.0
    _over_at: float = math.inf

    def add_wait(self, seconds: float) -> None:
        """Count a wait for a lock that was given up."""
        self._waited_s += seconds

    def apply(self, connection: sa.Connection) -> None:
        """Limit the statements that follow and plan tables, in PostgreSQL those of this transaction.

        A limit for statements that the server, the role or the URL sets, and that is shorter, stays.
        """
        lock_s = self.apply_to_locks(connection)
        seconds = lock_s + self.statement_s  # both servers count the wait for a lock as part of the statement
        if connection.dialect.name == "postgresql":
            connection.execute(_STATEMENTS_OF_POSTGRESQL, {"statement_ms": round(seconds * 1000)})
        elif getattr(connection.dialect, "is_mariadb", False):
            connection.execute(_STATEMENTS_OF_MARIADB, {"statement_s": seconds})
        elif connection.dialect.name in MYSQL:
            connection.execute(_STATEMENTS_OF_MYSQL, {"statement_ms": round(seconds * 1000)})

    def apply_to_locks(self, connection: sa.Connection) -> float:
        """Limit the waits for locks alone; returns the seconds of one: a second at least, however long others took."""
        lock_s = max(_LEAST_LOCK_S, self.lock_s - self._waited_s)
        if connection.dialect.name == "postgresql":
            connection.execute(_LOCKS_OF_POSTGRESQL, {"lock_ms": str(round(lock_s * 1000))})
        elif connection.dialect.name in MYSQL:
            connection.exec_driver_sql(self.of_session(lock_s))
        return lock_s

    def of_session(self, lock_s: float | None = None) -> str:
        """Return the statement that limits the waits for locks of a session of MySQL or MariaDB."""
        return f"SET SESSION lock_wait_timeout = {math.ceil(self.lock_s if lock_s is None else lock_s)}"

    @property
    def of_transaction(self) -> dict[str, str]:
        """The settings of PostgreSQL that limit the waits for locks of a transaction."""
        return {"lock_timeout": f"{self.lock_s * 1000:.0f}"}

    @contextmanager
    def of_table(self) -> Iterator[None]:
        """Limit what plans one table, for `is_over`."""
        before, self._over_at = self._over_at, time.monotonic() + self.statement_s
        try:
            yield
        finally:
            self._over_at = before

    def is_over(self) -> bool:
        """Tell whether the plan of one table takes longer than it may: SQLite has no such limit of its own."""
        return time.monotonic() > self._over_at
