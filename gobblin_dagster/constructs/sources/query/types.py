"""Columns of the `query` source: SQL types, and the Arrow types in which their values are read."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.dialects.postgresql import DOMAIN, INET

from gobblin_dagster.constructs.types.arrow import fits_decimal

_DECIMAL = re.compile(r"decimal128\((\d+), (\d+)\)")
_LIST = re.compile(r"list<item: (.+)>")
_UTC_TIMESTAMP = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the database, with the Arrow type in which it is read."""

    name: str
    type: str
    """Name of the Arrow type; `arrow_type_of` parses it."""
    as_text: bool = False
    """Whether the statement casts it to text, because its type has no Arrow counterpart."""
    nullable: bool = True
    exact: str = ""
    """Name of the Arrow type with `types: exact`, if it is another one; `_INET` for addresses."""
    is_address: bool = False
    """Whether the text of an address has a mask only if the value has one."""
    is_geometry: bool = False
    """Whether it is a geometry of MySQL or MariaDB, which they do not cast to text."""
    is_instant: bool | None = None
    """Whether it holds instants, if that is known and its Arrow type does not say it."""

    def to_read(self) -> dict[str, Any]:
        """Return what a work unit stores of the column."""
        read = {"name": self.name, "type": self.type, "as_text": self.as_text}
        if self.is_address:
            read["is_address"] = True
        return read if self.is_instant is None else {**read, "is_instant": self.is_instant}

    def exactly(self) -> Column:
        """Return the column as it is read with `types: exact`."""
        if self.exact == _INET:
            return replace(self, is_address=True)
        return replace(self, type=self.exact, as_text=False) if self.exact else self


def reflected_column(reflected: Any, *, is_postgresql: bool) -> Column:
    """Return a column from what SQLAlchemy's inspector reports."""
    arrow = _arrow_of(reflected["type"])
    is_text = arrow is None
    return Column(
        str(reflected["name"]),
        str(pa.string() if arrow is None else arrow),
        is_text,
        bool(reflected.get("nullable", True)),
        exact=_exact_of(reflected["type"]) if is_postgresql else "",
    )


_INET = "inet"
_ITEMS: dict[str, type[sa.types.TypeEngine[Any]]] = {
    "bool": sa.Boolean,
    "int16": sa.SmallInteger,
    "int32": sa.Integer,
    "int64": sa.BigInteger,
    "float": sa.REAL,
    "double": sa.Double,
    "string": sa.Text,
}
"""Types of an array's values, by the name of the Arrow type."""
_EXACT_OIDS = {
    21: pa.int16(),
    23: pa.int32(),
    700: pa.float32(),
    1083: pa.time64("us"),
    1000: pa.list_(pa.bool_()),
    1005: pa.list_(pa.int16()),
    1007: pa.list_(pa.int32()),
    1016: pa.list_(pa.int64()),
    1021: pa.list_(pa.float32()),
    1022: pa.list_(pa.float64()),
    **dict.fromkeys((1009, 1014, 1015), pa.list_(pa.string())),
    869: _INET,
}
"""What `types: exact` reads otherwise, by the oid of PostgreSQL's type."""


_OIDS = {
    16: pa.bool_(),
    **dict.fromkeys((20, 21, 23), pa.int64()),
    **dict.fromkeys((700, 701), pa.float64()),
    1082: pa.date32(),
    1114: pa.timestamp("us"),
    1184: pa.timestamp("us", "UTC"),
    17: pa.binary(),
    **dict.fromkeys((25, 1042, 1043), pa.string()),
}
"""Arrow types by the oid of PostgreSQL's type; all other types are read as text."""
_NUMERIC_OID = 1700
_MYSQL_INSTANTS = {7: True, 10: False, 12: False}
"""Whether values are instants, by the code of TIMESTAMP, DATE and DATETIME in MySQL's protocol; all arrive without a
zone."""
_PYTHON_TYPES: dict[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime: pa.timestamp("us"),
    date: pa.date32(),
}


def described_columns(
    description: Sequence[Any], rows: Sequence[Any] | None, *, is_mysql: bool = False
) -> tuple[Column, ...]:
    """Return the columns of a result.

    Args:
        description: `description` of the DB-API cursor.
        rows: some rows; types are those of the first values that are not null. None: take PostgreSQL's types.
        is_mysql: whether the description has type codes of MySQL's protocol.
    """
    kinds = [_arrow_of_oid(part) for part in description] if rows is None else _arrow_of_values(rows, description)
    return tuple(
        Column(
            str(part[0]),
            str(kind or pa.string()),
            as_text=kind is None,
            exact=str(_EXACT_OIDS.get(part[1], "")) if rows is None else "",
            is_instant=is_instant,
        )
        for part, kind, is_instant in zip(description, kinds, instants(description, is_mysql=is_mysql), strict=True)
    )


def instants(description: Sequence[Any], *, is_mysql: bool) -> list[bool | None]:
    """Return for each column of a result whether it holds instants; None if its description does not say it."""
    return [_MYSQL_INSTANTS.get(part[1]) if is_mysql else None for part in description]


