"""MySQL and MariaDB: rows that they refuse, and tables that take part in transactions.

Both can be set up to make tables without transactions, in which rows of a failed publication stay.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import DBAPIError

from gobblin_dagster.constructs.clients.sql import MYSQL, column_name, columns_of, error_number
from gobblin_dagster.constructs.types.arrow import is_binary, is_text
from gobblin_dagster.core.errors import StepRefusedError

_REFUSALS = (1364, 1644, 1906, 3105, 3819, 4025)
"""Errors that rows cause, which the driver reports like a lost connection: a column needs a value, a trigger refuses,
the column is a generated one (MariaDB, MySQL), a CHECK fails (MySQL, MariaDB)."""
_LITERAL_BYTES = 64
"""More than a number or a time takes in a statement, and what is around a text."""
_ESCAPED = r"""[\x00\n\r\x1a'"\\]"""
"""What PyMySQL writes as two letters."""
TABLE_OPTIONS: Mapping[str, Any] = {
    f"{name}_{option}": value
    for name in MYSQL
    for option, value in (("engine", "InnoDB"), ("default_charset", "utf8mb4"))
}
"""Options of tables that are made there; other databases do not look at them."""


def refuses_rows(error: DBAPIError, backend: str) -> bool:
    """Tell whether MySQL or MariaDB refused the rows, as it would again."""
    return backend in MYSQL and error_number(error) in _REFUSALS


def require_transactions(step: str, connection: sa.Connection, table: sa.Table) -> None:
    """Raise StepRefusedError for a view of MySQL or MariaDB, and a table that keeps rows of a failed transaction."""
    if connection.dialect.name not in MYSQL:
        return
    query = sa.text(
        "SELECT t.ENGINE, t.TABLE_TYPE FROM information_schema.TABLES t "
        "LEFT JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE "
        "WHERE t.TABLE_SCHEMA = coalesce(:schema, database()) AND t.TABLE_NAME = :name "
        "AND (e.TRANSACTIONS <> 'YES' OR t.TABLE_TYPE = 'VIEW')"
    )
    found = connection.execute(query, {"schema": table.schema, "name": table.name}).first()
    connection.rollback()
    if found is not None:
        engine, kind = found
        if kind == "VIEW":
            problem = f"table {table.name} is a view, and whose rows its table has cannot be seen; name the table"
            raise StepRefusedError(step=step, problem=problem)
        problem = f"table {table.name} is of the engine {engine}, which has no transactions: rows of a publication "
        problem += f"that fails would stay. Convert it: ALTER TABLE {table.name} ENGINE = InnoDB"
        raise StepRefusedError(step=step, problem=problem)


def require_short_rows(connection: sa.Connection, table: str, rows: pa.RecordBatch) -> None:
    """Raise StepRefusedError for a row that is longer than the server takes: it would only close the connection."""
    texts = [array for array in rows.columns if is_text(array.type) or is_binary(array.type)]
    if connection.dialect.name not in MYSQL or not texts:
        return
    limit = int(connection.scalar(sa.text("SELECT @@max_allowed_packet")) or 0)
    lengths = pa.array(np.full(rows.num_rows, _LITERAL_BYTES * rows.num_columns))
    for array in texts:
        lengths = pc.add(lengths, pc.coalesce(pc.binary_length(array), 0))
    if (pc.max(lengths).as_py() or 0) * 2 > limit:
        for array in texts:
            lengths = pc.add(lengths, pc.coalesce(pc.count_substring_regex(array, _ESCAPED), 0))
    longest = pc.max(lengths).as_py() or 0
    if longest > limit:
        problem = f"a row takes {longest:,} bytes in a statement, and the database takes {limit:,}: raise its "
        problem += "max_allowed_packet, then `gobblin commit recover`, or make the row shorter in the job"
        raise StepRefusedError(step=f"load table {table}", problem=problem)


def filled_columns(connection: sa.Connection, table: sa.Table) -> Collection[str]:
    """Return the columns in which MariaDB (MySQL if it is set up so) stores the time of the load in place of null."""
    if connection.dialect.name not in MYSQL:
        return ()
    return {
        column_name(column["name"], connection.dialect)
        for column in columns_of(connection, table.name, table.schema) or ()
        if isinstance(column["type"], mysql.TIMESTAMP) and not column["nullable"]
    }


def time_digits(column: sa.types.TypeEngine[Any]) -> int | None:
    """Return how many digits of a second a column of MySQL or MariaDB keeps; None if it is of another type."""
    is_time = isinstance(column, mysql.DATETIME | mysql.TIMESTAMP | mysql.TIME)
    return (getattr(column, "fsp", None) or 0) if is_time else None
