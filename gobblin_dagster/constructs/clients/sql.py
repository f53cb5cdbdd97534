"""Connect to databases by SQLAlchemy URLs. No message contains a URL, which may hold a password."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import ReflectedColumn
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchTableError
from sqlalchemy.pool import NullPool

from gobblin_dagster.core.errors import EnvironmentFaultError
from gobblin_dagster.core.mysql import SESSION
from gobblin_dagster.core.postgresql import ISOLATION, UTF8, transaction_settings
from gobblin_dagster.core.same_place import written_servers
from gobblin_dagster.core.utils.cut_off import cut_off_when_stopped
from gobblin_dagster.core.utils.in_time import interruptible
from gobblin_dagster.core.utils.signals import raise_hidden_interrupt
from gobblin_dagster.core.utils.url_text import cuts_password, is_address, path_problem
from gobblin_dagster.database.statements import share_statements

MYSQL = ("mysql", "mariadb")
"""Backends with MySQL's protocol."""
DRIVERS: Mapping[str, str] = {
    "postgres": "psycopg2",
    "postgresql": "psycopg2",
    "postgresql+psycopg2": "psycopg2",
    "mysql": "pymysql",
    "mariadb": "pymysql",
}
"""Modules of the drivers that extras of ours install, by the scheme of a URL."""
CONNECT_WAIT_S = 10
"""Seconds to wait for a connection to PostgreSQL, whose driver waits for ever by itself."""
_UNANSWERED_S = 600
"""Seconds after which a connection is given up whose other end takes no bytes, or answers no probes. More than a load
waits for a lock, in which a server reads nothing. Says nothing of how long a statement may take."""
KEEPALIVES: Mapping[str, int] = {"keepalives_idle": 60, "keepalives_interval": 15, "keepalives_count": 8}
"""Probes of TCP: an other end whose machine is gone is noticed after three minutes, in place of two hours."""
_RIGHTS = (1044, 1142, 1143, 1227)
"""Errors of a user of MySQL or MariaDB without a right: on the database, a table, a column, or a right of the server.
"""
_INSUFFICIENT_PRIVILEGE = "42501"

_SCHEMAS: Mapping[str, str] = {"postgresql": "public", "sqlite": "main"}
"""Schemas of tables without one; in MySQL, the database."""
_SEARCH_PATH = re.compile(r"(-c\s*|--)search[-_]path=((?:\\.|\S)*)")
_FORM = "postgresql://user:password@host:port/database or sqlite:///file.db"


def parse_url(text: str, base_dir: str) -> sa.URL:
    """Return a URL with a driver and, for SQLite, with the full path of its file.

    Args:
        text: SQLAlchemy URL; without a driver, PostgreSQL uses psycopg2, MySQL and MariaDB use PyMySQL.
        base_dir: folder that a relative SQLite path begins at.

    Raises:
        ValueError: the URL cannot be parsed, its password is not encoded, or no host can have such a name.
    """
    if cuts_password(text):
        raise ValueError("the database's URL has an `@` in its password or behind its host; write %40 in a password")
    try:
        url = sa.make_url(text)
    except (ArgumentError, ValueError):
        raise ValueError(f"the database's URL cannot be read; write it as {_FORM}") from None
    # PostgreSQL's own client names what is wrong with a host, which may be a folder too.
    if not is_address(url.host if url.get_backend_name() in MYSQL else None, url.port):
        raise ValueError(f"the database's URL names no host and port that can be; write it as {_FORM}")
    if url.drivername in ("postgres", "postgresql"):
        return url.set(drivername="postgresql+psycopg2")
    if url.drivername in MYSQL:
        return url.set(drivername=f"{url.drivername}+pymysql")
    if url.get_backend_name() == "sqlite":
        if problem := path_problem(url.database or ""):
            raise ValueError(f"the database's URL names a wrong file: {problem}")
        return url.set(database=str(Path(base_dir, url.database or "")))
    return url


