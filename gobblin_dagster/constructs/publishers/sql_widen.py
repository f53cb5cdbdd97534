"""Change columns of a database table to wider types, if rows would not fit otherwise and no stored value is changed.

Only PostgreSQL, MySQL and MariaDB can change the type of a column. A change is a transaction of its own before the rows
are loaded: MySQL and MariaDB have no other way, and in PostgreSQL readers wait for the change alone, not for the load.
A run that is killed behind it leaves a wider column with the same values; the next run finds that rows fit.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from gobblin_dagster.constructs.clients.sql import MYSQL
from gobblin_dagster.constructs.publishers.sql_load import column_type
from gobblin_dagster.constructs.publishers.sql_mysql import time_digits
from gobblin_dagster.constructs.publishers.sql_values import is_misfit
from gobblin_dagster.constructs.types.arrow import decoded, exact_cast, value_type
from gobblin_dagster.constructs.types.wider import common_type, is_wider
from gobblin_dagster.core.errors import StorageError

Columns = Mapping[str, sa.types.TypeEngine[Any]]
_MYSQL_TYPE = re.compile(r"\w+(\([\d,]+\))?( unsigned)?( zerofill)?")
_WAIT_S = 60
"""How long a change waits for another one of the same table."""


def widen_columns(
    connection: sa.Connection,
    table: sa.Table,
    schema: pa.Schema,
    look: Callable[[], Columns],
    rows: Callable[[list[str]], Iterable[pa.RecordBatch]],
) -> None:
    """Change the columns whose types hold too little, each to the narrowest type that holds old and new values exactly.

    Others that change the same table at once wait, and look again then: no column becomes narrower.

    Args:
        connection: connection outside of a transaction.
        table: the table; it exists.
        schema: columns of the rows to load.
        look: returns the table's columns as they are.
        rows: returns the rows to load, with these columns.

    Raises:
        StorageError: another change of the table takes too long.
        DBAPIError: the database refuses the change, for example because a view uses the column.
    """
    dialect = connection.dialect.name
    narrow = _narrow(schema, look(), dialect)
    connection.rollback()  # the inspection began a transaction
    wanted = [field for field in narrow if _is_needed(field, narrow[field], dialect, rows)]
    if not wanted:
        return
    name = connection.dialect.identifier_preparer.format_table(table)
    lock = hashlib.sha256(name.encode()).hexdigest()
    if dialect in MYSQL:
        if not connection.execute(sa.text("SELECT GET_LOCK(:lock, :wait)"), {"lock": lock, "wait": _WAIT_S}).scalar():
            problem = "another run changes its columns"
            raise StorageError(operation="publish to table", path=table.name, problem=problem)
    else:
        connection.exec_driver_sql(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")
    there = look()
    changes = [
        _change(connection, name, field.with_type(wide))
        for field in wanted
        if (wide := _wide(field, there.get(field.name), dialect)) is not None
    ]
    if changes:
        connection.exec_driver_sql(f"ALTER TABLE {name} {', '.join(changes)}")
    connection.commit()
    if dialect in MYSQL:
        connection.execute(sa.text("SELECT RELEASE_LOCK(:lock)"), {"lock": lock})
        connection.rollback()


def _narrow(schema: pa.Schema, there: Columns, dialect: str) -> dict[pa.Field, sa.types.TypeEngine[Any]]:
    """Return the columns of the rows, with those of the table, whose types hold more than the table's."""
    return {field: there[field.name] for field in schema if _wide(field, there.get(field.name), dialect) is not None}


def _wide(field: pa.Field, theirs: sa.types.TypeEngine[Any] | None, dialect: str) -> pa.DataType | None:
    """Return the type that holds the values of both; None if it is the table's, or there is none."""
    held = None if theirs is None else held_type(theirs, dialect)
    if held is None:
        return None
    ours = value_type(field.type)
    if pa.types.is_timestamp(ours):
        has_zone = ours.tz is not None and not (dialect in MYSQL and pa.types.is_timestamp(held))
        ours = pa.timestamp("us" if ours.unit == "ns" else ours.unit, "UTC" if has_zone else None)
    wide = common_type(held, ours)
    return wide if wide is not None and is_wider(wide, held) else None


