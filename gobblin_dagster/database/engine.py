"""Engines of the SQL state store: what makes SQLite and PostgreSQL durable, and their errors as ours.

SQLite: one file in WAL mode with `synchronous=FULL` (one fsync per commit); transactions that write take the write lock
as they begin. PostgreSQL: a runner frozen inside a transaction is cut off by the server, so that it cannot stall the
others.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from gobblin_dagster.core.errors import EnvironmentFaultError, StorageError, TransientError, UsageError
from gobblin_dagster.core.postgresql import postgresql_may_recover
from gobblin_dagster.storage import LocalStorage

LOCK_WAIT_S = 30
"""How long a transaction waits for another one's lock."""
IDLE_IN_TRANSACTION_S = 60
CONNECT_WAIT_S = 10

_HERE = Path()
_HINT = "Write it as sqlite:///folder/state.db or postgresql://user:password@host:port/database."

WRITE = "gobblin_write"
"""Execution option of connections that will write."""

_POSTGRESQL_SESSION = (
    f"SET lock_timeout = '{LOCK_WAIT_S}s'",
    f"SET idle_in_transaction_session_timeout = '{IDLE_IN_TRANSACTION_S}s'",
    # A commit that the server forgets in a power loss would leave the watermark behind its data for ever.
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
)


def parse_url(text: str | URL, base_dir: Path = _HERE) -> URL:
    """Return a store's URL with its driver and an absolute file.

    Raises:
        UsageError: it is no URL, or names no file.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        # The text is not repeated: it may hold a password.
        raise UsageError(problem="The state store's URL cannot be read.", hint=_HINT) from None
    if url.drivername in ("postgres", "postgresql"):
        return url.set(drivername="postgresql+psycopg2")
    if url.get_backend_name() == "sqlite":
        if url.database in (None, "", ":memory:"):
            raise UsageError(problem="The state store's URL names no file.", hint=_HINT)
        return url.set(database=str(base_dir.absolute() / str(url.database)))
    return url


def shown_url(url: URL) -> str:
    """Return the URL as people may see it: no password, nor options, which may hold one too."""
    return url.set(query={}).render_as_string(hide_password=True)


def make_engine(url: URL) -> Engine:
    """Return an engine that keeps the rules above; opens no connection to PostgreSQL yet.

    Raises:
        EnvironmentFaultError: the database's driver is not installed.
        StorageError: the folder of the SQLite file cannot be made.
    """
    try:
        if url.get_backend_name() == "sqlite":
            return _sqlite_engine(url)
        return _postgresql_engine(url)
    except ModuleNotFoundError as error:
        raise EnvironmentFaultError(
            problem=f"The state store {shown_url(url)} needs the Python package {error.name}, which is not installed.",
            hint="Install it with `pip install 'gobblin-dagster[postgres]'`.",
        ) from error


def _sqlite_engine(url: URL) -> Engine:
    _make_folder(Path(str(url.database)).parent)
    engine = create_engine(url, connect_args={"timeout": LOCK_WAIT_S})

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: Any) -> None:
        # Python's driver would begin transactions when it thinks fit; SQLAlchemy's `begin` event does it instead.
        connection.isolation_level = None
        _use_wal(connection)
        connection.execute("PRAGMA synchronous = FULL")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that reads first and writes later fails at once where another wrote in between.
        write = connection.get_execution_options().get(WRITE, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL, where a commit is one fsync instead of three; the mode stays with the file."""
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # Of several programs that open a new file at once, all but one may be told that it is locked; unlike
            # everywhere else SQLite does not wait here.
            if not _is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _postgresql_engine(url: URL) -> Engine:
    # The ping spares an error for each pooled connection after the server was restarted.
    engine = create_engine(url, pool_pre_ping=True, connect_args={"connect_timeout": CONNECT_WAIT_S})

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: Any) -> None:
        with connection.cursor() as cursor:
            for statement in _POSTGRESQL_SESSION:
                cursor.execute(statement)
        connection.commit()

    return engine


def _make_folder(folder: Path) -> None:
    """Make a folder and its parents, so that they outlive a power loss."""
    if folder.is_dir():
        return
    try:
        LocalStorage().make_dirs(str(folder))
    except OSError as error:
        raise StorageError(
            operation="make the folder", path=str(folder), problem=error.strerror or str(error)
        ) from error


_FOLDER_FAULTS = ("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_FULL", "SQLITE_IOERR")


@contextmanager
def errors_of(shown: str) -> Iterator[None]:
    """Turn what the database raises into our errors.

    Raises:
        TransientError: the database cannot be reached, is locked, or ended the connection.
        StorageError: it refuses to work: no space, read-only, no database at all.
    """
    try:
        yield
    except PoolTimeoutError as error:
        raise TransientError(problem=f"State store {shown}: all connections are in use.") from error
    except DBAPIError as error:
        problem = " ".join(str(error.orig).split())
        if getattr(error.orig, "sqlite_errorname", "").startswith(_FOLDER_FAULTS):
            problem += "; its folder must be writable and have room, for reading too"
        if _is_transient(error):
            raise TransientError(problem=f"State store {shown} cannot be used now: {problem}.") from error
        raise StorageError(operation="use the state store", path=shown, problem=problem) from error


_REFUSED_STATES = ("28", "3D", "42")
"""SQLSTATE classes that no retry mends: who one is, which database, what one may do."""


def _is_transient(error: DBAPIError) -> bool:
    if isinstance(error.orig, sqlite3.Error):
        return _is_busy(error.orig)
    if error.connection_invalidated:
        return True
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    state = getattr(error.orig, "pgcode", None)
    # A lock that was not given counts as lost too. Drivers give no SQLSTATE of connections that did not come about.
    return not state.startswith(_REFUSED_STATES) if state else postgresql_may_recover(None, str(error.orig))


def _is_busy(error: sqlite3.Error) -> bool:
    # Errors that the driver itself raises carry no name.
    return getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
