"""Compare names of tables and columns, and texts, as databases do; refuse names that are equal there."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from gobblin_dagster.constructs.clients.sql import MYSQL
from gobblin_dagster.core.errors import StepRefusedError
from gobblin_dagster.core.utils.duplicates import alike

_EXACT_CASE = ("postgresql", "oracle")
"""Databases that distinguish quoted names by case."""
_LONGEST = {"postgresql": (63, "bytes"), **dict.fromkeys(MYSQL, (64, "characters"))}
"""Longest names of schemas, tables and columns. PostgreSQL cuts longer ones silently, MySQL refuses them."""


def too_long(backend: str, names: Iterable[str]) -> str:
    """Return the first of the names that is too long for a database, with both lengths; empty if none is."""
    longest, unit = _LONGEST.get(backend, (sys.maxsize, ""))
    for name in names:
        length = len(name.encode()) if unit == "bytes" else len(name)
        if length > longest:
            return f"name {name!r} has {length} {unit}, and the database takes at most {longest}"
    return ""


def folds_tables(connection: sa.Connection) -> bool:
    """Return True if the database has one table for names that differ in case only; in MySQL this is a setting."""
    if connection.dialect.name in MYSQL:
        return connection.execute(sa.text("SELECT @@lower_case_table_names")).scalar() != 0
    return may_fold_tables(connection.dialect.name)


def may_fold_tables(backend: str) -> bool:
    """Return True if a kind of database may have one table for names that differ in case only."""
    return backend not in _EXACT_CASE


def require_distinct(step: str, dialect: str, wanted: Iterable[str], there: Collection[str]) -> None:
    """Raise StepRefusedError if two columns, of the table or of the files, have equal names in the database."""
    wanted = list(wanted)
    names = [*there, *(name for name in wanted if name not in there)]
    if problem := too_long(dialect, wanted):
        raise StepRefusedError(step=step, problem=f"column {problem}; rename it")
    if dialect not in _EXACT_CASE and (pair := alike(names, str.casefold)):
        problem = "columns {!r} and {!r} differ in case only, which the database does not see; rename one".format(*pair)
        raise StepRefusedError(step=step, problem=problem)


def exact(connection: sa.Connection, text: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
    """Return a text to be compared exactly.

    In MySQL, as bytes: as texts, `Orders` and `orders`, `a` and `a ` are equal there.
    """
    if connection.dialect.name not in MYSQL:
        return text
    unicode = sa.cast(text, mysql.CHAR(charset="utf8mb4"))
    return sa.cast(unicode, _BinaryText())


class _BinaryText(sa.types.TypeDecorator[str]):
    """Text that a database returns as bytes, in UTF-8."""

    impl = sa.LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> bytes | None:
        return None if value is None else value.encode()

    def process_result_value(self, value: bytes | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else bytes(value).decode()
