"""Load Arrow rows into a table of PostgreSQL by COPY."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Collection
from contextlib import closing
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from gobblin_dagster.constructs.types.arrow import exact_cast, is_binary


def copy_rows(connection: sa.Connection, table: sa.Table, batch: pa.RecordBatch) -> None:
    """Append rows inside the connection's transaction; columns are matched by name.

    Raises:
        DBAPIError: as if SQLAlchemy had run the statement. Its text is the server's reason, also if the server ended
            the connection.
    """
    preparer = connection.dialect.identifier_preparer
    names = ", ".join(preparer.quote(name) for name in batch.schema.names)
    text = io.BytesIO()
    texts = {column.name for column in table.columns if isinstance(column.type, sa.String)}
    pacsv.write_csv(_printable(batch, texts), text, pacsv.WriteOptions(include_header=False))
    text.seek(0)
    # Without quotes, an empty value is null; in quotes, it is an empty text. pyarrow quotes every text.
    statement = f"COPY {preparer.format_table(table)} ({names}) FROM STDIN (FORMAT csv)"
    if "%%" in preparer.quote_identifier("%"):
        statement = statement.replace("%%", "%")  # it has no parameters, so the driver takes it as it stands
    driver: Any = connection.connection  # psycopg2, which has methods beyond the standard
    known: Any = connection.dialect.loaded_dbapi
    _printed.begin()
    try:
        with closing(driver.cursor()) as cursor:
            cursor.copy_expert(statement, text)
    except known.Error as error:
        reason = _printed.found() or error
        if driver.closed:
            connection.invalidate()  # else the rollback fails too, with words of its own
        raise DBAPIError.instance(statement, None, reason, known.Error, dialect=connection.dialect) from error
    finally:
        _printed.end()


class _PrintedErrors:
    """Finds the exceptions that psycopg2 prints by `sys.excepthook` instead of raising them.

    If the server ends the connection during COPY, psycopg2 prints the server's reason with a traceback, and raises
    "invalid socket". The hook belongs to the process: it is ours while at least one thread copies, and other threads'
    exceptions go where they went before.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_thread: dict[int, BaseException | None] = {}
        self._before = sys.excepthook

    def begin(self) -> None:
        """Keep what this thread prints from now on."""
        with self._lock:
            if not self._by_thread:
                self._before, sys.excepthook = sys.excepthook, self._keep
            self._by_thread[threading.get_ident()] = None

    def found(self) -> BaseException | None:
        """Return the last exception that this thread printed, or None."""
        return self._by_thread[threading.get_ident()]

    def end(self) -> None:
        """Print again."""
        with self._lock:
            del self._by_thread[threading.get_ident()]
            if not self._by_thread:
                sys.excepthook = self._before

    def _keep(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        thread = threading.get_ident()
        if thread in self._by_thread:
            self._by_thread[thread] = error.__cause__ or error
        else:
            self._before(kind, error, trace)


_printed = _PrintedErrors()


def _printable(batch: pa.RecordBatch, texts: Collection[str] = ()) -> pa.RecordBatch:
    """Return the batch with types that CSV cannot hold converted to text that PostgreSQL reads.

    Floats of 32 bits are written with the digits of 64: the nearest `DOUBLE PRECISION` of `0.1` is another number.

    Args:
        batch: rows to load.
        texts: columns that are text in the table.
    """
    arrays = []
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if is_binary(array.type):
            arrays.append(pa.array([None if value is None else "\\x" + value.hex() for value in array.to_pylist()]))
        elif pa.types.is_null(array.type):
            arrays.append(pc.cast(array, pa.string()))
        elif pa.types.is_floating(array.type) and name not in texts:
            arrays.append(exact_cast(array, pa.float64()))
        else:
            arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
