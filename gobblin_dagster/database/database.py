"""Database: one store's tables in SQLite or PostgreSQL, opened and brought to the newest revision."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime

from sqlalchemy import URL, Connection, Engine, RootTransaction, func, select

from gobblin_dagster.core.clock import Clock
from gobblin_dagster.core.errors import TransientError
from gobblin_dagster.database.engine import LOCK_WAIT_S, WRITE, errors_of, make_engine, parse_url, shown_url
from gobblin_dagster.database.migrations import RevisionChain


class Database:
    """Opens a database, and makes or migrates the tables of one store in it.

    Times are the database's own in PostgreSQL and `clock`'s in SQLite, so that programs whose clocks differ agree.

    Args:
        engine_url: `sqlite:///<file>` or `postgresql://user:password@host:port/database`.
        clock: used if the database has no clock of its own.
        chain: the revisions of the store's tables.
        upgraded: called in the transaction that made or migrated the tables.
        may_be_away: whether a database that cannot be reached now is opened by the first use that reaches it; until
            then each use raises TransientError.
        answer_within_s: as `make_engine`.

    Raises:
        StoreVersionError: the tables have a revision that this program does not know; nothing was changed.
        TransientError: the database cannot be reached.
        EnvironmentFaultError: the database's driver is not installed.
        StorageError: the file or its folder cannot be used.
        UsageError: the URL cannot be read.
    """

    def __init__(
        self,
        engine_url: str | URL,
        clock: Clock,
        chain: RevisionChain,
        upgraded: Callable[[Connection], None] = lambda _: None,
        *,
        may_be_away: bool = False,
        answer_within_s: float | None = None,
    ) -> None:
        self._parsed = parsed = parse_url(engine_url)
        self.url = shown_url(parsed)
        """The database, as people may see it."""
        self._clock = clock
        self._chain = chain
        self._upgraded = upgraded
        self.is_open = False
        """Whether the tables were found, or made, in their newest revision."""
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        """Whether it is a file of this machine, not a server."""
        engine = make_engine(parsed, answer_within_s=answer_within_s)
        # The queries of a transaction that only reads see one moment, as they always do in SQLite.
        of_reads = {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"}
        self._reader: Engine = engine.execution_options(**of_reads)
        self._writer: Engine = engine.execution_options(**{WRITE: True})
        self._writes = threading.RLock()
        try:
            self._open()
        except TransientError:
            self.close()
            if not may_be_away:
                raise
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        """Make the tables, or bring them to the newest revision; two programs may do so at once."""
        with self.errors(), self._reader.begin() as connection:
            current = self._chain.is_current(connection, self.url)
        if not current:
            patient = make_engine(self._parsed)  # the migration of a large table may take as long as it takes
            try:
                with self.errors(), self._turn(), patient.execution_options(**{WRITE: True}).begin() as connection:
                    self._chain.upgrade(connection, self.url)
                    self._upgraded(connection)
            finally:
                patient.dispose()
        self.is_open = True

    def close(self) -> None:
        """Close all connections."""
        self._reader.dispose()

    def errors(self) -> AbstractContextManager[None]:
        """Turn what the database raises into our errors; see `errors_of`."""
        return errors_of(self.url)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a transaction that only reads; raises TransientError or StorageError."""
        if not self.is_open:
            self._open()
        with self.errors(), self._reader.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a transaction that writes; raises TransientError or StorageError."""
        if not self.is_open:
            self._open()
        with self.errors(), self._turn(), self._writer.begin() as connection:
            yield connection

    @contextmanager
    def written(self) -> Iterator[RootTransaction]:
        """Open a transaction that writes and that the caller commits, to see how that ends; else it is rolled back.

        Raises TransientError or StorageError.
        """
        if not self.is_open:
            self._open()
        with self.errors(), self._turn(), self._writer.connect() as connection:
            yield connection.begin()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Let the threads of this process write to SQLite one after the other.

        SQLite lets a transaction that has to wait sleep for up to 100 ms, while the lock is free most of that time.
        """
        # If it takes too long, SQLite's own error tells.
        is_locked = self._writes.acquire(timeout=LOCK_WAIT_S) if self.is_sqlite else False
        try:
            yield
        finally:
            if is_locked:
                self._writes.release()

    def now(self, connection: Connection) -> datetime:
        """Return the instant by the database's clock; SQL's `now()` would be the beginning of the transaction."""
        if connection.dialect.name == "sqlite":
            return self._clock.now()
        instant: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
        return instant.astimezone(UTC)