def _arrow_of_oid(described: Any) -> pa.DataType | None:
    """Return the Arrow type of a column as PostgreSQL's driver describes it."""
    _, oid, _, _, precision, scale, _ = described
    if oid == _NUMERIC_OID:
        return _arrow_of(sa.Numeric(precision, scale)) if precision and scale is not None else None
    return _OIDS.get(oid)


def _arrow_of_values(rows: Sequence[Any], description: Sequence[Any]) -> list[pa.DataType | None]:
    """Return the Arrow types of the values in a few rows; a column with nulls only is text."""
    first = [next((row[n] for row in rows if row[n] is not None), "") for n in range(len(description))]
    return [_PYTHON_TYPES.get(type(value)) for value in first]


def _arrow_of(kind: Any) -> pa.DataType | None:  # noqa: PLR0911 - a table of types reads best as one
    """Return the Arrow type of a SQL type; None if its values are read as text."""
    match kind:
        case DOMAIN():
            return _arrow_of(kind.data_type)
        case sa.Boolean():
            return pa.bool_()
        case sa.Integer():
            # Of any width: SQLite stores 64 bits even in a SMALLINT.
            return pa.int64()
        case sa.Float():
            return pa.float64()
        case sa.Numeric(precision=int(precision), scale=int(scale)) if 1 <= precision <= 38 and 0 <= scale <= precision:
            return pa.decimal128(precision, scale)
        case mysql.TIMESTAMP():
            return _UTC_TIMESTAMP  # an instant; a DATETIME is not
        case sa.DateTime():
            return _UTC_TIMESTAMP if kind.timezone else pa.timestamp("us")
        case sa.Date():
            return pa.date32()
        case _ if _is_binary(kind):
            return pa.binary()
        case sa.Enum():
            return None
        case sa.String():
            return pa.string()
        case _:
            return None


def _is_binary(kind: Any) -> bool:
    """Tell whether values are bytes; dialects have types of their own (LONGBLOB), which share no public class."""
    with suppress(NotImplementedError):
        return isinstance(kind, mysql.BIT) or kind.python_type is bytes
    return False


def _exact_of(kind: Any) -> str:  # noqa: PLR0911 - as above
    """Return `Column.exact` for a type of PostgreSQL."""
    match kind:
        case DOMAIN():
            return _exact_of(kind.data_type)
        case INET():
            return _INET
        case sa.Time(timezone=False):
            return str(pa.time64("us"))
        case sa.SmallInteger():
            return str(pa.int16())
        case sa.BigInteger():
            return ""
        case sa.Integer():
            return str(pa.int32())
        case sa.REAL():
            return str(pa.float32())
        case sa.ARRAY(item_type=sa.Boolean() | sa.Integer() | sa.Float() | sa.Text() | sa.VARCHAR() as item):
            return f"list<item: {_exact_of(item) or _arrow_of(item)}>"
        case _:
            return ""


def list_type_of(column: Column) -> sa.types.TypeEngine[Any] | None:
    """Return PostgreSQL's array type of a column that is read as lists; None for other columns."""
    match = _LIST.fullmatch(column.type)
    return sa.ARRAY(_ITEMS[match[1]]) if match else None


def arrow_type_of(text: str) -> pa.DataType:
    """Return the Arrow type of `Column.type`."""
    if match := _DECIMAL.fullmatch(text):
        return pa.decimal128(int(match[1]), int(match[2]))
    if match := _LIST.fullmatch(text):
        return pa.list_(arrow_type_of(match[1]))
    return _UTC_TIMESTAMP if text == str(_UTC_TIMESTAMP) else pa.type_for_alias(text)


class _SqliteDecimal(sa.types.TypeDecorator[Decimal]):
    """A decimal in SQLite, which keeps it as a whole number or a float; SQLAlchemy rounds both.

    Of a float, the 15 digits count that SQLite shows, if all 17 do not fit: `0.1 + 0.2` is 0.3 in a column of two.
    """

    impl = sa.Numeric
    cache_ok = True

    def __init__(self, precision: int, scale: int) -> None:
        super().__init__(precision, scale, asdecimal=False)
        self.kind = pa.decimal128(precision, scale)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Any:
        if isinstance(value, int):
            return Decimal(value)
        if not isinstance(value, float) or not math.isfinite(value):
            return value
        number = Decimal(repr(value))
        return number if fits_decimal(number, self.kind) else Decimal(f"{value:.15g}")


def sql_type_of(column: Column, backend: str) -> sa.types.TypeEngine[Any]:
    """Return the SQL type that makes drivers return a column's values as the right Python objects.

    None for booleans: drivers that know them return them, and SQLAlchemy would make True of SQLite's text 'false'.
    """
    kind = arrow_type_of(column.type)
    if pa.types.is_timestamp(kind):
        return sa.DateTime(timezone=kind.tz is not None)
    if pa.types.is_date(kind):
        return sa.Date()
    if pa.types.is_decimal(kind):
        make = _SqliteDecimal if backend == "sqlite" else sa.Numeric
        return make(kind.precision, kind.scale)
    if pa.types.is_integer(kind):
        return sa.BigInteger()
    return sa.types.NullType()
