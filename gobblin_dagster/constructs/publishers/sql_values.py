"""Refuse values that a database column would change silently, by their types and values, before they are sent."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from gobblin_dagster.constructs.clients.sql import MYSQL
from gobblin_dagster.constructs.publishers.sql_mysql import time_digits
from gobblin_dagster.constructs.types.arrow import decoded, exact_cast, is_binary, is_text, value_type
from gobblin_dagster.constructs.types.iso_times import refuse_odd_times
from gobblin_dagster.core.errors import StepRefusedError

_MANY = 1000
"""More fractional digits than any float has."""
_FLOAT_DIGITS = 15
"""Decimals with so many digits survive the conversion to a float and back."""
_SHORT_FLOATS = {"postgresql": "REAL", **dict.fromkeys(MYSQL, "FLOAT")}
"""Type of columns with 32 bits, by dialect."""
_REMEDY = "Convert the column in the job (converter `cast` or `sql`), or let the table's column have a type that fits"
_NO_TEXT = (sa.Boolean, sa.Integer, sa.Numeric, sa.Float, sa.DateTime, sa.Date, sa.Time)


def require_fit(table: str, schema: pa.Schema, there: Mapping[str, sa.types.TypeEngine[Any]], dialect: str) -> None:
    """Raise StepRefusedError if a column of the table would round, cut or reinterpret its values."""
    for field in schema:
        theirs = there.get(field.name)
        kind = value_type(field.type)
        if theirs is not None and (problem := _misfit(kind, theirs, dialect)):
            raise StepRefusedError(
                step=f"load table {table}",
                problem=f"column {field.name!r} is {theirs} in the table and {kind} in the files: {problem}. {_REMEDY}",
            )


def is_misfit(field: pa.Field, theirs: sa.types.TypeEngine[Any], dialect: str) -> bool:
    """Return whether `require_fit` refuses a column for its type, whatever its values are."""
    kind = value_type(field.type)
    return bool(_misfit(kind, theirs, dialect))


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


def with_kept_values(
    batches: Iterable[pa.RecordBatch],
    there: Mapping[str, sa.types.TypeEngine[Any]],
    dialect: str,
    filled: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield batches; raise StepRefusedError for a value that its column would round, cut or fill without a word.

    Args:
        batches: rows to load.
        there: types of the table's columns by name.
        dialect: SQLAlchemy's name of the database; SQLite keeps such values as they are.
        filled: columns in which null becomes the time of the load.
    """
    for batch in batches:
        for name, array in zip(batch.schema.names, batch.columns, strict=True) if dialect != "sqlite" else ():
            if name in filled and array.null_count:
                problem = "takes no null, and some values are null: they would become the time of the load"
                raise StepRefusedError(step="load a table", problem=f"column {name!r} {problem}. {_REMEDY}")
            if name in there and (problem := _lost(decoded(array), there[name], dialect)):
                raise StepRefusedError(step="load a table", problem=f"column {name!r} {problem}. {_REMEDY}")
        yield batch


