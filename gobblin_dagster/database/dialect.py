"""The few SQL expressions that SQLite and PostgreSQL write differently."""

from __future__ import annotations

import json
from collections.abc import Collection
from importlib import import_module
from typing import Any, Self

from sqlalchemy import (
    JSON,
    BindParameter,
    Boolean,
    ColumnElement,
    Connection,
    Table,
    Text,
    bindparam,
    cast,
    func,
    literal,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


def insert(connection: Connection, table: Table) -> Any:
    """Return an INSERT statement that supports ON CONFLICT, for the connection's dialect."""
    # Imported by name: only the dialect in use, which is imported already.
    return import_module(f"sqlalchemy.dialects.{connection.dialect.name}").insert(table)


def as_list(values: Collection[str]) -> str:
    """Return texts as the one parameter that `texts(name)` stands for: `IN (?, ?, ...)` has a limit."""
    return json.dumps(sorted(values))


def texts(name: str) -> BindParameter[str]:
    """Return the place of texts in a statement that is made once; `as_list` makes what is passed for it."""
    return bindparam(name, type_=Text())


def listed(connection: Connection, values: Collection[str] | BindParameter[str]) -> ColumnElement[str]:
    """Return texts as a column, sorted."""
    text = values if isinstance(values, BindParameter) else literal(as_list(values))
    if connection.dialect.name == "sqlite":
        return func.json_each(text).table_valued("value", name="listed").c.value
    return func.json_array_elements_text(cast(text, JSON)).column_valued("listed")


class _Among(FunctionElement[bool]):
    """A column and a list of texts; SQLAlchemy's own clauses for it take several times as long to make."""

    inherit_cache = True
    type = Boolean()

    def self_group(self, against: Any = None) -> Self:
        """Stay as it is: SQLAlchemy would write `... = 1`, and SQLite would use another index, or none."""
        return self


def is_among(column: ColumnElement[Any], values: Collection[str] | BindParameter[str]) -> ColumnElement[bool]:
    """Return the condition that a column holds one of these texts."""
    return _Among(column, values if isinstance(values, BindParameter) else literal(as_list(values)))


@compiles(_Among, "sqlite")
def _among_in_sqlite(among: _Among, compiler: SQLCompiler, **options: Any) -> str:
    column, text = (compiler.process(clause, **options) for clause in among.clauses)
    return f"{column} IN (SELECT value FROM json_each({text}))"  # noqa: S608 - compiled: values are parameters


@compiles(_Among, "postgresql")
def _among_in_postgresql(among: _Among, compiler: SQLCompiler, **options: Any) -> str:
    column, text = (compiler.process(clause, **options) for clause in among.clauses)
    rows = f"json_array_elements_text(CAST({text} AS JSON)) AS listed"
    return f"{column} IN (SELECT listed FROM {rows})"  # noqa: S608 - compiled: values are parameters
