"""New databases of stores without Alembic: it takes several times as long as the statements that it makes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, event, func, inspect, select

from gobblin_dagster.database.migrations import RevisionChain

_STATEMENTS: dict[tuple[RevisionChain, str], list[tuple[str, Any]]] = {}
"""Statements, with their parameters, that bring an empty database to the newest revision of a chain, in a dialect."""


@contextmanager
def made_as_the_first() -> Iterator[None]:
    """Migrate one empty database of each chain and dialect; each later one gets the same statements.

    Databases that hold a table already are migrated as ever.
    """
    migrate = RevisionChain.upgrade

    def upgrade(chain: RevisionChain, connection: Connection, shown: str) -> None:
        dialect = connection.dialect.name
        if dialect == "postgresql":  # as the migration does: another program may be making the tables
            connection.execute(select(func.pg_advisory_xact_lock(chain.advisory_lock)))
        known = _STATEMENTS.get((chain, dialect))
        if inspect(connection).get_table_names():
            migrate(chain, connection, shown)
        elif known:
            for statement, parameters in known:
                connection.exec_driver_sql(statement, parameters)
        else:
            with _noted(connection) as statements:
                migrate(chain, connection, shown)
            _STATEMENTS[chain, dialect] = statements

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RevisionChain, "upgrade", upgrade)
        yield


@contextmanager
def _noted(connection: Connection) -> Iterator[list[tuple[str, Any]]]:
    """Note what a connection executes, apart from questions."""
    statements: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if not statement.lstrip().upper().startswith(("SELECT", "PRAGMA")):
            statements.append((statement, parameters))

    event.listen(connection, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(connection, "before_cursor_execute", note)
