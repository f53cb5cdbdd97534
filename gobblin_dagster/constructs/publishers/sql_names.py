"""How databases compare names of tables and columns, and texts: what is one for them is refused before rows are mixed."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from gobblin_dagster.constructs.clients.sql import MYSQL
from gobblin_dagster.core.errors import StepRefusedError
from gobblin_dagster.core.utils.duplicates import alike

_EXACT_CASE = ("postgresql", "oracle")
"""Databases in which quoted names that differ in case are two."""
_CUT_AT_BYTES = {"postgresql": 63}
"""Databases that cut longer names in silence; others refuse them."""


def cut_name(backend: str, table: str) -> str:
    """Return the name under which a database keeps a table, `schema.table` or `table`."""
    longest = _CUT_AT_BYTES.get(backend)
    return ".".join(part.encode()[:longest].decode(errors="ignore") for part in table.split("."))


def folds_tables(connection: sa.Connection) -> bool:
    """Tell whether tables whose names differ in case only are one; MySQL and MariaDB are asked: it is a setting of theirs."""
    if connection.dialect.name in MYSQL:
        return connection.execute(sa.text("SELECT @@lower_case_table_names")).scalar() != 0
    return may_fold_tables(connection.dialect.name)


def may_fold_tables(backend: str) -> bool:
    """Tell whether tables whose names differ in case only may be one in a database of some kind."""
    return backend not in _EXACT_CASE


def require_distinct(step: str, dialect: str, wanted: Iterable[str], there: Collection[str]) -> None:
    """Raise StepRefusedError where the database takes two columns for one, of the table or of the files."""
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
    """Return a text as it is to be compared: by MySQL as bytes, else `Orders` and `orders`, `a` and `a ` are equal there."""
    if connection.dialect.name not in MYSQL:
        return text
    unicode = sa.cast(text, mysql.CHAR(charset="utf8mb4"))
    return sa.cast(unicode, _BinaryText())


class _BinaryText(sa.types.TypeDecorator[str]):
    """Text that a database has as bytes, in UTF-8."""

    impl = sa.LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> bytes | None:
        return None if value is None else value.encode()

    def process_result_value(self, value: bytes | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else bytes(value).decode()
