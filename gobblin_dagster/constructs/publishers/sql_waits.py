"""Waits of a load for other sessions of its database: they end, and who holds the table is told.

A run that is frozen (a paused machine, SIGSTOP) or cut off from its database keeps its transaction open, and with it
the locks of its table. What waits for them would wait for ever, without a word.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from gobblin_dagster.constructs.clients.sql import KEEPALIVES, MYSQL, error_number

LOCK_WAIT_S = 300
"""Seconds that a load waits for a lock; honest loads of the same table have that long before it is tried again."""
_IDLE_S = 600
"""Seconds after which PostgreSQL ends a load that says nothing between two statements: it reads staged files there."""
_LIMITS = {
    "idle_in_transaction_session_timeout": _IDLE_S * 1000,
    **{f"tcp_{name}": value for name, value in KEEPALIVES.items()},
}
_LOCK_NOT_AVAILABLE = "55P03"
_LOCK_WAIT_TIMEOUT = 1205


def bound_waits(engine: sa.Engine) -> sa.Engine:
    """Have the transactions of an engine wait no longer than `LOCK_WAIT_S` for a lock; return the engine.

    Shorter limits of the server, the role or the database count in place of these.
    """
    if engine.dialect.name == "postgresql":
        # For the transaction alone: a pool such as PgBouncer hands the session on to others.
        limits = sa.text(
            "SELECT set_config(name, value, true) FROM unnest(CAST(:names AS text[]), CAST(:values AS text[])) "
            "AS wanted (name, value) JOIN pg_settings USING (name) "
            "WHERE setting = '0' AND name NOT LIKE 'tcp%' OR CAST(setting AS bigint) > CAST(value AS bigint)"
        )
        wanted = {"lock_timeout": LOCK_WAIT_S * 1000, **_LIMITS}
        values = {"names": [*wanted], "values": [str(value) for value in wanted.values()]}

        @sa.event.listens_for(engine, "begin")
        def limit(connection: sa.Connection) -> None:
            connection.execute(limits, values)

    elif engine.dialect.name in MYSQL:

        @sa.event.listens_for(engine, "connect")
        def set_up(connection: Any, _: Any) -> None:
            cursor = connection.cursor()
            # The first is for changes of tables, which wait a day or a year by default, the second for rows.
            names = ("lock_wait_timeout", "innodb_lock_wait_timeout")
            cursor.execute("SET SESSION " + ", ".join(f"{one} = least(@@{one}, {LOCK_WAIT_S})" for one in names))
            cursor.close()

    return engine


def is_wait_over(error: DBAPIError) -> bool:
    """Tell whether a statement was given up because another session holds what it needs."""
    return getattr(error.orig, "pgcode", None) == _LOCK_NOT_AVAILABLE or error_number(error) == _LOCK_WAIT_TIMEOUT


def holders(engine: sa.Engine, *tables: str) -> str:
    """Return who holds tables, and what a person may do about it, as sentences.

    Args:
        engine: of the database.
        tables: names without schemas.
    """
    found: list[str] = []
    end = ""
    with suppress(DBAPIError), engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            rows = connection.execute(_HOLDERS, {"tables": [*tables]}).all()
            found = [_session(row) for row in rows]
            end = f"SELECT pg_terminate_backend({rows[0][0]})" if rows else ""
        elif engine.dialect.name in MYSQL:
            rows = connection.execute(_OTHERS).all()
            found = [f"{number} from {host} ({command}, for {since} s)" for number, host, command, since in rows]
            end = f"KILL {rows[0][0]}" if rows else ""
    if not found:
        return "Which session held it cannot be seen now; it may have ended"
    are_held = "Held by session" if engine.dialect.name == "postgresql" else "It may be held by session"
    return (
        f"{are_held} {'; '.join(found)}. If its program is frozen, or its machine is gone, end it ({end}); "
        "then run again: rows that it had not committed are not there"
    )


def _session(row: sa.Row[Any]) -> str:
    number, user, program, address, state, since = tuple(row)
    facts = [f"user {user or 'unknown'}", f"from {address or 'this machine'}"]
    facts += [f"program {program!r}"] if program else []
    facts += [state] if state else []
    facts += [f"its transaction began at {since:%Y-%m-%d %H:%M:%S%z}"] if since else []
    return f"{number} ({', '.join(facts)})"


# First who changes something, then who reads; a load that waits has its own transaction rolled back by then.
_HOLDERS = sa.text(
    "SELECT DISTINCT ON (is_reader, began, pid) pid, usename, application_name, host(client_addr), state, xact_start "
    "FROM (SELECT activity.*, coalesce(xact_start, 'infinity') AS began, mode = 'AccessShareLock' AS is_reader "
    "FROM pg_locks JOIN pg_stat_activity AS activity USING (pid) JOIN pg_class ON pg_class.oid = relation "
    "WHERE granted AND relname = ANY (:tables) AND pid <> pg_backend_pid() "
    "AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS held "
    "ORDER BY is_reader, began, pid LIMIT 3"
)
# Who waits for whom is for those with the right PROCESS; each user may see their own sessions.
_OTHERS = sa.text(
    "SELECT id, host, command, time FROM information_schema.processlist "
    "WHERE db = database() AND id <> connection_id() ORDER BY time DESC LIMIT 3"
)
