"""Make SQLAlchemy engines with durable commits for SQLite and PostgreSQL, and turn their errors into ours.

SQLite: one file in WAL mode with `synchronous=FULL` (one fsync per commit). A transaction that writes takes the write
lock when it begins. PostgreSQL: the server ends the connection of a process that hangs inside a transaction, so that
it cannot block the others.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from sqlalchemy import URL, Connection, Dialect, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from gobblin_dagster.core.errors import EnvironmentFaultError, StorageError, TransientError, UsageError
from gobblin_dagster.core.postgresql import ISOLATION, UTF8, postgresql_may_recover, transaction_settings
from gobblin_dagster.core.utils.cut_off import cut_off_after_records, time_for_records
from gobblin_dagster.core.utils.in_time import interruptible
from gobblin_dagster.core.utils.signals import raise_hidden_interrupt
from gobblin_dagster.core.utils.sqlite import is_locked
from gobblin_dagster.core.utils.url_text import cuts_password, path_problem
from gobblin_dagster.database.statements import share_statements
from gobblin_dagster.storage import LocalStorage

LOCK_WAIT_S = 30
"""Seconds that a transaction waits for the lock of another one."""
_SLICE_S = 0.2
_WAITS_LONG = f"PRAGMA busy_timeout = {LOCK_WAIT_S * 1000}"
_WAITS_SHORT = f"PRAGMA busy_timeout = {_SLICE_S * 1000:.0f}"
IDLE_IN_TRANSACTION_S = 60
"""Seconds after which PostgreSQL ends a connection that does nothing inside a transaction."""
CONNECT_WAIT_S = 10
"""Seconds to wait for a connection to PostgreSQL."""
_SHORTEST_CONNECT_S = 2
"""The least that PostgreSQL's client takes for a limit of that."""

_HERE = Path()
_HINT = "Write it as sqlite:///folder/state.db or postgresql://user:password@host:port/database."

WRITE = "gobblin_write"
"""Execution option of connections that will write; set it to True before the transaction begins."""

_POSTGRESQL_TRANSACTION = transaction_settings(
    {
        "lock_timeout": f"{LOCK_WAIT_S}s",
        "idle_in_transaction_session_timeout": f"{IDLE_IN_TRANSACTION_S}s",
    }
)


def parse_url(text: str | URL, base_dir: Path = _HERE) -> URL:
    """Return a store's URL with its driver; for SQLite with an absolute path.

    Args:
        text: the URL, as in `state:` of gobblin.yaml.
        base_dir: folder that a relative SQLite path starts from.

    Raises:
        UsageError: the text is not a URL, its password is not encoded, it names no possible port, or is a SQLite URL
            without a file.
    """
    if isinstance(text, str) and cuts_password(text):
        problem = "The state store's URL has an `@` in its password or behind its host."
        raise UsageError(problem=problem, hint="Write %40 for an `@` in a password.")
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        # The text is not repeated: it may hold a password.
        raise UsageError(problem="The state store's URL cannot be read.", hint=_HINT) from None
    if url.port is not None and not 0 < url.port < 1 << 16:
        raise UsageError(problem=f"The state store's URL names port {url.port}; ports end at 65535.", hint=_HINT)
    if url.drivername in ("postgres", "postgresql"):
        return url.set(drivername="postgresql+psycopg2")
    if url.get_backend_name() == "sqlite":
        if url.database in (None, "", ":memory:"):
            raise UsageError(problem="The state store's URL names no file.", hint=_HINT)
        if problem := path_problem(str(url.database)):
            raise UsageError(problem=f"The state store's URL names a wrong file: {problem}.")
        return url.set(database=str(base_dir.absolute() / str(url.database)))
    return url


def shown_url(url: URL) -> str:
    """Return the URL for messages: without password, and without options, which may hold a password too."""
    return url.set(query={}).render_as_string(hide_password=True)


def make_engine(url: URL, *, answer_within_s: float | None = None) -> Engine:
    """Return an engine with the settings that this module describes; PostgreSQL is connected on first use.

    Args:
        url: as `parse_url` returns it.
        answer_within_s: seconds after which a call to PostgreSQL that is not answered is given up; None: never.

    Raises:
        EnvironmentFaultError: the database's driver is not installed.
        StorageError: the folder of the SQLite file cannot be created.
    """
    try:
        if url.get_backend_name() == "sqlite":
            return _sqlite_engine(url)
        return _postgresql_engine(url, answer_within_s)
    except ModuleNotFoundError as error:
        raise EnvironmentFaultError(
            problem=f"The state store {shown_url(url)} needs the Python package {error.name}, which is not installed.",
            hint="Install it with `pip install 'gobblin-dagster[postgres]'`.",
        ) from error


