"""Values that people see as a table: as text in a terminal, as HTML in a notebook, as Arrow for all else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, overload

from gobblin_dagster.core.utils.text import printable

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
MAX_ROWS = 20
"""Rows that are shown; `to_arrow` and iteration have all."""
MAX_WIDTH = 60
"""Characters of a cell that are shown."""
MAX_FACT = 400
"""Characters of a fact that are shown."""
Kind: TypeAlias = Literal["text", "number", "flag", "instant"]


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """A column of a table of `T`."""

    name: str
    kind: Kind
    """Type of the values that are not None."""
    value: Callable[[T], Any]
    is_shown: bool = True
    """False: only in Arrow."""


class ShownAsFacts:
    """Shows itself as names and values, one pair a line; values that are missing or empty are left out.

    Example:
        >>> class Port(ShownAsFacts):
        ...     def _facts(self):
        ...         return {"name": "Brest", "ships": 1200, "closed": None}
        >>> Port()
        name   Brest
        ships  1,200
    """

    __slots__ = ()

    def _facts(self) -> Mapping[str, object]:
        """Return the values by name."""
        raise NotImplementedError

    def __repr__(self) -> str:
        known = self._known()
        width = max(map(len, known), default=0)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in known.items())

    def _repr_html_(self) -> str:
        """Return the facts for a notebook."""
        escape = _escape()
        rows = "".join(
            f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in self._known().items()
        )
        return f"<table><tbody>{rows}</tbody></table>"

    def _known(self) -> dict[str, str]:
        return {name: _text(value, MAX_FACT) for name, value in self._facts().items() if value not in (None, "")}


class ShownAsTable(Generic[T]):
    """Shows itself as a table, one row per item. A column that is empty in all rows is left out."""

    __slots__ = ()

    def _title(self) -> str:
        """Return the line above the table."""
        raise NotImplementedError

    def _items(self) -> Sequence[T]:
        """Return the items of the rows."""
        raise NotImplementedError

    def _columns(self) -> Sequence[Column[T]]:
        """Return the columns."""
        raise NotImplementedError

    def __repr__(self) -> str:
        columns, rows = self._shown()
        cells = [[column.name for column in columns], *([_text(value) for value in row] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(
                cell.rjust(width) if column.kind == "number" else cell.ljust(width)
                for cell, width, column in zip(row, widths, columns, strict=True)
            ).rstrip()
            for row in (cells if rows else ())
        ]
        return "\n".join([self._title(), *lines, *self._more()])

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        escape = _escape()
        columns, rows = self._shown()
        head = "".join(f"<th>{escape(column.name)}</th>" for column in columns)
        body = "".join("<tr>" + "".join(f"<td>{escape(_text(value))}</td>" for value in row) + "</tr>" for row in rows)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else ""
        return f"<p>{escape(self._title())}</p>{table}" + "".join(f"<p>{escape(line)}</p>" for line in self._more())

    def _shown(self) -> tuple[list[Column[T]], list[list[Any]]]:
        columns = [column for column in self._columns() if column.is_shown]
        rows = [[column.value(item) for column in columns] for item in self._items()[:MAX_ROWS]]
        used = [any(row[at] not in (None, "") for row in rows) for at in range(len(columns))]
        return (
            [column for column, is_used in zip(columns, used, strict=True) if is_used],
            [[value for value, is_used in zip(row, used, strict=True) if is_used] for row in rows],
        )

    def _more(self) -> list[str]:
        more = len(self._items()) - MAX_ROWS
        return [f"... {more:,} more"] if more > 0 else []


class Table(ShownAsTable[T]):
    """Shows itself as a table, is iterated by its rows' items, and becomes an Arrow table."""

    __slots__ = ()

    def __iter__(self) -> Iterator[T]:
        return iter(self._items())

    def to_arrow(self) -> pa.Table:
        """Return all rows as Arrow.

        Shape: one row per item, in their order; text, int64, bool and instants (microseconds, UTC), all nullable.
        Watermarks are text, as people read them.
        """
        import pyarrow as pa  # noqa: PLC0415  # slow to load

        types: dict[Kind, pa.DataType] = {
            "text": pa.string(),
            "number": pa.int64(),
            "flag": pa.bool_(),
            "instant": pa.timestamp("us", "UTC"),
        }
        columns = self._columns()
        schema = pa.schema([(column.name, types[column.kind]) for column in columns])
        items = self._items()
        return pa.table([[column.value(item) for item in items] for column in columns], schema=schema)


class Listing(Table[T], Sequence[T]):
    """Items of one kind that are shown as a table.

    Example:
        >>> print(Listing("2 words", [Column("word", "text", str), Column("letters", "number", len)], ["one", "three"]))
        2 words
        word   letters
        one          3
        three        5
    """

    __slots__ = ("_of", "_shown_columns", "_shown_title")

    def __init__(self, title: str, columns: Sequence[Column[T]], items: Sequence[T]) -> None:
        self._shown_title = title
        self._shown_columns = tuple(columns)
        self._of = tuple(items)

    def __len__(self) -> int:
        return len(self._of)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Listing[T]: ...
    def __getitem__(self, at: int | slice) -> T | Listing[T]:
        if isinstance(at, slice):
            return Listing(self._shown_title, self._shown_columns, self._of[at])
        return self._of[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Listing) and self._of == other._of

    def __hash__(self) -> int:
        return hash(self._of)

    def _title(self) -> str:
        return self._shown_title

    def _items(self) -> Sequence[T]:
        return self._of

    def _columns(self) -> Sequence[Column[T]]:
        return self._shown_columns


def mark(value: object) -> str | None:
    """Return a watermark, or any value that may be missing, as people read it; None if there is none.

    Example:
        >>> mark(42), mark(None)
        ('42', None)
    """
    return None if value is None else str(value)


def _text(value: Any, width: int = MAX_WIDTH) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
    line = printable(" ".join(str(value).split()))
    return line if len(line) <= width else line[: width - 3] + "..."


def _escape() -> Callable[[str], str]:
    from html import escape  # noqa: PLC0415 - Spark's workers import this module and show nothing

    return escape
