"""Locks that other sessions of a database hold: whether a statement waited too long for one, and who holds it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from gobblin_dagster.constructs.clients.sql import MYSQL, error_number

_LOCK_NOT_AVAILABLE = "55P03"
_LOCK_WAIT_TIMEOUT = 1205


def is_wait_over(error: DBAPIError) -> bool:
    """Tell whether a statement was given up because another session holds what it needs."""
    return getattr(error.orig, "pgcode", None) == _LOCK_NOT_AVAILABLE or error_number(error) == _LOCK_WAIT_TIMEOUT


def holders(engine: sa.Engine, *tables: str) -> str:
    """Return who holds tables, and what a person may do about it, as sentences; empty if nobody is seen.

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
        return ""
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
