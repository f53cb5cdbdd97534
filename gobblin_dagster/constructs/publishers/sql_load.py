"""Load Arrow rows into a database table: by COPY in PostgreSQL, else by INSERT; and merge rows by key."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import DBAPIError

from gobblin_dagster.constructs.clients.sql import MYSQL
from gobblin_dagster.constructs.publishers.merge_rule import is_older
from gobblin_dagster.constructs.publishers.sql_copy import copy_rows
from gobblin_dagster.constructs.publishers.sql_mysql import require_short_rows
from gobblin_dagster.constructs.publishers.sql_values import exact_values
from gobblin_dagster.constructs.types.arrow import is_binary, is_text
from gobblin_dagster.core.errors import StepRefusedError
from gobblin_dagster.core.utils.text import lower_ascii

_WRONG_STATE = "55000"
_ROW = "gobblin_row"
"""Column of the temporary table with the order of rows."""


def column_type(field: pa.Field) -> sa.types.TypeEngine[Any]:
    """Return the column type for an Arrow field; raises StepRefusedError if there is none."""
    kind = field.type
    if pa.types.is_dictionary(kind):
        return column_type(field.with_type(kind.value_type))
    if pa.types.is_decimal(kind):
        return sa.Numeric(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return sa.DateTime(timezone=kind.tz is not None).with_variant(mysql.DATETIME(fsp=6), *MYSQL)
    for test, made in _TYPES:
        if test(kind):
            return made()
    raise StepRefusedError(step="load a table", problem=f"column {field.name!r} is {kind}, which has no column type")


def _text() -> sa.types.TypeEngine[Any]:
    # TEXT of MySQL ends at 64 KB.
    return sa.Text().with_variant(mysql.LONGTEXT(), *MYSQL)


_TYPES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[], sa.types.TypeEngine[Any]]], ...] = (
    (pa.types.is_boolean, sa.Boolean),
    (lambda kind: pa.types.is_integer(kind) and kind.bit_width <= 16 and not pa.types.is_uint16(kind), sa.SmallInteger),
    (lambda kind: pa.types.is_integer(kind) and kind.bit_width <= 32 and not pa.types.is_uint32(kind), sa.Integer),
    (pa.types.is_uint64, lambda: sa.Numeric(20, 0)),
    (pa.types.is_integer, sa.BigInteger),
    (pa.types.is_floating, sa.Double),
    (is_text, _text),
    (
        is_binary,
        lambda: sa.LargeBinary().with_variant(mysql.LONGBLOB(), *MYSQL),
    ),
    (pa.types.is_date, sa.Date),
    (pa.types.is_time, lambda: sa.Time().with_variant(mysql.TIME(fsp=6), *MYSQL)),
    (pa.types.is_null, _text),
)


def load_rows(connection: sa.Connection, table: sa.Table, batches: Iterable[pa.RecordBatch]) -> None:
    """Append rows inside the connection's transaction; columns are matched by name.

    Raises:
        StepRefusedError: the database would change a value.
    """
    dialect = connection.dialect.name
    for batch in batches:
        rows = exact_values(batch, dialect)
        if dialect == "postgresql":
            copy_rows(connection, table, rows)
        else:
            require_short_rows(connection, table.name, rows)
            connection.execute(sa.insert(table), rows.to_pylist())


def unfit_for_upsert(backend: str) -> str:
    """Return why a database cannot be published to with `mode: upsert`; empty if it can."""
    is_fit = backend in ("postgresql", "sqlite")
    return "" if is_fit else f"`mode: upsert` is for PostgreSQL and SQLite, the database is {backend}"


def merge_rows(
    connection: sa.Connection,
    table: sa.Table,
    key: Sequence[str],
    newest_by: Sequence[str],
    batches: Iterable[pa.RecordBatch],
) -> None:
    """Insert rows, or replace rows with the same key, inside the connection's transaction.

    Of several rows with a key, the one with the greatest values of `newest_by` is taken; if these are equal, the last
    one. A newer row in the table is kept. Null is older than all values, in whatever order the rows come.

    Raises:
        StepRefusedError: the database is neither PostgreSQL nor SQLite (`ON CONFLICT` is needed), the table keeps no
            key unique, or a row has no key.
    """
    if problem := unfit_for_upsert(connection.dialect.name) or _problem_of_key(connection, table, key):
        raise StepRefusedError(step=f"upsert to table {table.name}", problem=problem)
    columns = [sa.Column(column.name, column.type) for column in table.columns]
    staged = sa.Table(
        _staged_name(table.name), sa.MetaData(), *columns, sa.Column(_ROW, sa.BigInteger), prefixes=["TEMPORARY"]
    )
    _make_staged(connection, table, staged)
    load_rows(connection, staged, _numbered(batches))
    _require_key(connection, table.name, staged, key)
    # Not as `sa.text`, in which `:b` of a name would be a parameter.
    connection.exec_driver_sql(_merge_statement(connection, table, staged, key, newest_by))
    staged.drop(connection)


def _staged_name(table: str) -> str:
    """Return a name that no table has: a temporary table would hide it. It is short, however long the table's is."""
    return f"gobblin_{hashlib.sha256(table.encode()).hexdigest()[:32]}"


