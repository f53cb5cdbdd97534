"""The database of the `query` source: connections, tables with their columns, and its errors as ours.

Only reads: sessions are read-only, and planning uses one snapshot. The URL is never part of a message.
"""

from __future__ import annotations

import sqlite3
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import (
    DBAPIError,
    InterfaceError,
    NoSuchTableError,
    OperationalError,
    SAWarning,
    UnreflectableTableError,
)

from gobblin_dagster.constructs.clients.sql import MYSQL, column_name, error_number, make_engine, parse_url, savepoint
from gobblin_dagster.constructs.clients.sql_locks import holders, is_wait_over
from gobblin_dagster.constructs.sources.query.types import Column, described_columns, reflected_column
from gobblin_dagster.constructs.sources.query.wait_limits import WaitLimits
from gobblin_dagster.core.errors import SourceError, TransientError
from gobblin_dagster.core.mysql import SESSION, TYPES_AS_THEY_ARE
from gobblin_dagster.core.postgresql import postgresql_may_recover, transaction_settings
from gobblin_dagster.core.utils.sqlite import is_locked

APPLICATION = "gobblin_dagster"
"""Name of our sessions in PostgreSQL."""
READING = f"{APPLICATION} reads"
"""Their name as long as a transaction of ours lasts; the commit horizon ignores these, because they never write.

Not the name of the session: a pool such as PgBouncer hands sessions on, and one of a writer that has no name of its own
keeps the last one."""
_SETTINGS = {"transaction_read_only": "on", "application_name": READING}
_GEOMETRIES = (
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
    *("geometrycollection", "geomcollection"),
)
"""Types of columns in MySQL and MariaDB that hold geometries."""
_SAMPLE_ROWS = 100
_STEPS_OF_SQLITE = 100_000
"""Instructions of SQLite's machine, some milliseconds, after which it looks whether a statement is to be given up."""

_PASSING_CODES = (1040, 1053, 1152, 1158, 1159, 1160, 1161, 1203, 1205, 1213, 1317, 1927, 2002, 2003, 2006, 2013, 2055)
"""Temporary errors of MySQL and MariaDB: too many connections, shutdown, connection lost, deadlock, unreachable."""

_NOT_PLAIN = sa.text("""
    SELECT nspname, relname, relispartition FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE relispartition OR relhassubclass OR relkind IN ('v', 'm', 'f')
""")
"""All but tables whose rows are all their own. Only those of such a table keep its `NOT NULL` for certain: a table that
inherits from it may lack it, nobody enforces that of a foreign table, and the outer join of a view has NULL in columns
of a domain that forbids it."""

_NAMES = sa.text("""
    SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = :schema AND relkind IN ('r', 'p', 'f', 'v', 'm') ORDER BY relname
""")

_MYSQL_TELLS = sa.text(
    "SELECT UTC_TIMESTAMP(6), TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', "
    "@@global.time_zone)), FALSE"
)
_TELLS = {
    # Our session is in UTC; the zone that it began with is the server's default.
    "postgresql": sa.text("""
        SELECT clock_timestamp() AT TIME ZONE 'UTC',
            EXTRACT(EPOCH FROM (now() AT TIME ZONE reset_val) - (now() AT TIME ZONE 'UTC')),
            pg_is_in_recovery()
        FROM pg_settings WHERE name = 'TimeZone'
    """),
    **dict.fromkeys(MYSQL, _MYSQL_TELLS),
}


@dataclass(frozen=True, slots=True)
class Server:
    """What a database server reports about itself."""

    now: datetime
    offset: timedelta | None
    """Offset of the server's own zone from UTC; None if it is unknown."""
    is_standby: bool
    """Whether it is a PostgreSQL standby, which does not see transactions of its primary."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table or view; `problem` says why it cannot be read, if it cannot."""

    schema: str
    name: str
    columns: tuple[Column, ...] = ()
    problem: str = ""
    notes: tuple[str, ...] = ()
    """Notes for the plan."""

    @property
    def urn(self) -> str:
        """The dataset.urn: `schema.table`."""
        return f"{self.schema}.{self.name}"

    def column(self, name: str) -> Column | None:
        """Return a column by name."""
        return next((column for column in self.columns if column.name == name), None)

    def with_nulls(self) -> Table:
        """Return the table with NULL in any column thought possible."""
        return replace(self, columns=tuple(replace(column, nullable=True) for column in self.columns))