def make_engine(
    url: sa.URL,
    shown: str,
    connect_args: Mapping[str, Any] | None = None,
    settings: Mapping[str, str] | None = None,
    session: Iterable[str] = SESSION,
) -> sa.Engine:
    """Return an engine that keeps no connections; servers are set by `core.postgresql` and `core.mysql`.

    Args:
        url: from `parse_url`.
        shown: name of the database in messages.
        connect_args: arguments for the driver.
        settings: further settings of each transaction of PostgreSQL.
        session: statements for each session of MySQL and MariaDB.

    Raises:
        EnvironmentFaultError: the driver is not installed.
    """
    arguments = dict(connect_args or {})
    if url.drivername.endswith("+psycopg2"):
        arguments = {name: value for name, value in _libpq().items() if name not in url.query} | arguments | UTF8
    if url.drivername.endswith("+pymysql"):
        arguments["charset"] = "utf8mb4"  # in any other, the server replaces characters by `?`
        if url.password:
            # It would send a text in Latin-1, which has few letters, and none as MySQL's own clients send them.
            arguments["password"] = url.password.encode("utf-8", "surrogateescape")
    level: dict[str, Any] = {"isolation_level": ISOLATION} if url.get_backend_name() == "postgresql" else {}
    try:
        # SQLAlchemy rolls back a transaction that is open. One more rollback before a connection is closed does nothing
        # but write a traceback if the server is gone by then.
        engine = sa.create_engine(url, poolclass=NullPool, pool_reset_on_return=None, connect_args=arguments, **level)
    except (ModuleNotFoundError, ArgumentError) as error:
        raise EnvironmentFaultError(
            problem=f"The database {shown} has no driver here: {error}.",
            hint="Install one; for PostgreSQL: pip install 'gobblin-dagster[postgres]', for MySQL and MariaDB: "
            "pip install 'gobblin-dagster[mysql]'.",
        ) from None
    share_statements(engine, url.render_as_string())
    if engine.dialect.name == "postgresql":
        begin = transaction_settings(settings)
        sa.event.listen(engine, "do_connect", _connect)
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    sa.event.listen(engine, "connect", _end_when_stopped)
    sa.event.listen(engine, "handle_error", lambda context: raise_hidden_interrupt(context.original_exception))
    if url.get_backend_name() in MYSQL:
        # Before SQLAlchemy looks how names are quoted.
        sa.event.listen(engine, "connect", partial(_set_up, session), insert=True)
    return engine


def _connect(dialect: sa.Dialect, _: object, unnamed: list[Any], named: dict[str, Any]) -> Any:
    return interruptible(lambda: dialect.connect(*unnamed, **named))


def _end_when_stopped(connection: Any, _: object) -> None:
    if hasattr(found := getattr(connection, "_sock", connection), "fileno"):  # PyMySQL shows its socket in no other way
        cut_off_when_stopped(found)


def _set_up(session: Iterable[str], connection: Any, _: object) -> None:
    if hasattr(connection, "set_character_set"):  # PyMySQL's; the server or `init_command` may have set another one
        connection.set_character_set("utf8mb4", connection.collation)
    with closing(connection.cursor()) as cursor:
        for statement in session:
            cursor.execute(statement)


def _libpq() -> dict[str, Any]:
    """Return settings of PostgreSQL's client: what the URL does not say."""
    return {
        "connect_timeout": CONNECT_WAIT_S,
        "application_name": f"gobblin_dagster {socket.gethostname()[:32]}:{os.getpid()}",  # 63 letters at most
        "tcp_user_timeout": _UNANSWERED_S * 1000,
        **KEEPALIVES,
    }


@contextmanager
def savepoint(connection: sa.Connection) -> Iterator[None]:
    """Let statements that only read fail, and their transaction go on.

    PostgreSQL needs a savepoint for that, and frees the locks that were taken since: a migration that locks several
    tables would wait for us, and we for it, until the server ended one of both. MySQL and MariaDB need none, and refuse
    one once a table of an engine without them (Aria) was read.
    """
    if connection.dialect.name in MYSQL:
        yield
        return
    with connection.begin_nested() as begun:
        yield
        begun.rollback()


def error_number(error: DBAPIError) -> object:
    """Return the number of an error of MySQL's or MariaDB's; None if the driver gives none."""
    return next(iter(getattr(error.orig, "args", ())), None)


def lacks_right(error: DBAPIError, backend: str) -> bool:
    """Tell whether the database refused a statement for want of a right, as it would until somebody grants it."""
    if backend == "postgresql":
        return getattr(error.orig, "pgcode", None) == _INSUFFICIENT_PRIVILEGE
    return backend in MYSQL and error_number(error) in _RIGHTS


def columns_of(connection: sa.Connection, table: str, schema: str | None) -> list[ReflectedColumn] | None:
    """Return the columns of a table or view as SQLAlchemy's inspector reports them; None if it does not exist.

    The inspector's `has_table` fails on MariaDB if the transaction has used a table, and another session is just
    making or changing this one: it asks by DESCRIBE, which does not wait there.
    """
    try:
        return sa.inspect(connection).get_columns(table, schema)
    except NoSuchTableError:
        return None


def column_name(reflected: str, dialect: sa.Dialect, *, of_view: bool = False) -> str:
    """Return the name of a column that SQLAlchemy's inspector reported.

    It finds those of MySQL in SQL text, and leaves quotes doubled as they are there; in names of views also `%`.
    """
    if dialect.name not in MYSQL:
        return reflected
    preparer = dialect.identifier_preparer
    if of_view and "%%" in preparer.quote_identifier("%"):
        reflected = reflected.replace("%%", "%")
    return reflected.replace(2 * preparer.final_quote, preparer.final_quote)


def _search_path(url: sa.URL) -> str:
    """Return the schema in which a PostgreSQL session of this URL makes tables, if the URL or PGOPTIONS names one."""
    given = url.query.get("options") or os.environ.get("PGOPTIONS", "")
    options = given if isinstance(given, str) else " ".join(given)
    found = [path for _, path in _SEARCH_PATH.findall(options)]
    names = (name.strip(" \\") for name in found[-1].split(",")) if found else ()
    folded = (name.strip('"') if name.startswith('"') else name.lower() for name in names)
    return next((name for name in folded if name != "$user"), "")


