"""ServiceStore: one database for all nodes of a service, in SQLite or PostgreSQL.

The rooms above read and write rows with the functions of the modules beside this one, inside of a transaction that they
open here: what belongs together (a flow, its first execution, the audit row) becomes durable together or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Self, TypeAlias

from sqlalchemy import URL, Connection, Engine, func, select

from gobblin_dagster.core.clock import Clock
from gobblin_dagster.database.engine import WRITE, errors_of, make_engine, parse_url, shown_url
from gobblin_dagster.service.store.schema import CHAIN

Transaction: TypeAlias = Connection
"""An open transaction; what is written in it becomes durable when its block ends without an error."""

_CHANGE_LOCK = 0x60BB13


class ServiceStore:
    """Opens the service's tables, and makes or migrates them.

    Times are the database's own in PostgreSQL and `clock`'s in SQLite, so that nodes whose clocks differ agree.

    Args:
        engine_url: `sqlite:///<file>` or `postgresql://user:password@host:port/database`.
        clock: used if the database has no clock of its own.

    Raises:
        StoreVersionError: the tables have a revision that this program does not know; nothing was changed.
        TransientError: the database cannot be reached.
        EnvironmentFaultError: the database's driver is not installed.
        StorageError: the file or its folder cannot be used.
        UsageError: the URL cannot be read.

    Source: gobblin-runtime `SpecStore`, `MysqlDagActionStore` and `MysqlMultiActiveLeaseArbiter` in one database.
        Differs: what belongs together is written in one transaction.
    """

    def __init__(self, engine_url: str | URL, clock: Clock) -> None:
        parsed = parse_url(engine_url)
        self._url = shown_url(parsed)
        self._clock = clock
        self._reader: Engine = make_engine(parsed)
        self._writer: Engine = self._reader.execution_options(**{WRITE: True})
        try:
            with self.read() as transaction:
                current = CHAIN.is_current(transaction, self._url)
            if not current:
                with self.write() as transaction:
                    CHAIN.upgrade(transaction, self._url)
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """The database, as people may see it."""
        return self._url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._reader.dispose()

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """Open a transaction that only reads; raises TransientError or StorageError."""
        with errors_of(self._url), self._reader.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """Open a transaction that writes; raises TransientError or StorageError."""
        with errors_of(self._url), self._writer.begin() as connection:
            yield connection

    def now(self, transaction: Transaction) -> datetime:
        """Return the instant by the store's clock, in UTC."""
        if transaction.dialect.name == "sqlite":
            return self._clock.now()
        instant: datetime = transaction.execute(select(func.clock_timestamp())).scalar_one()
        return instant.astimezone(UTC)


def serialize_changes(transaction: Transaction) -> None:
    """Let changes of the catalog follow each other until the transaction ends.

    The numbers of changes would else become visible out of order in PostgreSQL, and a node that reads "all after 7"
    would miss the 6 that was committed later. SQLite has one writer at a time anyway.
    """
    if transaction.dialect.name == "postgresql":
        transaction.execute(select(func.pg_advisory_xact_lock(_CHANGE_LOCK)))
