"""SQL statements of the `query` source for one dataset, as SQLAlchemy expressions: to count rows and to read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from gobblin_dagster.constructs.clients.sql import MYSQL
from gobblin_dagster.constructs.sources.incremental.cursor import Cursor, CursorType
from gobblin_dagster.constructs.sources.query.types import Column, arrow_type_of, list_type_of, sql_type_of

_INT64 = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or a query, with the watermark column that orders its rows."""

    schema: str
    table: str
    """Empty for a query."""
    query: str
    columns: tuple[Column, ...]
    cursor_column: str
    """Empty if there is none; then only `row_count` and `all_rows` can be used."""
    cursor: Cursor
    backend: str
    """Kind of the database, as SQLAlchemy names it."""

    @property
    def is_sqlite(self) -> bool:
        """Whether times are stored as text."""
        return self.backend == "sqlite"

    def _from(self) -> Any:
        columns = [sa.column(column.name, sql_type_of(column, self.backend)) for column in self.columns]
        if self.query:
            # Escape every colon: SQLAlchemy would read `:name` as a parameter.
            return sa.text(self.query.replace(":", r"\:")).columns(*columns).subquery("q")
        return sa.table(self.table, *columns, schema=self.schema)

    def _bound(self, column: Any, step: int) -> Any:
        """Return a position as a literal to compare with the watermark column."""
        position = self.cursor.position(step)
        if self.is_sqlite and isinstance(position, int) and position not in _INT64:
            return sa.literal(float(position), sa.Float())  # outside SQLite's whole numbers, so no value equals it
        if not self.cursor.is_time:
            return sa.literal(position, sa.BigInteger())
        if not self.is_sqlite:
            return sa.literal(_fitting(position, column.type), column.type)
        # SQLite compares texts: the shortest form of a bound sorts right against every fraction.
        text = str(position) if not isinstance(position, datetime) else _text(position)
        return sa.literal(text, sa.String())

    def _comparable(self, source: Any) -> Any:
        column = source.c[self.cursor_column]
        return sa.type_coerce(column, sa.String()) if self.is_sqlite and self.cursor.is_time else column

    def inside(self, source: Any, low: int, high: int) -> Any:
        """Return the condition `low <= column < high`."""
        column, typed = self._comparable(source), source.c[self.cursor_column]
        return sa.and_(column >= self._bound(typed, low), column < self._bound(typed, high))

    def bounds(self) -> sa.Select[Any]:
        """Select the lowest and the highest value."""
        source = self._from()
        column = source.c[self.cursor_column]
        return sa.select(sa.func.min(column), sa.func.max(column))

    def highest(self, within: tuple[int, int] | None = None) -> sa.Select[Any]:
        """Select the highest value, or the highest one within a range `[low, high)`."""
        source = self._from()
        found = sa.select(sa.func.max(source.c[self.cursor_column]))
        return found if within is None else found.where(self.inside(source, *within))

    def unordered(self, since: int | None) -> sa.Select[Any]:
        """Count the texts that SQLite would not sort as the times that they mean; select the least of them too.

        Args:
            since: rows of earlier days are ignored; None: no rows are.
        """
        source = self._from()
        text = sa.type_coerce(source.c[self.cursor_column], sa.String())
        day = "-".join("[0-9]" * digits for digits in (4, 2, 2))
        if self.cursor.kind is CursorType.DATE:
            is_ordered: Any = text.bool_op("GLOB")(f"{day}*")
        else:
            second = f"{day} {':'.join(['[0-9][0-9]'] * 3)}"
            fraction = sa.func.substr(text, len("2013-01-01 06:00:00."))
            is_ordered = sa.or_(
                text.bool_op("GLOB")(second),
                text.bool_op("GLOB")(f"{second}.[0-9]*") & sa.not_(fraction.bool_op("GLOB")("?*[^0-9]*")),
            )
        columns: Any = (sa.func.count(), sa.func.min(text))
        found = sa.select(*columns).select_from(source).where(sa.not_(is_ordered))
        return found if since is None else found.where(text >= str(self.cursor.position(since))[:10])

    @property
    def may_hold_fractions(self) -> bool:
        """Whether the type of the watermark column allows fractions: SQLite stores them in columns of any type."""
        return self.is_sqlite or not pa.types.is_integer(arrow_type_of(self.cursor_type))

    def fractions(self, since: int | None) -> sa.Select[Any]:
        """Count the numbers that are not whole; select the least of them too.

        Args:
            since: rows before it are ignored; None: no rows are.
        """
        source = self._from()
        column = source.c[self.cursor_column]
        # PostgreSQL and MySQL round where they cast.
        whole = sa.cast(column, sa.Integer()) if self.is_sqlite else sa.func.floor(column)
        columns: Any = (sa.func.count(), sa.func.min(column))
        found = sa.select(*columns).select_from(source).where(column != whole)
        return found if since is None else found.where(column >= self._bound(column, since))

    def count_before(self, step: int) -> sa.Select[Any]:
        """Count the rows before a position."""
        source = self._from()
        column = source.c[self.cursor_column]
        return sa.select(sa.func.count()).select_from(source).where(column < self._bound(column, step))

    def null_count(self) -> sa.Select[Any]:
        """Count the rows with NULL in the watermark column."""
        source = self._from()
        return sa.select(sa.func.count()).select_from(source).where(source.c[self.cursor_column].is_(None))

    def counts(self, ranges: Sequence[tuple[int, int]]) -> sa.Select[Any]:
        """Count the rows of several ranges in one scan."""
        source = self._from()
        sums = [
            sa.func.sum(sa.case((self.inside(source, low, high), 1), else_=0)).label(f"n{number}")
            for number, (low, high) in enumerate(ranges)
        ]
        within = self.inside(source, min(low for low, _ in ranges), max(high for _, high in ranges))
        return sa.select(*sums).select_from(source).where(within)

    def row_count(self) -> sa.Select[Any]:
        """Count all rows."""
        return sa.select(sa.func.count()).select_from(self._from())

    def all_rows(self) -> sa.Select[Any]:
        """Select all rows, with all columns."""
        source = self._from()
        return sa.select(*(self._selected(source.c[column.name], column) for column in self.columns))

    def rows(self, low: int, high: int, with_nulls: bool, is_ordered: bool = False) -> sa.Select[Any]:
        """Select the rows of a range, with all columns; `is_ordered`: in order of the watermark column."""
        source = self._from()
        condition = self.inside(source, low, high)
        if with_nulls:
            condition = sa.or_(condition, source.c[self.cursor_column].is_(None))
        statement = sa.select(*(self._selected(source.c[column.name], column) for column in self.columns)).where(
            condition
        )
        return statement.order_by(self._comparable(source)) if is_ordered else statement

    def _selected(self, value: Any, column: Column) -> Any:
        if column.is_address:
            return sa.func.abbrev(value).label(column.name)
        if (kind := list_type_of(column)) is not None:
            # The driver would make one list of `{{1,2},{3,4}}`; so the server refuses to cast this text to an array.
            text = sa.literal("an array of several dimensions is read by `types: wide` only: ") + sa.cast(
                value, sa.Text()
            )
            several = (sa.func.array_ndims(value) > 1, sa.cast(text, kind))
            return sa.case(several, else_=sa.cast(value, kind)).label(column.name)
        if column.as_text:
            return sa.cast(value, sa.Text()).label(column.name)
        if self.backend in MYSQL and column.type == "double":
            # MySQL sends a FLOAT with six digits. Part of a sum it is a DOUBLE, and sent with all digits.
            return (value + sa.literal_column("0e0")).label(column.name)
        return value

    @property
    def arrow_schema(self) -> pa.Schema:
        """Arrow schema of the rows."""
        return schema_of(self.columns)

    @property
    def has_zone(self) -> bool:
        """Whether the watermark column has a time zone."""
        is_instant = self._cursor_column.is_instant
        return self.cursor_type.endswith("tz=UTC]") if is_instant is None else is_instant

    @property
    def knows_zone(self) -> bool:
        """Whether `has_zone` is what the database says: SQLite has no such types, others do not describe queries."""
        is_described = not self.query or self.backend == "postgresql" or self._cursor_column.is_instant is not None
        return is_described and not self.is_sqlite

    @property
    def cursor_type(self) -> str:
        """Name of the watermark column's Arrow type."""
        return self._cursor_column.type

    @property
    def _cursor_column(self) -> Column:
        return next(column for column in self.columns if column.name == self.cursor_column)


def _fitting(position: Any, kind: Any) -> Any:
    """Return a position as a value of the column's type."""
    if isinstance(kind, sa.DateTime):
        instant = position if isinstance(position, datetime) else _midnight(position)
        return instant if kind.timezone else instant.replace(tzinfo=None)
    if isinstance(kind, sa.Date) and isinstance(position, datetime):
        return position.date()
    return position


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _text(instant: datetime) -> str:
    # Not by strftime, which writes years before 1000 with less than four digits.
    text = instant.replace(tzinfo=None).isoformat(" ", "seconds")
    return f"{text}.{instant.microsecond:06d}".rstrip("0") if instant.microsecond else text


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """Return the schema of rows with these columns."""
    return pa.schema([(column.name, arrow_type_of(column.type)) for column in columns])