def _sqlite_engine(url: URL) -> Engine:
    _make_folder(Path(str(url.database)).parent)
    engine = create_engine(url, connect_args={"timeout": _SLICE_S})
    share_statements(engine)

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: Any) -> None:
        # Keep Python's driver from beginning transactions by itself; the `begin` event below does it.
        connection.isolation_level = None
        # Text that is not UTF-8 is a damaged row, which its digest shows; the driver's error would stop all others too.
        connection.text_factory = lambda raw: raw.decode(errors="replace")
        _use_wal(connection)
        connection.execute(_WAITS_LONG)
        connection.execute("PRAGMA synchronous = FULL")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # IMMEDIATE, because a transaction that reads first and writes later fails if another one wrote in between.
        if connection.get_execution_options().get(WRITE, False):
            _begin_to_write(connection)
        else:
            connection.exec_driver_sql("BEGIN")

    @event.listens_for(engine, "invalidate")
    def roll_back(connection: sqlite3.Connection, _record: Any, _error: BaseException | None) -> None:
        # After an interrupt in the midst of a statement, SQLAlchemy closes the connection. As long as the error holds
        # the statement, SQLite does not end its transaction, and nobody could write, this process neither.
        connection.rollback()

    return engine


def _begin_to_write(connection: Connection) -> None:
    """Begin a transaction when others let it, in slices: Python calls no handler of a signal while SQLite waits."""
    deadline = time.monotonic() + LOCK_WAIT_S
    driver = cast("sqlite3.Connection", connection.connection.driver_connection)
    driver.execute(_WAITS_SHORT)
    try:
        while True:
            try:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            except OperationalError as error:
                if not is_locked(error.orig) or time.monotonic() > deadline or time_for_records() == 0:
                    raise
            else:
                return
    finally:
        with suppress(sqlite3.ProgrammingError):  # SQLAlchemy closed it at an interrupt
            driver.execute(_WAITS_LONG)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL mode, in which a commit needs one fsync instead of three; the file keeps the mode."""
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # If several programs open a new file at once, some of them get "locked": SQLite does not wait for this
            # lock.
            if not is_locked(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _postgresql_engine(url: URL, answer_within_s: float | None) -> Engine:
    arguments: dict[str, Any] = {"connect_timeout": CONNECT_WAIT_S, **UTF8}
    if answer_within_s is not None:
        # The driver of PostgreSQL is an optional package.
        from gobblin_dagster.database.watched import connection_arguments  # noqa: PLC0415

        arguments |= connection_arguments(answer_within_s)
    # Without the ping, each pooled connection would raise an error once after a restart of the server.
    engine = create_engine(url, pool_pre_ping=True, connect_args=arguments, isolation_level=ISOLATION)
    share_statements(engine)

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Dialect, _record: Any, unnamed: list[Any], named: dict[str, Any]) -> Any:
        if (left_s := time_for_records()) is not None:
            if not left_s:
                problem = f"State store {shown_url(url)} does not answer, and the command was stopped."
                raise TransientError(problem=problem)
            named["connect_timeout"] = max(_SHORTEST_CONNECT_S, round(left_s))
        return interruptible(lambda: dialect.connect(*unnamed, **named))

    @event.listens_for(engine, "connect")
    def end_when_stopped(connection: Any, _record: Any) -> None:
        cut_off_after_records(connection)

    @event.listens_for(engine, "begin")
    def configure(connection: Connection) -> None:
        connection.exec_driver_sql(_POSTGRESQL_TRANSACTION)

    return engine


def _make_folder(folder: Path) -> None:
    """Make a folder and its parents, so that they survive a power loss."""
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
    """Turn errors of the database into ours; `shown` is the store's URL for messages (`shown_url`).

    Raises:
        TransientError: the database cannot be reached, is locked, or ended the connection.
        StorageError: the database refuses: no space, read-only, not a database.
    """
    handled = sys.exc_info()[1]  # what ended a run is raised again by itself, after its end is recorded
    try:
        yield
    except PoolTimeoutError as error:
        raise TransientError(problem=f"State store {shown}: all connections are in use.") from error
    except DBAPIError as error:
        raise_hidden_interrupt(error, handled)
        problem = f"{' '.join(str(error.orig).split())}{folder_hint(error)}".rstrip(".")
        if _is_transient(error):
            raise TransientError(problem=f"State store {shown} cannot be used now: {problem}.") from error
        raise StorageError(operation="use the state store", path=shown, problem=problem) from error


def folder_hint(error: DBAPIError) -> str:
    """Return what ends a message if SQLite could not use its file, which its own words do not explain; else nothing."""
    if getattr(error.orig, "sqlite_errorname", "").startswith(_FOLDER_FAULTS):
        return "; its folder must be writable and must have free space, even for reading"
    return ""


def refuses_values(error: StorageError) -> bool:
    """Tell whether the database refused what was to be stored, as it would again; a full disk can be mended."""
    return isinstance(error.__cause__, DataError | IntegrityError)


_REFUSED_STATES = ("28", "3D", "42")
"""SQLSTATE classes that no retry can help: authorization, unknown database, access rules."""


def _is_transient(error: DBAPIError) -> bool:
    if isinstance(error.orig, sqlite3.Error):
        return is_locked(error.orig)
    if error.connection_invalidated:
        return True
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    state = getattr(error.orig, "pgcode", None)
    # A lock timeout counts as transient too. Drivers give no SQLSTATE for a connection that failed.
    return not state.startswith(_REFUSED_STATES) if state else postgresql_may_recover(None, str(error.orig))