def _lost(  # noqa: PLR0911 - a list of rules reads best as one
    array: pa.Array, theirs: sa.types.TypeEngine[Any], dialect: str
) -> str:
    """Return what a column would take away from some values; empty if it takes nothing, or the database refuses it."""
    kind = array.type
    if dialect in MYSQL and (problem := _lost_in_mysql(array, theirs)):
        return problem
    if isinstance(theirs, sa.Integer) and (pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        is_whole = pc.equal(array, pc.floor(array))
        has_fractions = not pc.all(is_whole).as_py()
        return "holds whole numbers, and some values have fractions: they would be rounded" if has_fractions else ""
    if isinstance(theirs, sa.String) and theirs.length and is_text(kind):
        ends = pc.ends_with(array, " ")
        cuts = pc.greater(pc.utf8_length(array), theirs.length)
        if isinstance(theirs, sa.CHAR) and dialect in MYSQL:
            cuts = pa.scalar(value=True)
        is_cut = pc.any(pc.and_(ends, cuts)).as_py()
        return f"is {theirs}, and some texts end with blanks: they would be cut" if is_cut else ""
    if dialect == "postgresql" and isinstance(theirs, sa.LargeBinary) and is_text(kind):
        is_escaped = pc.any(pc.match_substring(array, "\\")).as_py()
        return f"is {theirs}, and some texts have backslashes: they would be read as escapes" if is_escaped else ""
    if isinstance(theirs, mysql.BIT | postgresql.OID) and pa.types.is_signed_integer(kind):
        is_below = pc.any(pc.less(array, 0)).as_py()
        return f"is {theirs}, and some numbers are below 0: they would become others" if is_below else ""
    digits = time_digits(theirs)
    if digits is not None and digits < 6 and _has_time(kind):
        step = 10 ** (6 - digits)
        unit = pa.time64("us") if pa.types.is_time(kind) else pa.timestamp("us", kind.tz)
        ticks = exact_cast(array, unit).cast(pa.int64())
        is_cut = pc.any(pc.not_equal(pc.multiply(pc.divide(ticks, step), step), ticks)).as_py()
        return f"keeps {digits} digits of a second, and some times have more: they would be cut" if is_cut else ""
    return ""


def _misfit(ours: pa.DataType, theirs: sa.types.TypeEngine[Any], dialect: str) -> str:
    """Return how values would change.

    Return an empty text if they would not, or if the database itself refuses those that do not fit.
    """
    if dialect in MYSQL and (problem := _mysql_misfit(ours, theirs)):
        return problem
    if dialect == "postgresql" and (problem := _postgresql_misfit(ours, theirs)):
        return problem
    if is_text(ours):
        return _text_misfit(theirs)
    if isinstance(theirs, sa.Float | sa.Numeric | sa.String | postgresql.MONEY):
        return _number_misfit(ours, theirs, dialect)
    if pa.types.is_timestamp(ours) and isinstance(theirs, sa.Date | sa.Time):
        return "the time or the day would be lost"
    return _time_misfit(ours, theirs) if dialect == "postgresql" else ""


def _text_misfit(theirs: sa.types.TypeEngine[Any]) -> str:
    if isinstance(theirs, (*_NO_TEXT, postgresql.MONEY)):
        return "text would be read as another type, 007 as 7"
    if isinstance(theirs, postgresql.INTERVAL) and (theirs.precision is not None or theirs.fields):
        return "what is finer would be rounded or cut"
    if not isinstance(theirs, postgresql.ARRAY):
        return ""
    # Whole numbers and floats, which have no other way into an array, stay what they are.
    items = theirs.item_type
    has_scale = isinstance(items, sa.Numeric) and getattr(items, "scale", None) is not None
    if isinstance(items, sa.DateTime | sa.Date | sa.Time) or has_scale or getattr(items, "length", None):
        return "its items would be rounded or cut"
    return _text_misfit(items) if isinstance(items, postgresql.MONEY | postgresql.INTERVAL) else ""


def _number_misfit(ours: pa.DataType, theirs: sa.types.TypeEngine[Any], dialect: str) -> str:
    if isinstance(theirs, sa.Float):
        return _float_misfit(ours, theirs, is_short=_SHORT_FLOATS.get(dialect) == theirs.__visit_name__)
    if isinstance(theirs, sa.String):
        is_cut = pa.types.is_floating(ours) and _writes_few_digits(theirs, dialect)
        return "the database would write numbers as text with fewer digits" if is_cut else ""
    scale = theirs.scale if isinstance(theirs, sa.Numeric) else 0  # how many digits MONEY has is a setting
    return "it would be rounded" if scale is not None and scale < _fraction_digits(ours) else ""


def _fraction_digits(kind: pa.DataType) -> int:
    return kind.scale if pa.types.is_decimal(kind) else _MANY if pa.types.is_floating(kind) else 0


def _writes_few_digits(column: sa.String, dialect: str) -> bool:
    """Return whether a text column gets numbers with fewer digits than they have.

    SQLite writes 15; MySQL and MariaDB write as many as a column of limited length has room for.
    """
    return dialect == "sqlite" or (dialect in MYSQL and column.length is not None)


def _float_misfit(ours: pa.DataType, theirs: sa.Float[Any], *, is_short: bool) -> str:
    is_decimal, is_integer = pa.types.is_decimal(ours), pa.types.is_integer(ours)
    scale = getattr(theirs, "scale", None)  # of `DOUBLE(7, 2)` in MySQL and MariaDB
    if scale is not None and scale < _fraction_digits(ours):
        return "it would be rounded"
    is_long = (is_decimal and ours.precision > _FLOAT_DIGITS) or (is_integer and ours.bit_width == 64)
    is_longer = is_decimal or pa.types.is_float64(ours) or (is_integer and ours.bit_width > 16)
    return "digits would be lost" if is_long or (is_short and is_longer) else ""


def _has_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_time(kind) or pa.types.is_timestamp(kind))


