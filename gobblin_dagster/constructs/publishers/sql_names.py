"""Compare names of tables and columns, and texts, as databases do; say which it does not take."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from gobblin_dagster.constructs.clients.sql import MYSQL, schemas_of
from gobblin_dagster.core.utils.duplicates import alike
from gobblin_dagster.core.utils.text import lower_ascii

_EXACT_CASE = ("postgresql", "oracle")
"""Databases that distinguish quoted names by case."""
_LONGEST = {"postgresql": (63, "bytes"), **dict.fromkeys(MYSQL, (64, "characters"))}
"""Longest names of schemas, tables and columns. PostgreSQL cuts longer ones silently, MySQL refuses them."""


def unfit_name(backend: str, names: Iterable[str]) -> str:
    """Return why a database cannot take the first of the names that it does not take; empty if it takes all."""
    longest, unit = _LONGEST.get(backend, (sys.maxsize, ""))
    for name in names:
        length = len(name.encode()) if unit == "bytes" else len(name)
        odd = next((letter for letter in name if letter == "\0" or (backend in MYSQL and letter > "\uffff")), None)
        if length > longest:
            return f"name {name!r} has {length} {unit}, and the database takes at most {longest}"
        if odd is not None:
            return f"name {name!r} has the character {odd!r} (U+{ord(odd):04X}), which the database takes in no name"
        if backend in _LONGEST and not name:
            return "name '' is empty, which the database does not take"
        if backend in MYSQL and name.endswith(" "):
            return f"name {name!r} ends with a space, which the database does not take"
    return ""


def unfit_columns(backend: str, wanted: Iterable[str], there: Collection[str] = ()) -> str:
    """Return why a table cannot have the columns, beside those that are there; empty if it can."""
    wanted = list(wanted)
    names = [*there, *(name for name in wanted if name not in there)]
    if problem := unfit_name(backend, wanted):
        return f"column {problem}; rename it with the converter `rename`"
    if backend and (pair := alike(names, possible_table_fold(backend))):
        return "columns {!r} and {!r} differ in case only, which the database does not see; rename one".format(*pair)
    return ""


Fold = Callable[[str], str]
"""Returns names that a database takes for one as equal texts."""


def table_fold(connection: sa.Connection) -> Fold:
    """Return how a database compares names of tables; in MySQL this is a setting."""
    if connection.dialect.name in MYSQL:
        folds = connection.execute(sa.text("SELECT @@lower_case_table_names")).scalar() != 0
        return _lower if folds else str
    return possible_table_fold(connection.dialect.name)


def possible_table_fold(backend: str) -> Fold:
    """Return how a kind of database compares names of columns, and of tables.

    For tables in MySQL it is a setting; here as if it took case for nothing, as it does for columns.

    Example:
        >>> possible_table_fold("sqlite")("ÄB"), possible_table_fold("mysql")("ÄB")
        ('Äb', 'äb')
    """
    if backend in _EXACT_CASE:
        return str
    return lower_ascii if backend == "sqlite" else _lower


def _lower(name: str) -> str:
    """Lower each letter on its own, as MySQL does: a sigma at the end of a word too; `İ` is `i`, `ß` is not `ss`."""
    return "".join(letter.lower()[0] for letter in name)


def full_names(connection: sa.Connection, tables: Collection[str], fold: Fold) -> dict[str, str]:
    """Return names of tables with those of their schemas, folded; some may lack it, as the session finds them."""
    schemas = schemas_of(connection, tables)
    return {table: fold(f"{schemas[table]}.{table}" if table in schemas else table) for table in tables}


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
