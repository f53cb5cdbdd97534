"""Refuse values that a database column would change silently, by their types and values, before they are sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from gobblin_dagster.constructs.clients.sql import MYSQL
from gobblin_dagster.constructs.publishers.sql_mysql import time_digits
from gobblin_dagster.constructs.types.arrow import is_text
from gobblin_dagster.constructs.types.iso_times import refuse_odd_times
from gobblin_dagster.core.errors import StepRefusedError

_MANY = 1000
"""More fractional digits than any float has."""
_FLOAT_DIGITS = 15
"""Decimals with so many digits survive the conversion to a float and back."""
_SHORT_FLOATS = {"postgresql": "REAL", **dict.fromkeys(MYSQL, "FLOAT")}
"""Type of columns with 32 bits, by dialect."""
_NO_TEXT = (sa.Boolean, sa.Integer, sa.Numeric, sa.Float, sa.DateTime, sa.Date, sa.Time)


def require_fit(table: str, schema: pa.Schema, there: Mapping[str, sa.types.TypeEngine[Any]], dialect: str) -> None:
    """Raise StepRefusedError if a column of the table would round, cut or reinterpret its values."""
    for field in schema:
        theirs = there.get(field.name)
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if theirs is not None and (problem := _misfit(kind, theirs, dialect)):
            raise StepRefusedError(
                step=f"load table {table}",
                problem=f"column {field.name!r} is {theirs} in the table and {kind} in the files: {problem}",
            )


def exact_values(batch: pa.RecordBatch, dialect: str) -> pa.RecordBatch:
    """Return rows as databases accept them: instants in UTC, microseconds, no dictionaries.

    Raises:
        StepRefusedError: a value would change.
    """
    arrays = []
    for field, array in zip(batch.schema, batch.columns, strict=True):
        try:
            arrays.append(_exact(field.name, array, dialect))
        except pa.ArrowInvalid as error:
            raise StepRefusedError(step="load a table", problem=f"column {field.name!r}: {error}") from error
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def with_whole_times(
    batches: Iterable[pa.RecordBatch], there: Mapping[str, sa.types.TypeEngine[Any]]
) -> Iterator[pa.RecordBatch]:
    """Yield batches; raise StepRefusedError for a time with more digits than its column of MySQL or MariaDB keeps.

    Args:
        batches: rows to load.
        there: types of the table's columns by name.
    """
    kept = {name: digits for name, kind in there.items() if (digits := time_digits(kind)) is not None and digits < 6}
    for batch in batches:
        for name in kept.keys() & set(batch.schema.names):
            array = batch.column(name)
            if not pa.types.is_temporal(array.type) or pa.types.is_date(array.type):
                continue
            step = 10 ** (6 - kept[name])
            unit = (
                pa.time64("us") if pa.types.is_time(array.type) else pa.timestamp("us", getattr(array.type, "tz", None))
            )
            ticks = array.cast(unit).cast(pa.int64())
            if pc.any(pc.not_equal(pc.multiply(pc.divide(ticks, step), step), ticks)).as_py():
                problem = f"column {name!r} keeps {kept[name]} digits of a second, and some times have more"
                raise StepRefusedError(step="load a table", problem=f"{problem}: they would be cut")
        yield batch


def _misfit(ours: pa.DataType, theirs: sa.types.TypeEngine[Any], dialect: str) -> str:
    """Return how values would change.

    Return an empty text if they would not, or if the database itself refuses those that do not fit.
    """
    if is_text(ours) and isinstance(theirs, _NO_TEXT):
        return "text would be read as another type, 007 as 7"
    if isinstance(theirs, sa.Float):
        return _float_misfit(ours, is_short=_SHORT_FLOATS.get(dialect) == theirs.__visit_name__)
    if isinstance(theirs, sa.Numeric):
        digits = ours.scale if pa.types.is_decimal(ours) else _MANY if pa.types.is_floating(ours) else 0
        return "it would be rounded" if theirs.scale is not None and theirs.scale < digits else ""
    if dialect in MYSQL:
        return _mysql_misfit(ours, theirs)
    return _time_misfit(ours, theirs) if dialect == "postgresql" and pa.types.is_timestamp(ours) else ""


def _float_misfit(ours: pa.DataType, *, is_short: bool) -> str:
    is_decimal = pa.types.is_decimal(ours)
    is_long = (is_decimal and ours.precision > _FLOAT_DIGITS) or (pa.types.is_integer(ours) and ours.bit_width == 64)
    return "digits would be lost" if is_long or (is_short and (is_decimal or pa.types.is_float64(ours))) else ""


def _time_misfit(ours: pa.TimestampType, theirs: sa.types.TypeEngine[Any]) -> str:
    if isinstance(theirs, sa.Date | sa.Time):
        return "the time or the day would be lost"
    if isinstance(theirs, sa.DateTime):
        if theirs.timezone != (ours.tz is not None):
            return "instants and clock times are not the same"
        precision = getattr(theirs, "precision", None)
        if precision is not None and precision < 6:  # microseconds
            return "fractions of seconds would be rounded"
    return ""


def _mysql_misfit(ours: pa.DataType, theirs: sa.types.TypeEngine[Any]) -> str:
    """Return how values would change in MySQL and MariaDB, which cut times without a word in every mode.

    Fractions of seconds are looked at by value (`with_whole_times`): most columns there have none.
    """
    if isinstance(theirs, mysql.YEAR):
        return "short numbers would become other years"
    if pa.types.is_timestamp(ours):
        if isinstance(theirs, sa.Date | sa.Time):
            return "the time or the day would be lost"
        if isinstance(theirs, mysql.TIMESTAMP) and ours.tz is None:
            return "instants and clock times are not the same"
    return ""


def _exact(name: str, array: pa.Array, dialect: str) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.timestamp("us", "UTC" if kind.tz else None))
    elif pa.types.is_time64(kind):
        array = array.cast(pa.time64("us"))
    elif is_text(kind):
        array.validate(full=True)
    refuse_odd_times(name, array)
    if dialect == "sqlite":
        _refuse_in_sqlite(array)
    return array


def _refuse_in_sqlite(array: pa.Array) -> None:
    """Raise ArrowInvalid for values that SQLite changes.

    SQLite stores decimals and large integers as floats, and NaN as NULL.
    """
    kind = array.type
    if pa.types.is_floating(kind) and pc.any(pc.is_nan(array)).as_py():
        raise pa.ArrowInvalid("SQLite has no NaN, it would be null")
    if pa.types.is_uint64(kind) or (pa.types.is_decimal(kind) and kind.precision > _FLOAT_DIGITS):
        for value in array.drop_null().to_pylist():
            if Decimal(repr(float(value))) != value:
                raise pa.ArrowInvalid(f"SQLite keeps it as a float, which {value} does not fit; cast it to text")
