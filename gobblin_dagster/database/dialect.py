"""The few SQL expressions that SQLite and PostgreSQL write differently."""

from __future__ import annotations

import json
from collections.abc import Collection
from importlib import import_module
from typing import Any

from sqlalchemy import JSON, ColumnElement, Connection, Table, cast, func, literal, select


def insert(connection: Connection, table: Table) -> Any:
    """Return an INSERT statement that supports ON CONFLICT, for the connection's dialect."""
    # Imported by name: only the dialect in use, which is imported already.
    return import_module(f"sqlalchemy.dialects.{connection.dialect.name}").insert(table)


def listed(connection: Connection, values: Collection[str]) -> ColumnElement[str]:
    """Return texts as a column, sorted. They are passed as one parameter, because `IN (?, ?, ...)` has a limit."""
    text = json.dumps(sorted(values))
    if connection.dialect.name == "sqlite":
        return func.json_each(text).table_valued("value", name="listed").c.value
    return func.json_array_elements_text(cast(literal(text), JSON)).column_valued("listed")


def is_among(connection: Connection, column: ColumnElement[Any], values: Collection[str]) -> ColumnElement[bool]:
    """Return the condition that a column holds one of these texts."""
    return column.in_(select(listed(connection, values)))
