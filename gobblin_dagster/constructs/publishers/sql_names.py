"""Compare names of tables and columns, and texts, as databases do; refuse names that are equal there."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from gobblin_dagster.constructs.clients.sql import MYSQL
from gobblin_dagster.core.errors import StepRefusedError
from gobblin_dagster.core.utils.duplicates import alike

_EXACT_CASE = ("postgresql", "oracle")
"""Databases that distinguish quoted names by case."""
_CUT_AT_BYTES = {"postgresql": 63}
"""Databases that cut longer names silently, with the number of bytes; others refuse them."""


def cut_name(backend: str, table: str) -> str:
    """Return the name under which a database stores a table, `schema.table` or `table`."""
    longest = _CUT_AT_BYTES.get(backend)
    return ".".join(part.encode()[:longest].decode(errors="ignore") for part in table.split("."))


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
    names = [*there, *(name for name in wanted if name not in there)]
    longest = _CUT_AT_BYTES.get(dialect)
    if longest and (long := [name for name in wanted if len(name.encode()) > longest]):
        raise StepRefusedError(
            step=step,
            problem=f"the name of column {long[0]!r} is longer than {longest} bytes, and would be cut; rename it",
        )
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
