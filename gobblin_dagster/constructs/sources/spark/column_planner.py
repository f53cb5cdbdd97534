"""Plan by a column: find rows outside the committed ranges, and cut their ranges into work units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from gobblin_dagster.constructs.sources.incremental.cursor import CursorType
from gobblin_dagster.constructs.sources.incremental.options import null_notes, null_problem
from gobblin_dagster.constructs.sources.incremental.ranges import Cut, Range, committed_steps, open_ranges, start_notes
from gobblin_dagster.constructs.sources.incremental.watermark_column import column_origin, column_problem
from gobblin_dagster.constructs.sources.spark.column import Column, column_of
from gobblin_dagster.constructs.sources.spark.options import SparkOptions
from gobblin_dagster.core.constructs import DatasetOffer
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.work_unit import WorkUnit


@dataclass(frozen=True, slots=True)
class ColumnPlanner:
    """Plan datasets whose rows are ordered by a column."""

    options: SparkOptions
    now: datetime

    def offer(self, frame: Any, urn: str, state: DatasetState | None) -> DatasetOffer:
        """Offer one dataset; raises ValueError if the column does not fit.

        Rows between the lowest and the highest committed position are not read again, only rows outside.
        """
        name = self.options.watermark.column if self.options.watermark else ""
        column = column_of(frame, name, self.options.cursor)
        origin = column_origin(name, has_zone=column.has_zone if column.cursor.is_time else None)
        if problem := column_problem(state, origin):
            raise ValueError(problem.rstrip("."))
        return replace(self._offer(frame, column, urn, state), origin=origin)

    def _offer(self, frame: Any, column: Column, urn: str, state: DatasetState | None) -> DatasetOffer:
        cursor, options = self.options.cursor, self.options
        committed = committed_steps(state.committed, cursor) if state is not None else []
        mark = state.watermark if state is not None else None
        first, last = (committed[0][0], committed[-1][1]) if committed else (None, None)
        lowest, highest, nulls = column.bounds(frame, None if first is None or last is None else (first, last))
        if nulls and options.nulls == "fail":
            raise ValueError(null_problem(nulls, column.name))
        lowest = lowest if lowest is not None else first
        if lowest is None:
            return DatasetOffer(urn, mark, mark, notes=null_notes(options.nulls, nulls, column.name, (), is_first=True))
        after = max(step for step in (last, None if highest is None else highest + 1) if step is not None)
        high, why = min([(after, ""), *self.caps(column, after)])
        high = high if last is None else max(high, last)
        start = cursor.parse(options.start) if options.start is not None else None
        beginning = lowest if start is None else max(lowest, start)
        column.require_positions(beginning, high)
        end = column.after_last_row(frame, beginning if last is None else last, high) if high < after else high
        units = self._units(frame, column, urn, list(open_ranges(committed, lowest, end, start)), committed)
        notes = null_notes(options.nulls, nulls, column.name, units, is_first=not committed)
        if last is not None and (highest is None or highest < last - 1):
            # Every read ended at or before a row: there was a row at its last position, or behind it.
            notes.append(
                f"no row is at {cursor.mark(last - 1)}, where its last read ended, or behind it: were rows deleted, or "
                "the table created again? Its rows are not read again."
            )
        if why and high < after:
            notes.append(f"from {cursor.mark(high)} on, rows are left for a later run: {why}.")
        if not units:
            notes += start_notes(cursor, committed, after, start)
            return DatasetOffer(urn, mark, mark, notes=notes)
        return DatasetOffer(urn, units[0].low, units[-1].expected_high, units, notes=notes)

    def caps(self, column: Column, after: int) -> Iterator[tuple[int, str]]:
        """Yield upper bounds (exclusive) of what may be read, each with its reason; `after` follows the last row."""
        options, cursor = self.options, self.options.cursor
        if options.end is not None:
            yield cursor.parse(options.end), "`end`"
        default = {CursorType.DATE: "CURRENTDATE-1", CursorType.HOUR: "CURRENTHOUR-1"}.get(cursor.kind)
        limit = options.max_watermark or default
        if limit is not None:
            yield cursor.limit(limit, self.now, options.zone, column.has_zone), f"`max_watermark: {limit}`"
        if options.lag:
            newest = cursor.floor(self.now, options.zone, column.has_zone) if cursor.is_time else after
            yield newest - cursor.span(options.lag), f"`lag: {options.lag}`"

    def _units(
        self, frame: Any, column: Column, urn: str, ranges: Sequence[Range], committed: Sequence[Range]
    ) -> list[WorkUnit]:
        cut = self._cut()
        parts = [part for low, high in ranges for part in cut.ranges(low, high, None)] if cut else list(ranges)
        if not parts:
            return []
        includes = self.options.nulls == "include" and (not committed or committed[0] == (parts[0][0], parts[0][0]))
        can_count = self.options.count_rows and self.options.is_plain
        counts: Sequence[int | None] = column.counts(frame, parts) if can_count else [None] * len(parts)
        return [
            WorkUnit(
                id=str(number),
                dataset_urn=urn,
                low=column.cursor.mark(low),
                expected_high=column.cursor.mark(high),
                read={"nulls": True} if includes and number == 0 else {},
                rows=None if includes and number == 0 else rows,
            )
            for number, ((low, high), rows) in enumerate(zip(parts, counts, strict=True))
        ]

    def _cut(self) -> Cut | None:
        """Return how to cut ranges into work units; None: one work unit per range."""
        options = self.options
        if options.partition_interval is not None:
            return Cut(options.cursor.span(options.partition_interval), (), options.partitions, 1)
        return Cut(1, (), options.partitions, 1) if "partitions" in options.model_fields_set else None