def _make_staged(connection: sa.Connection, table: sa.Table, staged: sa.Table) -> None:
    """Make the temporary table; in PostgreSQL with the types and collations of the table's own columns.

    So it takes the same keys for equal (`citext`, a collation that ignores case), and takes a text for an enum or a
    uuid as a load without key does: an INSERT from columns of text is refused for these.
    """
    if connection.dialect.name != "postgresql":
        staged.create(connection)
        return
    preparer = connection.dialect.identifier_preparer
    names = ", ".join(preparer.quote(column.name) for column in table.columns)
    connection.exec_driver_sql(
        f"CREATE TEMPORARY TABLE {preparer.format_table(staged)} AS "  # noqa: S608  # names are quoted
        f"SELECT {names}, CAST(0 AS bigint) AS {_ROW} FROM {preparer.format_table(table)} WITH NO DATA"
    )


def refuses_key(error: DBAPIError) -> bool:
    """Tell whether PostgreSQL takes no rows by key: only a constraint that is deferrable keeps it unique."""
    return getattr(error.orig, "pgcode", None) == _WRONG_STATE


def _problem_of_key(connection: sa.Connection, table: sa.Table, key: Sequence[str]) -> str:
    """Return why rows cannot be replaced by key: the table was made by somebody else, or by another `mode` or `key`.

    A fault for a person: a table keeps its rows unique by these very columns, or `ON CONFLICT` fails each time.
    """
    inspector = sa.inspect(connection)
    name = _name_as_made(inspector, table) if connection.dialect.name == "sqlite" else table.name
    unique = [inspector.get_pk_constraint(name, table.schema)["constrained_columns"]]
    unique += [one["column_names"] for one in inspector.get_unique_constraints(name, table.schema)]
    unique += [
        [column or "" for column in one["column_names"]]
        for one in inspector.get_indexes(name, table.schema)
        if one["unique"] and not any(option.endswith("_where") for option in one.get("dialect_options", {}))
    ]
    if any(set(columns) == set(key) for columns in unique):
        return ""
    preparer = connection.dialect.identifier_preparer
    columns = ", ".join(preparer.quote(name) for name in key)
    return (
        f"no primary key or unique index of the table is over the key ({columns}), so its rows cannot be replaced by "
        f"key. If each key is there once, make one (`CREATE UNIQUE INDEX ... ON {preparer.format_table(table)} "
        f"({columns})`), then `gobblin commit recover`; else give the branch another table"
    )


def _name_as_made(inspector: sa.Inspector, table: sa.Table) -> str:
    """Return a table's name in the case in which it was made: SQLAlchemy finds SQLite's constraints by no other."""
    names = inspector.get_table_names(table.schema)
    return next((name for name in names if lower_ascii(name) == lower_ascii(table.name)), table.name)


def _require_key(connection: sa.Connection, table: str, staged: sa.Table, key: Sequence[str]) -> None:
    """Raise StepRefusedError for rows without a key: other databases refuse them too, but SQLite assigns a number."""
    for name in key:
        if connection.execute(
            sa.select(sa.literal(1)).select_from(staged).where(staged.c[name].is_(None)).limit(1)
        ).first():
            problem = f"column {name!r} of the key is null in some rows; quarantine them with the row policy `not_null`"
            raise StepRefusedError(step=f"upsert to table {table}", problem=problem)


def _numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in batches:
        yield batch.append_column(_ROW, pa.array(np.arange(rows, rows + batch.num_rows)))
        rows += batch.num_rows


def _merge_statement(
    connection: sa.Connection, table: sa.Table, staged: sa.Table, key: Sequence[str], newest_by: Sequence[str]
) -> str:
    preparer = connection.dialect.identifier_preparer
    names = [preparer.quote(column.name) for column in table.columns]
    keys = ", ".join(preparer.quote(name) for name in key)
    others = [preparer.quote(column.name) for column in table.columns if column.name not in key]
    action = "UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in others) if others else "NOTHING"
    by = [preparer.quote(name) for name in newest_by]
    order = ", ".join([*(f"{name} DESC NULLS LAST" for name in by), f"{_ROW} DESC"])
    newest = f"row_number() OVER (PARTITION BY {keys} ORDER BY {order})"
    if by and others:
        action += f" WHERE NOT ({is_older('excluded', 'held', by)})"
    return (
        f"INSERT INTO {preparer.format_table(table)} AS held ({', '.join(names)}) "  # noqa: S608  # names are quoted
        f"SELECT {', '.join(names)} FROM (SELECT *, {newest} AS gobblin_rank FROM {preparer.format_table(staged)}) AS "
        "ranked "
        # In their order: the table may take keys for equal that are two here (COLLATE NOCASE).
        f"WHERE gobblin_rank = 1 ORDER BY {_ROW} ON CONFLICT ({keys}) DO {action}"
    )
