"""The few expressions that SQLite and PostgreSQL spell differently."""

from __future__ import annotations

import json
from collections.abc import Collection
from importlib import import_module
from typing import Any

from sqlalchemy import JSON, ColumnElement, Connection, Table, cast, func, literal, select


def insert(connection: Connection, table: Table) -> Any:
    """Return an INSERT that knows ON CONFLICT; both dialects write it the same way."""
    # Imported by name because only the dialect in use is loaded, and it is loaded already.
    return import_module(f"sqlalchemy.dialects.{connection.dialect.name}").insert(table)


def listed(connection: Connection, values: Collection[str]) -> ColumnElement[str]:
    """Return texts as a column, sorted: one parameter however many they are, where `IN (?, ?, ...)` has a limit."""
    text = json.dumps(sorted(values))
    if connection.dialect.name == "sqlite":
        return func.json_each(text).table_valued("value", name="listed").c.value
    return func.json_array_elements_text(cast(literal(text), JSON)).column_valued("listed")


def is_among(connection: Connection, column: ColumnElement[Any], values: Collection[str]) -> ColumnElement[bool]:
    """Return the condition that a column holds one of the texts."""
    return column.in_(select(listed(connection, values)))
