"""Pass on rows in order of a column, cut into chunks where the value changes, so that each chunk ends at a position.

There is no position between rows with equal values: a watermark cannot say how many of them were read. So the rows with
the last value of a batch are held back until the next batch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_dagster.core.constructs import Chunk

MAX_HELD_ROWS = 50_000
"""Most rows of one value that are held back; if there are more, they are passed on, and there is no position until the
value ends."""


class InOrder:
    """Pass chunks on, and know the position that they reach.

    Args:
        column: column that orders the rows, ascending; without nulls.
        step: converts a value of the column to a step.
        fail: makes the error for rows that are out of order, from a text.
        limit_rows: a chunk ends at the first position behind so many rows; None: none ends for that.
        low: the position behind the limit lies above this step, which rows that are read again do not reach.
        values: converts the column to values that sort as its rows do; by default they are the column's own.
    """

    def __init__(
        self,
        column: str,
        step: Callable[[Any], Any],
        fail: Callable[[str], Exception],
        limit_rows: int | None = None,
        values: Callable[[pa.Array], pa.Array] | None = None,
        low: int | None = None,
    ) -> None:
        self.reached: Any = None
        """Step above all rows handed out, and not above any row to come; None if there is no such step at the
        moment."""
        self._column = column
        self._step = step
        self._fail = fail
        self._left_rows = limit_rows
        """Rows up to the limit; None without one, or behind it."""
        self._low = low
        self._last: Any = None
        self._values = values

    def cut(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yield the rows of `chunks`, cut again; raises what `fail` makes if they are out of order."""
        held: Chunk | None = None
        for chunk in chunks:
            if not chunk.batch.num_rows:
                continue
            self._require_order(chunk)
            joined = chunk if held is None else _joined(held, chunk)
            begin = 0
            for end, reached in self._ends(self._of(joined)):
                self.reached = reached
                yield joined.slice(begin, end - begin)
                begin = end
            held = joined.slice(begin)
            if held.batch.num_rows > MAX_HELD_ROWS:
                self.reached = None
                self._count(held.batch.num_rows)
                yield held
                held = None
        if held is not None:
            self.reached = None
            yield held

    def _of(self, chunk: Chunk) -> pa.Array:
        values = chunk.batch.column(self._column)
        return values if self._values is None else self._values(values)

    def _ends(self, values: pa.Array) -> Iterator[tuple[int, Any]]:
        """Yield where chunks of these rows end, with the position there: at the limit, and before the last value."""
        rows = range(len(values))

        def step_at(row: int) -> Any:
            return self._step(values[row].as_py())

        end = bisect_left(rows, step_at(-1), key=step_at)
        if self._left_rows is not None and self._left_rows < end:
            last = step_at(max(self._left_rows, 1) - 1)
            at_limit = bisect_right(rows, last if self._low is None else max(last, self._low), key=step_at)
            if at_limit < end:
                self._left_rows = None
                yield at_limit, step_at(at_limit)
        if end:
            self._count(end)
            yield end, step_at(-1)

    def _count(self, rows: int) -> None:
        if self._left_rows is not None:
            self._left_rows = max(0, self._left_rows - rows)

    def _require_order(self, chunk: Chunk) -> None:
        values = self._of(chunk)
        first = values[0].as_py()
        ordered = self._last is None or self._last <= first
        if not ordered or pc.any(pc.less(values[1:], values[:-1])).as_py():
            raise self._fail(f"rows are not in ascending order of {self._column!r}")
        self._last = values[-1].as_py()


def _joined(one: Chunk, two: Chunk) -> Chunk:
    return Chunk(pa.concat_batches([one.batch, two.batch]), two.file, pa.concat_arrays([one.rows, two.rows]))
