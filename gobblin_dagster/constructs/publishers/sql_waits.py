"""Waits of a load for other sessions of its database end.

A run that is frozen (a paused machine, SIGSTOP) or cut off from its database keeps its transaction open, and with it
the locks of its table. What waits for them would wait for ever, without a word.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from gobblin_dagster.constructs.clients.sql import KEEPALIVES, MYSQL

LOCK_WAIT_S = 300
"""Seconds that a load waits for a lock; honest loads of the same table have that long before it is tried again."""
_IDLE_S = 600
"""Seconds after which PostgreSQL ends a load that says nothing between two statements: it reads staged files there."""
_LIMITS = {
    "idle_in_transaction_session_timeout": _IDLE_S * 1000,
    **{f"tcp_{name}": value for name, value in KEEPALIVES.items()},
}


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
