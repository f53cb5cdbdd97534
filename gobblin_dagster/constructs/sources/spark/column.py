"""The watermark column of a DataFrame.

Convert its values to steps of a cursor, and ranges of steps to SQL conditions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from gobblin_dagster.constructs.sources.incremental.cursor import Cursor, CursorType
from gobblin_dagster.constructs.sources.incremental.ranges import Range
from gobblin_dagster.constructs.sources.spark.frames import quoted

_WHOLE = ("bigint", "int", "smallint", "tinyint")
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_US_PER_HOUR = 3_600_000_000
_MORE_THAN_BIGINT = 1 << 63


@dataclass(frozen=True, slots=True)
class Column:
    """The column that orders the rows of a DataFrame."""

    name: str
    """Its name, quoted for SQL."""
    kind: str
    """Spark's type: `bigint`, `decimal(10,0)`, `timestamp`, `timestamp_ntz`, `date`."""
    cursor: Cursor

    @property
    def has_zone(self) -> bool:
        """Whether values are instants, not times of a wall clock."""
        return self.kind == "timestamp"

    def condition(self, ranges: Sequence[Range], *, nulls: bool = False) -> str:
        """Return a condition for rows in one of the ranges; with `nulls`, also for rows with NULL.

        It compares the bare column with constants, so that Spark can push it down to files and servers.
        """
        parts = [
            f"({self.name} >= {self._literal(low)} and {self.name} < {self._literal(high)})" for low, high in ranges
        ]
        return " or ".join([*parts, *([f"{self.name} is null"] if nulls else [])])

    def outside(self, low: int, high: int) -> str:
        """Return a condition for rows before `low`, from `high` on, and with NULL."""
        return f"{self.name} < {self._literal(low)} or {self.name} >= {self._literal(high)} or {self.name} is null"

    def require_positions(self, low: int, high: int) -> None:
        """Raise ValueError if `low` or `high` is no position, e.g. because it is after the last instant."""
        for step, bound in ((low, "lowest"), (high, "highest")) if low < high else ():
            try:
                self.cursor.mark(step)
                fits = self.kind != "bigint" or -_MORE_THAN_BIGINT <= step < _MORE_THAN_BIGINT
            except (ValueError, OverflowError):
                fits = False
            if not fits:
                option = "`start`" if bound == "lowest" else "`end`"
                raise ValueError(
                    f"the {bound} value of column {self.name} is at the edge of the range of `type: "
                    f"{self.cursor.kind}`, "
                    f"or beyond it; {option} leaves such rows out, or a `query` gives them another value"
                )

    def bounds(self, frame: Any, known: Range | None = None) -> tuple[int | None, int | None, int]:
        """Return the lowest and the highest step (None without rows), and the number of rows with NULL.

        Of the rows inside `known`, only those of its last step are read, for the highest step only: if the format has
        statistics, Spark skips the files of the others. So a highest step before the last one of `known` means that
        rows were deleted.
        """
        lowest, highest = f"min({self.name})", f"max({self.name})"
        if known is not None:
            low, high = known
            lowest += f" filter (where {self.outside(low, high)})"
            frame = frame.where(self.outside(low, max(low, high - 1)))
        row = frame.selectExpr(self._number(lowest), self._number(highest), f"count_if({self.name} is null)").collect()
        first, last, nulls = row[0]
        return None if first is None else self._step(first), None if last is None else self._step(last), nulls

    def after_last_row(self, frame: Any, low: int, high: int) -> int:
        """Return the step after the last row in `[low, high)`, or `low` if there is none.

        A bound that no row has reached is not committed: rows may still come below it.
        """
        if low >= high:
            return high
        inside = frame.where(self.condition([(low, high)]))
        (highest,) = inside.selectExpr(self._number(f"max({self.name})")).collect()[0]
        return low if highest is None else self._step(highest) + 1

    def counts(self, frame: Any, ranges: Sequence[Range]) -> list[int]:
        """Return the number of rows in each range, in one pass."""
        tests = [f"count_if({self.condition([one])})" for one in ranges]
        return [int(count) for count in frame.where(self.condition(ranges)).selectExpr(*tests).collect()[0]]

    def _number(self, value: str) -> str:
        """Return an SQL expression for a value as a whole number, independent of the session's time zone."""
        if self.kind == "timestamp":
            return f"unix_micros({value})"
        if self.kind == "timestamp_ntz":
            return f"unix_micros(cast(cast({value} as string) || 'Z' as timestamp))"
        return f"unix_date({value})" if self.kind == "date" else f"cast({value} as bigint)"

    def _step(self, number: int) -> int:
        if self.kind == "date":
            return number + _EPOCH_DAY
        return number // _US_PER_HOUR if self.cursor.kind is CursorType.HOUR else number

    def _literal(self, step: int) -> str:
        position = self.cursor.position(step)
        if isinstance(position, int):
            return str(position) if self.kind != "bigint" else f"{position}L"
        if not isinstance(position, datetime):
            return f"date'{position.isoformat()}'"
        if self.kind == "timestamp_ntz":
            return f"timestamp_ntz'{position.replace(tzinfo=None).isoformat(sep=' ', timespec='microseconds')}'"
        since = position - datetime.fromtimestamp(0, position.tzinfo)
        return f"timestamp_micros({since // timedelta(microseconds=1)})"


def column_of(frame: Any, name: str, cursor: Cursor) -> Column:
    """Return the watermark column of a DataFrame; raises ValueError if it is missing or of another type."""
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    if name not in kinds:
        raise ValueError(f"there is no column {name}; it has {', '.join(kinds) or 'none'}")
    kind = kinds[name]
    fits = {
        CursorType.LONG: kind in _WHOLE or (kind.startswith("decimal(") and kind.endswith(",0)")),
        CursorType.DATE: kind == "date",
    }
    if not fits.get(cursor.kind, kind in ("timestamp", "timestamp_ntz")):
        expected = {CursorType.LONG: "whole numbers (bigint)", CursorType.DATE: "date"}
        raise ValueError(
            f"column {name} is of type {kind}, `type: {cursor.kind}` needs {expected.get(cursor.kind, 'timestamp')}"
        )
    return Column(quoted(name), kind, cursor)