def _time_misfit(ours: pa.DataType, theirs: sa.types.TypeEngine[Any]) -> str:
    if not isinstance(theirs, sa.DateTime if pa.types.is_timestamp(ours) else sa.Time) or not _has_time(ours):
        return ""
    if theirs.timezone != (getattr(ours, "tz", None) is not None):
        return "instants and clock times are not the same"
    precision = getattr(theirs, "precision", None)
    if precision is not None and precision < 6:  # microseconds
        return "fractions of seconds would be rounded"
    return ""


def _postgresql_misfit(ours: pa.DataType, theirs: sa.types.TypeEngine[Any]) -> str:
    """Return how values would change in PostgreSQL, which gets them as texts."""
    if type(theirs) is sa.String:  # SQLAlchemy's type for both
        return 'a column of `name` or `"char"` cuts what is longer than 63 bytes, or than one'
    if is_binary(ours) and isinstance(theirs, sa.String):
        return "bytes would be written as hexadecimal digits"
    if isinstance(theirs, postgresql.INTERVAL):
        if _is_number(ours):
            return "a number would be read as seconds"
        is_cut = pa.types.is_time(ours) and (theirs.precision is not None or theirs.fields)
        return "what is finer would be rounded or cut" if is_cut else ""
    is_address = isinstance(theirs, postgresql.CIDR | postgresql.INET | postgresql.MACADDR | postgresql.MACADDR8)
    return "it would be read as an address" if is_address and not is_text(ours) else ""


def _is_number(kind: pa.DataType) -> bool:
    is_whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    return bool(is_whole or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _mysql_misfit(  # noqa: PLR0911 - a list of rules reads best as one
    ours: pa.DataType, theirs: sa.types.TypeEngine[Any]
) -> str:
    """Return how values would change in MySQL and MariaDB, which take nearly all of them in every mode.

    Fractions of seconds are looked at by value (`with_kept_values`): most columns there have none. So are texts of
    ENUM, SET and YEAR, and bytes of columns with a fixed length.
    """
    if isinstance(theirs, mysql.YEAR):
        return "" if is_text(ours) else "short numbers would become other years"
    if isinstance(theirs, mysql.BIT):
        is_kept = pa.types.is_integer(ours) or pa.types.is_boolean(ours) or is_binary(ours)
        return "" if is_kept else "it would be rounded, or its letters would be read as bits"
    if is_binary(ours) and isinstance(theirs, sa.String):
        return "bytes would be read as letters of the column's character set"
    if not _is_number(ours):
        is_instant = isinstance(theirs, mysql.TIMESTAMP)
        is_clock = pa.types.is_timestamp(ours) and ours.tz is None
        return "instants and clock times are not the same" if is_instant and is_clock else ""
    if isinstance(theirs, sa.Enum | mysql.SET):
        return "a number would be taken for the place of a value"
    if isinstance(theirs, sa.Time | sa.Date | sa.DateTime):
        return "the digits of a number would be read as hours, or as a date"
    is_cut = isinstance(theirs, sa.BINARY) or (isinstance(theirs, sa.VARBINARY) and pa.types.is_floating(ours))
    return "the database would write fewer digits, or zeros behind them" if is_cut else ""


def _lost_in_mysql(array: pa.Array, theirs: sa.types.TypeEngine[Any]) -> str:
    """Return what some values would lose in MySQL and MariaDB, whatever the mode."""
    kind = array.type
    if isinstance(theirs, sa.Enum | mysql.SET) and is_text(kind):
        values = [*(theirs.values if isinstance(theirs, mysql.SET) else theirs.enums)]
        if isinstance(theirs, mysql.SET):
            array = pc.split_pattern(pc.if_else(pc.equal(array, ""), None, array), ",").flatten()
        is_known = pc.is_in(array.cast(pa.string()).drop_null(), pa.array(values, pa.string()))
        is_other = pc.any(pc.invert(is_known)).as_py()
        return f"is {theirs}, and some texts are none of its values: they would become others" if is_other else ""
    if isinstance(theirs, mysql.YEAR) and is_text(kind):
        is_year = pc.match_substring_regex(array, r"^\d{4}$")
        is_other = pc.any(pc.invert(is_year)).as_py()
        return "holds years, and some texts are not four digits: they would become other years" if is_other else ""
    length = getattr(theirs, "length", None)
    if isinstance(theirs, sa.BINARY | mysql.BIT) and length and (is_binary(kind) or is_text(kind)):
        wanted = length if isinstance(theirs, sa.BINARY) else -(-length // 8)
        is_short = pc.any(pc.less(pc.binary_length(array), wanted)).as_py()
        return f"is {theirs}, and some values are shorter: they would be filled with zeros" if is_short else ""
    return ""


def _exact(name: str, array: pa.Array, dialect: str) -> pa.Array:
    array = decoded(array)
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