class Database:
    """A database to read from; opens a connection for each use and keeps none.

    Args:
        url: SQLAlchemy URL; PostgreSQL without a driver uses psycopg2.
        base_dir: folder that a relative SQLite path begins at.
        job: name of the job, for messages.
        limits: how long statements may take.

    Raises:
        SourceError: the URL cannot be parsed, or its SQLite file does not exist.
        EnvironmentFaultError: the database's driver is not installed.
    """

    def __init__(self, url: str, base_dir: str, job: str, limits: WaitLimits | None = None) -> None:
        self.job = job
        self.limits = limits or WaitLimits()
        try:
            self.url = parse_url(url, base_dir)
        except ValueError as error:
            raise SourceError(job=job, problem=f"{error}.") from None
        self.backend = self.url.get_backend_name()
        self.shown = _shown(self.url)
        if self.backend == "sqlite" and not Path(str(self.url.database)).is_file():
            raise SourceError(job=job, problem=f"there is no file {self.url.database}.")
        self._settings = _SETTINGS | self.limits.of_transaction
        self._engine = self._make_engine()

    @property
    def transaction(self) -> str:
        """Statement that each transaction in PostgreSQL begins with."""
        return transaction_settings(self._settings)

    @property
    def is_postgresql(self) -> bool:
        """Whether open transactions and locks can be queried."""
        return self.backend == "postgresql"

    def _make_engine(self) -> sa.Engine:
        connect_args = {"application_name": APPLICATION} if self.is_postgresql else {}
        session = (*SESSION, "SET SESSION TRANSACTION READ ONLY", self.limits.of_session())
        engine = make_engine(self.url, self.shown, connect_args, self._settings, session)
        if self.is_postgresql:
            sa.event.listen(engine, "handle_error", _keep_connection)
        if self.backend == "sqlite":
            sa.event.listen(engine, "connect", _use_explicit_transactions)
            sa.event.listen(engine, "connect", self._limit_sqlite)
            sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        return engine

    def _limit_sqlite(self, connection: sqlite3.Connection, _record: Any) -> None:
        connection.set_progress_handler(self.limits.is_over, _STEPS_OF_SQLITE)

    def _connect(self) -> sa.Connection:
        try:
            return self._engine.connect()
        except TypeError as error:  # options after `?` in the URL become arguments of the driver's function
            raise SourceError(job=self.job, problem=f"the URL of {self.shown} has a wrong option: {error}.") from None

    @contextmanager
    def snapshot(self) -> Iterator[sa.Connection]:
        """Yield a connection in one read-only transaction, which sees one state of the database."""
        options: dict[str, Any] = {}
        if self.is_postgresql:
            options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        elif self.backend in ("mssql", "oracle"):
            options = {"isolation_level": "SERIALIZABLE" if self.backend == "oracle" else "REPEATABLE READ"}
        with self.errors(), self._connect().execution_options(**options) as connection:
            yield from _rolled_back(connection)

    @contextmanager
    def newest(self) -> Iterator[sa.Connection]:
        """Yield a connection in one transaction, in which each statement sees the newest state; for PostgreSQL only."""
        with self.errors(), self._connect() as connection:
            yield from _rolled_back(connection)

    @contextmanager
    def session(self) -> Iterator[sa.Connection]:
        """Yield a connection on which each statement sees the newest state; for PostgreSQL only."""
        with self.errors(), self._connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            yield connection

    def server(self) -> Server | None:
        """Return what the server reports about itself; None for a database without a server, or of an unknown kind."""
        statement = _TELLS.get(self.backend)
        if statement is None:
            return None
        with self.errors(), self._connect() as connection:
            now, seconds, is_standby = connection.execute(statement).one()
        offset = None if seconds is None else timedelta(seconds=int(seconds))
        return Server(now.replace(tzinfo=UTC), offset, bool(is_standby))

    def tables(self, schemas: Sequence[str] | None, names: Sequence[str] | None = None) -> dict[str, Table]:
        """Return tables and views, by urn.

        Without names, partitions are left out: their rows belong to the partitioned table.

        Args:
            schemas: schemas to search; None: all except those of the system.
            names: names to return; None: all.
        """
        with self.errors(), self._connect() as connection, warnings.catch_warnings():
            # SQLAlchemy warns of types that it does not know (xml, point); they are read as text.
            warnings.filterwarnings("ignore", "Did not recognize type", SAWarning)
            # Periods of MariaDB's tables and the like, which are no columns.
            warnings.filterwarnings("ignore", "Unknown schema content", SAWarning)
            # A column that it cannot read in MySQL's text of a table (its name has a line break) would be missing.
            warnings.filterwarnings("error", "Unknown column definition", SAWarning)
            if self.backend in MYSQL:
                connection.exec_driver_sql(TYPES_AS_THEY_ARE)
            self.limits.apply_to_locks(connection)
            inspector = sa.inspect(connection)
            found: dict[str, Table] = {}
            for schema in schemas if schemas is not None else _user_schemas(inspector):
                # If SQLAlchemy queries the tables one by one anyway, a failure can be limited to its table.
                by_one = self.backend in (*MYSQL, "sqlite")
                reflect = self._tables_one_by_one if by_one else self._tables_at_once
                found |= {table.urn: table for table in reflect(connection, inspector, schema, names)}
            for schema, name, is_partition in connection.execute(_NOT_PLAIN) if self.is_postgresql else ():
                urn = Table(schema, name).urn
                if is_partition and names is None:
                    found.pop(urn, None)
                elif urn in found:
                    found[urn] = found[urn].with_nulls()
            return found

    def _tables_at_once(
        self, connection: sa.Connection, inspector: sa.Inspector, schema: str, names: Sequence[str] | None
    ) -> list[Table]:
        """Return the tables; one that another session has locked gets a `problem` of its own."""
        began = time.monotonic()
        try:
            with savepoint(connection):
                return self._described(inspector, schema, names)
        except DBAPIError as error:
            if not is_wait_over(error):
                raise
        # One of them is locked, and PostgreSQL needs the table itself to tell a column's default.
        self.limits.add_wait(time.monotonic() - began)
        self.limits.apply_to_locks(connection)
        there = connection.execute(_NAMES, {"schema": schema}).scalars().all()
        return [
            table
            for name in there
            if names is None or name in names
            for table in self._one_described(connection, inspector, schema, name)
        ]

    def _one_described(self, connection: sa.Connection, inspector: sa.Inspector, schema: str, name: str) -> list[Table]:
        try:
            with self.planning(f"{schema}.{name}: ", name, connection):
                return self._described(inspector, schema, [name])
        except SourceError as error:
            self.limits.apply_to_locks(connection)
            return [Table(schema, name, problem=error.problem)]

    def _described(self, inspector: sa.Inspector, schema: str, names: Sequence[str] | None) -> list[Table]:
        kind = sa.engine.reflection.ObjectKind.ANY
        try:
            columns = inspector.get_multi_columns(schema=schema, filter_names=names, kind=kind)
        except NoSuchTableError:
            return []
        return [Table(schema, name, tuple(map(self._column, parts))) for (_, name), parts in columns.items()]

    def _column(self, reflected: Any) -> Column:
        return reflected_column(reflected, is_postgresql=self.is_postgresql)

    def _tables_one_by_one(
        self, connection: sa.Connection, inspector: sa.Inspector, schema: str, names: Sequence[str] | None
    ) -> Iterator[Table]:
        """Yield the tables; one that we may not see (MySQL: views without SHOW VIEW) gets a `problem` of its own."""
        there = schema in inspector.get_schema_names()
        views = inspector.get_view_names(schema) if there else []
        for name in (*inspector.get_table_names(schema), *views) if there else ():
            if names is not None and name not in names:
                continue
            try:
                with self.errors(f"{schema}.{name}: ", of_table=name):
                    parts = inspector.get_columns(name, schema)
            except NoSuchTableError:  # somebody dropped or renamed it since the names were listed
                continue
            except (SourceError, UnreflectableTableError, SAWarning) as error:
                problem = error.problem if isinstance(error, SourceError) else f"{schema}.{name}: {error}"
                self.limits.apply_to_locks(connection)
                yield Table(schema, name, problem=problem)
            else:
                own_name = partial(column_name, dialect=self._engine.dialect, of_view=name in views)
                named = [{**part, "name": own_name(part["name"])} for part in parts]
                unknown = any(isinstance(part["type"], sa.types.NullType) for part in named)
                places = self._geometries(inspector, schema, name) if unknown and self.backend in MYSQL else frozenset()
                columns = map(self._column, named)
                yield Table(schema, name, tuple(replace(one, is_geometry=one.name in places) for one in columns))

    @staticmethod
    def _geometries(inspector: sa.Inspector, schema: str, table: str) -> frozenset[str]:
        """Return the columns of a table of MySQL or MariaDB that hold geometries."""
        names = {"schema": schema, "table": table, "kinds": _GEOMETRIES}
        query = sa.text(
            "SELECT column_name FROM information_schema.columns "
            "WHERE table_schema = :schema AND table_name = :table AND data_type IN :kinds"
        ).bindparams(sa.bindparam("kinds", expanding=True))
        return frozenset(inspector.bind.execute(query, names).scalars())  # type: ignore[union-attr]  # is a connection

    def query_columns(self, query: str) -> tuple[Column, ...]:
        """Return the columns of a query's result; raises as `errors`.

        In PostgreSQL the types are those of the result; elsewhere those of the first values that are not null.
        """
        with self.snapshot() as connection, self.errors(of_table="query"):
            self.limits.apply(connection)
            # Escape every colon: SQLAlchemy would read `:name` as a parameter.
            source = sa.text(f"({query}) q".replace(":", r"\:"))
            sample = sa.select(sa.text("*")).select_from(source).limit(0 if self.is_postgresql else _SAMPLE_ROWS)
            result: Any = connection.execute(sample)
            description = list(result.cursor.description)
            rows = result.fetchall()
        return described_columns(description, None if self.is_postgresql else rows, is_mysql=self.backend in MYSQL)

    def default_schema(self) -> str:
        """Return the schema of names without one."""
        with self.errors(), self._connect() as connection:
            return str(sa.inspect(connection).default_schema_name or "main")

    @contextmanager
    def errors(self, where: str = "", *, of_table: str = "") -> Iterator[None]:
        """Raise the database's errors as ours.

        Args:
            where: beginning of messages.
            of_table: name of the one table that is planned, which may not keep others from being planned: it is given
                up after a time, and whatever fails is its own problem as long as the connection lasts. The server of a
                foreign table may be away, another session may hold a lock.

        Raises:
            TransientError: the database cannot be reached, is overloaded, or ended the connection.
            SourceError: the database refuses the statement.
        """
        began = time.monotonic()
        try:
            with self.limits.of_table() if of_table else nullcontext():
                yield
        except DBAPIError as error:
            problem = without_credentials(str(error.orig or error), self.url).rstrip(". \n")
            is_of_table = of_table and self.backend != "sqlite" and not error.connection_invalidated
            if _is_transient(error, self.backend) and not is_of_table:
                raise TransientError(problem=f"Database {self.shown} cannot be used now: {problem}.") from None
            remedy = self._remedy(error, of_table, time.monotonic() - began) if of_table else ""
            raise SourceError(job=self.job, problem=f"{where}database {self.shown} says: {problem}.{remedy}") from None

    @contextmanager
    def planning(self, where: str, table: str, connection: sa.Connection) -> Iterator[None]:
        """Raise errors of statements about one table as `errors` does, and leave the transaction as it was before."""
        with self.errors(where, of_table=table), savepoint(connection):
            yield

    def _remedy(self, error: DBAPIError, table: str, took_s: float) -> str:
        """Return what to do about a statement that was given up after a time; empty for all others."""
        if is_wait_over(error):
            self.limits.add_wait(took_s)
            held = holders(self._engine, table)
            held = f" {held}." if held else ""
            return f" Another session has locked it; `lock_wait_s` tells how long is waited for it.{held}"
        if took_s < self.limits.statement_s:
            return ""
        return (
            " `plan_timeout_s` tells how long the plan of a table may take; an index on the watermark column, or "
            "`count_rows: false`, makes it faster."
        )