def _is_needed(
    field: pa.Field,
    theirs: sa.types.TypeEngine[Any],
    dialect: str,
    rows: Callable[[list[str]], Iterable[pa.RecordBatch]],
) -> bool:
    """Return whether a column would refuse some of the values: `INTEGER` stays as long as all fit."""
    held = held_type(theirs, dialect)
    return is_misfit(field, theirs, dialect) or any(
        not _fits(batch.column(0), held) for batch in rows([field.name]) if batch.num_rows
    )


def _fits(array: pa.Array, kind: pa.DataType | None) -> bool:
    values = decoded(array)
    try:
        return bool(exact_cast(exact_cast(values, kind), values.type).equals(values))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False


def held_type(column: sa.types.TypeEngine[Any], dialect: str) -> pa.DataType | None:
    """Return the Arrow type with the values that a column holds; None if it is never changed.

    Texts are none: the length of a `VARCHAR` is what a person wanted, as tables that are made have no limit.
    """
    if dialect not in ("postgresql", *MYSQL) or getattr(column, "display_width", None) == 1:
        return None  # TINYINT(1) is what MySQL has for booleans
    kind = _BY_NAME.get((dialect in MYSQL, column.__visit_name__))
    if kind is not None and pa.types.is_integer(kind) and getattr(column, "unsigned", False):
        return getattr(pa, f"u{kind}")()
    if kind is None and isinstance(column, sa.Numeric) and not isinstance(column, sa.Float):
        return _decimal(column.precision, column.scale)
    if isinstance(column, sa.DateTime) and not isinstance(column, mysql.TIMESTAMP):
        digits = time_digits(column) if dialect in MYSQL else getattr(column, "precision", None)
        unit = "us" if digits is None or digits == 6 else "ms" if digits >= 3 else "s"
        return pa.timestamp(unit, "UTC" if column.timezone and dialect not in MYSQL else None)
    return kind


def _decimal(precision: int | None, scale: int | None) -> pa.DataType | None:
    if precision is None or scale is None or not 0 <= scale <= precision <= 76:
        return None
    return (pa.decimal128 if precision <= 38 else pa.decimal256)(precision, scale)


_BY_NAME: Mapping[tuple[bool, str], pa.DataType] = {
    (True, "TINYINT"): pa.int8(),
    (True, "MEDIUMINT"): pa.int32(),
    (True, "FLOAT"): pa.float32(),
    (False, "REAL"): pa.float32(),
    **{
        (is_mysql, name): kind
        for is_mysql in (False, True)
        for name, kind in {
            "SMALLINT": pa.int16(),
            "INTEGER": pa.int32(),
            "BIGINT": pa.int64(),
            "DATE": pa.date32(),
        }.items()
    },
}
"""Types that are one type of Arrow, by whether the database is MySQL or MariaDB, and SQLAlchemy's name."""


def _change(connection: sa.Connection, table: str, field: pa.Field) -> str:
    """Return the part of `ALTER TABLE` that gives a column another type, and keeps all else that was said of it."""
    column = connection.dialect.identifier_preparer.quote_identifier(field.name)
    kind = column_type(field).compile(connection.dialect)
    if connection.dialect.name not in MYSQL:
        return f"ALTER COLUMN {column} TYPE {kind}"
    # `MODIFY` forgets what it does not repeat: NOT NULL, the default, a comment.
    created = connection.exec_driver_sql(f"SHOW CREATE TABLE {table}").one()[1]
    shown = "`" + field.name.replace("`", "``") + "` "
    line = next(one.strip() for one in created.split("\n") if one.strip().startswith(shown))
    rest = _MYSQL_TYPE.sub("", line.removeprefix(shown), count=1).removesuffix(",")
    return f"MODIFY {column} {kind}{rest.replace('%', '%%')}"