_MYSQL_TELLS = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('server_uuid', 'server_uid', 'lower_case_table_names')"
_POSTGRESQL_TELLS = (
    "SELECT 'server', concat_ws(' ', EXTRACT(EPOCH FROM pg_postmaster_start_time()), current_setting('port'), "
    "current_database())"
)
"""Servers that began at one microsecond, at one port, are one."""
_STANDBY_TELLS = "SELECT system_identifier || ' ' || current_database() FROM pg_control_system()"
"""Whose rows a standby has: a copy that is no standby (any more) has rows of its own, and tells the same."""


_BELOW = sa.text(
    "WITH RECURSIVE below AS (SELECT concat_ws('.', nspname, relname) AS top, pg_class.oid AS relid FROM pg_class "
    "JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE concat_ws('.', nspname, relname) = ANY (:names) "
    "UNION SELECT top, inhrelid FROM below JOIN pg_inherits ON inhparent = relid JOIN pg_class ON pg_class.oid = relid "
    "WHERE :is_read OR relkind = 'p') "
    "SELECT top, concat_ws('.', nspname, relname) AS part FROM below JOIN pg_class ON pg_class.oid = relid "
    "JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE concat_ws('.', nspname, relname) <> top"
)


def server_tables(connection: sa.Connection, tables: Mapping[str, str], *, is_read: bool) -> dict[str, list[str]]:
    """Return texts of tables, by the same keys: two that are equal are one table, whatever its server is called.

    Each has its own (and the one that a standby of its server has, if it is written), and those of the tables of
    PostgreSQL that its rows may come from or go to: its partitions, and what inherits from a table that is read. Empty
    if the server does not tell who it is (MariaDB before 10.11, other databases).

    Args:
        connection: to the database.
        tables: `schema.table`, or `table` in the schema that the session makes tables in.
        is_read: whether rows of the tables are read; else rows are written to them.
    """
    backend = connection.dialect.name
    if backend not in (*MYSQL, "postgresql"):
        return {}
    tells = _POSTGRESQL_TELLS if backend == "postgresql" else _MYSQL_TELLS
    told = {str(row[0]): str(row[1]) for row in connection.exec_driver_sql(tells)}
    folds_case = told.pop("lower_case_table_names", "0") != "0"
    if not any(told.values()):
        return {}
    server, schemas = " ".join(told.values()), schemas_of(connection, tables.values())
    full = {key: f"{schemas[table]}.{table}" if table in schemas else table for key, table in tables.items()}
    below = {table: [table] for table in full.values()}
    if backend == "postgresql":
        for top, table in connection.execute(_BELOW, {"names": [*below], "is_read": is_read}):
            below[top].append(table)
    servers = [server]
    if backend == "postgresql" and _tells_standbys(connection, is_read=is_read):
        servers.append(str(connection.exec_driver_sql(_STANDBY_TELLS).scalar()))
    return {
        key: [f"{told} {one.lower() if folds_case else one}" for told in servers for one in below[name]]
        for key, name in full.items()
    }


def _tells_standbys(connection: sa.Connection, *, is_read: bool) -> bool:
    """Return whether a server of PostgreSQL may be asked what its standbys tell too, and is one if it is read."""
    is_asked = "SELECT has_function_privilege('pg_control_system()', 'EXECUTE') AND (pg_is_in_recovery() OR NOT %s)"
    return bool(connection.exec_driver_sql(is_asked, (is_read,)).scalar())


_FOUND = sa.text(
    "SELECT relname, nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
    "WHERE relname = ANY (:names) AND pg_table_is_visible(pg_class.oid)"
)


def schemas_of(connection: sa.Connection, tables: Iterable[str]) -> dict[str, str]:
    """Return the schemas in which a session finds tables that are named without one; for new ones, where it makes them.

    PostgreSQL finds a table in any schema of the session's search path, and makes one in the first of them.

    Args:
        connection: to the database.
        tables: `schema.table`, which are left out, or `table`.
    """
    names = {table for table in tables if "." not in table}
    found: dict[str, str] = dict.fromkeys(names, str(connection.dialect.default_schema_name))
    if names and connection.dialect.name == "postgresql":
        found |= {str(name): str(schema) for name, schema in connection.execute(_FOUND, {"names": [*names]})}
    return found


def table_place(url: sa.URL, table: str) -> str:
    """Return a table as a URL without user and password; `is_same_place` compares it with others.

    Args:
        url: from `parse_url`.
        table: `schema.table`, or `table` in the schema that such a database takes.
    """
    backend = "mysql" if url.get_backend_name() in MYSQL else url.get_backend_name()
    schema, _, name = table.rpartition(".")
    if not schema and backend == "postgresql":
        schema = _search_path(url)
    schema = schema or _SCHEMAS.get(backend, str(url.database))
    servers = written_servers(backend, url.query, url.host or "", str(url.port or ""))
    return f"{backend}://{servers}/{url.database}#{schema}.{name}"