def without_credentials(text: str, url: sa.URL) -> str:
    """Return the first line of a driver's message, with user and password replaced by `***`."""
    line = " ".join(text.split("\n", maxsplit=1)[0].split()).rstrip(".")
    for secret in (url.password, url.username and f'"{url.username}"', url.username and f"'{url.username}'"):
        line = line.replace(str(secret), "***") if secret else line
    return line


def _shown(url: sa.URL) -> str:
    """Return the database for messages: without user, password and options."""
    port = f":{url.port}" if url.port else ""
    return f"{url.get_backend_name()}://{url.host or ''}{port}/{str(url.database or '').lstrip('/')}"


def _is_transient(error: DBAPIError, backend: str) -> bool:
    if isinstance(error.orig, sqlite3.Error):
        return is_locked(error.orig)
    if error.connection_invalidated:
        return True
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    if backend in MYSQL:
        return error_number(error) in _PASSING_CODES
    return postgresql_may_recover(getattr(error.orig, "pgcode", None), str(error.orig))


def _rolled_back(connection: sa.Connection) -> Iterator[sa.Connection]:
    """Yield a connection in a transaction that is not committed.

    PostgreSQL refuses to commit where the connection to the server of a foreign table was lost.
    """
    with connection.begin() as transaction:
        yield connection
        transaction.rollback()


def _keep_connection(context: sa.engine.ExceptionContext) -> None:
    """Keep a connection whose server says that another server, of a foreign table, ended one."""
    driver = context.connection and context.connection.connection.driver_connection
    is_open = driver is not None and not driver.closed
    if context.is_disconnect and is_open and getattr(context.original_exception, "pgcode", None):
        context.is_disconnect = False


def _use_explicit_transactions(connection: sqlite3.Connection, _record: Any) -> None:
    # Python's driver begins no transaction before a SELECT, so two of them could see two states.
    connection.isolation_level = None
    connection.execute("PRAGMA query_only = ON")


def _user_schemas(inspector: sa.Inspector) -> list[str]:
    system = {"information_schema", "pg_catalog", "sys", "mysql", "performance_schema"}
    return [name for name in inspector.get_schema_names() if name.lower() not in system]
