"""Plan the datasets of the `query` source, from one snapshot of the database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import sqlalchemy as sa

from gobblin_dagster.constructs.sources.incremental.cursor import Cursor
from gobblin_dagster.constructs.sources.incremental.options import null_notes, null_problem
from gobblin_dagster.constructs.sources.incremental.ranges import Range, committed_steps, open_ranges, start_notes
from gobblin_dagster.constructs.sources.incremental.watermark_column import column_origin, column_problem
from gobblin_dagster.constructs.sources.query.database import Table
from gobblin_dagster.constructs.sources.query.options import QueryOptions
from gobblin_dagster.constructs.sources.query.relation import Relation
from gobblin_dagster.constructs.sources.query.row_counts import MOST_COUNTED, RowCounts
from gobblin_dagster.constructs.sources.query.tables import Tables
from gobblin_dagster.constructs.sources.query.upper_bound import Horizon, caps, zone_notes
from gobblin_dagster.core.constructs import DatasetOffer
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import SourceError
from gobblin_dagster.core.utils.text import shown
from gobblin_dagster.core.watermark import Watermark
from gobblin_dagster.core.work_unit import WorkUnit

_WHOLE = (1, 2)
"""Steps before and behind a table that is read whole."""
_GONE = "were rows deleted, or the table created again?"


@dataclass(frozen=True, slots=True)
class Offers:
    """Plan datasets one after the other, over one connection in one transaction."""

    tables: Tables
    connection: sa.Connection
    horizon: Horizon

    @property
    def _options(self) -> QueryOptions:
        return self.tables.options

    @property
    def _cursor(self) -> Cursor:
        return self.tables.options.cursor

    def of(self, table: Table, state: DatasetState | None) -> DatasetOffer:
        """Return the offer of one dataset.

        If the database refuses a statement (no permission), only this dataset fails.
        """
        settled = self.horizon.settled.get(table.urn)
        problem = table.problem or self._state_problem(state) or (settled.problem if settled is not None else "")
        if problem:
            return DatasetOffer(table.urn, None, None, problem=str(self._error(problem)))
        relation = self.tables.relation(table)
        if not relation.cursor_column and self._options.without_watermark == "leave_out":
            note = "it has no watermark column and is not read (`without_watermark: leave_out`)."
            return DatasetOffer(table.urn, None, None, notes=[note])
        origin = self._origin(relation)
        if problem := column_problem(state, origin):
            return DatasetOffer(table.urn, None, None, problem=str(self._error(f"{table.urn}: {problem}")))
        try:
            with self.tables.database.planning(f"{table.urn}: ", table.name, self.connection):
                whole = not relation.cursor_column
                offer = self._whole(table, relation) if whole else self._offer(table, relation, state)
                return replace(offer, origin=origin)
        except SourceError as error:
            self.tables.database.limits.apply(self.connection)
            return DatasetOffer(table.urn, None, None, problem=str(error))

    def _offer(self, table: Table, relation: Relation, state: DatasetState | None) -> DatasetOffer:
        urn = table.urn
        committed = committed_steps(state.committed, self._cursor) if state is not None else []
        mark = state.watermark if state is not None else None
        try:
            self._require_order(relation, committed)
            lowest, highest = self._bounds(table, relation)
        except (ValueError, TypeError, OverflowError) as error:  # drivers convert times to Python's
            return self._no_position(urn, mark, relation, error)
        nulls = self._count_nulls(relation, table)
        if nulls and self._options.nulls == "fail":
            problem = f"{urn}: {null_problem(nulls, relation.cursor_column)}."
            return DatasetOffer(urn, mark, None, problem=str(self._error(problem)))
        if highest is None:
            notes = [*self._null_notes(relation, nulls, (), committed), *table.notes]
            if committed:
                notes.append(f"it holds no row with a position, and is committed up to {mark}: {_GONE}")
            return DatasetOffer(urn, mark, mark, notes=notes)
        try:
            first, after = self._cursor.step(lowest), self._cursor.step(highest) + 1
            self._require_beginning(relation, first)
            self._require_whole_numbers(relation, committed)
            high, why = min([(after, ""), *caps(self._options, relation, urn, after, self.horizon)])
            self._cursor.mark(high)  # fails for 'infinity', after which there is no position
            start = self._cursor.parse(self._options.start) if self._options.start is not None else None
            beginning = first if start is None else max(first, start)
            low = committed[-1][1] if committed else beginning
            end = self._after_last_row(relation, low, high) if high < after else high
        except (ValueError, TypeError, OverflowError) as error:
            return self._no_position(urn, mark, relation, error)
        notes = [*table.notes]
        if why and high < after and not any(low < after <= end for low, end in committed):
            shown = self._cursor.mark(max(high, committed[-1][1] if committed else first))
            notes.append(f"from {shown} on, rows are left for a later run: {why}.")
        if committed and after < committed[-1][1]:
            notes.append(
                f"its last row is at {self._cursor.mark(after - 1)}, before its watermark "
                f"{self._cursor.mark(committed[-1][1])}: {_GONE} Its rows are not read again."
            )
        units = self._units(urn, relation, open_ranges(committed, first, end, start), committed)
        notes = [*self._null_notes(relation, nulls, units, committed), *notes]
        if not units:
            notes += start_notes(self._cursor, committed, after, start)
            return DatasetOffer(urn, mark, mark, notes=notes)
        notes += [*zone_notes(self._options, relation, self.horizon), *self._reading_notes(committed, units)]
        return DatasetOffer(urn, units[0].low, units[-1].expected_high, units, notes=notes)

    def _whole(self, table: Table, relation: Relation) -> DatasetOffer:
        """Return the offer of a table without a watermark column: one work unit with all rows."""
        columns: Any = [column.to_read() for column in relation.columns]
        low, high = self._cursor.mark(_WHOLE[0]), self._cursor.mark(_WHOLE[1])
        rows = int(self.connection.execute(relation.row_count()).scalar_one()) if self._options.count_rows else None
        unit = WorkUnit("0", table.urn, low, high, read={"columns": columns, "whole": True}, rows=rows)
        note = "it has no watermark column: it is read whole in each run (`without_watermark: full`)."
        return DatasetOffer(table.urn, low, high, [unit], notes=[*table.notes, note])

    def _bounds(self, table: Table, relation: Relation) -> tuple[Any, Any]:
        """Return the lowest and the highest value, None without rows; raises ValueError if they are no positions."""
        where = f"{table.urn}, watermark column {relation.cursor_column}: "
        with self.tables.database.errors(where, of_table=table.name):
            lowest, highest = self.connection.execute(relation.bounds()).one()
        if isinstance(lowest, str) and lowest.startswith("0000-00-00") and relation.cursor_type != "string":
            raise ValueError(
                f"expected times, got {shown(lowest)}, which is none; a `query` with NULLIF({relation.cursor_column}, "
                "0) reads it as NULL, and `nulls` says what becomes of such rows"
            )
        if isinstance(lowest, str) and self._cursor.is_time and not relation.is_sqlite:
            # The database compares texts as texts, even if they mean times.
            raise ValueError(f"expected times, got texts, e.g. {shown(lowest)}; convert them in a `query` with CAST")
        return lowest, highest

    def _after_last_row(self, relation: Relation, low: int, high: int) -> int:
        """Return the step after the last row in `[low, high)`, or `low` if there is none.

        A bound that no row has reached is not committed: rows may still come below it.
        """
        if low >= high:
            return high
        highest = self.connection.execute(relation.highest((low, high))).scalar_one()
        return low if highest is None else self._cursor.step(highest) + 1

    def _require_order(self, relation: Relation, committed: Sequence[Range]) -> None:
        """Raise ValueError if SQLite, which compares texts, would skip rows."""
        if not relation.is_sqlite or not self._cursor.is_time:
            return
        count, example = self.connection.execute(relation.unordered(committed[-1][1] if committed else None)).one()
        if count:
            raise ValueError(
                f"{count} value(s) do not sort as the times that they mean, e.g. {shown(example)}; expected texts like "
                "2013-01-31 06:00:00, in one zone; a `query` with datetime(...) writes them so"
            )

    def _require_beginning(self, relation: Relation, first: int) -> None:
        """Raise ValueError if rows are before all positions: drivers read '-infinity' as the first day of year 1."""
        position = self._cursor.position(first)
        if not isinstance(position, date) or position.year > 1 or relation.is_sqlite:
            return
        if count := self.connection.execute(relation.count_before(first)).scalar_one():
            raise ValueError(f"{count} row(s) are before the year 1 (-infinity), before all positions; see `nulls`")

    def _require_whole_numbers(self, relation: Relation, committed: Sequence[Range]) -> None:
        """Raise ValueError if there are fractions: one that comes before the next whole number would never be read."""
        if self._cursor.is_time or not relation.may_hold_fractions:
            return
        since = committed[-1][1] - 1 if committed else None
        count, example = self.connection.execute(relation.fractions(since)).one()
        if count:
            raise ValueError(
                f"expected whole numbers, got {count} with a fraction, e.g. {str(example)[:40]}; a `query` can "
                "multiply them"
            )

    def _no_position(self, urn: str, mark: Watermark | None, relation: Relation, error: Exception) -> DatasetOffer:
        problem = f"{urn}, watermark column {relation.cursor_column} of type `{self._cursor.kind}`: {error}."
        return DatasetOffer(urn, mark, None, problem=str(self._error(problem)))

    def _count_nulls(self, relation: Relation, table: Table) -> int:
        column = table.column(relation.cursor_column)
        if column is None or not column.nullable:
            return 0
        return int(self.connection.execute(relation.null_count()).scalar_one())

    def _null_notes(
        self, relation: Relation, nulls: int, units: Sequence[WorkUnit], committed: Sequence[Range]
    ) -> list[str]:
        return null_notes(self._options.nulls, nulls, relation.cursor_column, units, is_first=not committed)

    def _reading_notes(self, committed: Sequence[Range], units: Sequence[WorkUnit]) -> list[str]:
        notes, database = [], self.tables.database
        if any(unit.size_bytes is not None for unit in units):
            notes.append(f"more than {MOST_COUNTED:,} rows, as PostgreSQL estimates; `count_rows: true` counts them.")
        if self._options.overlap and committed:
            key = ", ".join(self._options.primary_key)
            notes.append(
                f"{self._options.overlap} before the last watermark are read again; the newest row of ({key}) counts."
            )
        is_blind = not database.is_postgresql or (bool(self._options.query) and not self._cursor.is_time)
        is_open = self._options.horizon == "none" or is_blind or self.horizon.is_standby
        is_covered = self._options.lag or self._options.overlap or database.backend == "sqlite"
        if is_open and not is_covered:
            why = " (a standby does not know those of its primary)" if self.horizon.is_standby else ""
            notes.append(
                f"the run does not wait for open transactions{why}: rows that are committed late, below the "
                "watermark, are lost; set `lag` or `overlap`."
            )
        return notes

    def _units(
        self, urn: str, relation: Relation, ranges: Iterator[Range], committed: Sequence[Range]
    ) -> list[WorkUnit]:
        """Cut open ranges into work units, with their expected row counts."""
        counts = RowCounts(self.connection, relation, self._options.count_rows)
        opened = list(ranges)
        totals = counts.of(opened)
        parts = [
            part
            for (low, high), total in zip(opened, totals, strict=True)
            for part in self._options.cut.ranges(low, high, total.rows)
        ]
        columns = [column.to_read() for column in relation.columns]
        units: list[WorkUnit] = []
        for (low, high), expected in zip(parts, totals if parts == opened else counts.of(parts), strict=True):
            read: dict[str, Any] = {"columns": columns}
            if self._options.nulls == "include" and self._is_beginning(low, parts, committed):
                read["nulls"] = True
            if self._options.overlap and committed and low == committed[-1][1]:
                read["from"] = low - self._cursor.span(self._options.overlap)
            units.append(
                WorkUnit(
                    id=str(len(units)),
                    dataset_urn=urn,
                    low=self._cursor.mark(low),
                    expected_high=self._cursor.mark(high),
                    read=read,
                    rows=None if read.keys() & {"nulls", "from"} else expected.counted,
                    size_bytes=expected.size_bytes,
                )
            )
        return units

    @staticmethod
    def _is_beginning(low: int, parts: Sequence[Range], committed: Sequence[Range]) -> bool:
        """Return True for the dataset's first work unit, including a retry of it."""
        if not committed:
            return low == parts[0][0]
        return committed[0] == (low, low)

    def _origin(self, relation: Relation) -> Mapping[str, str]:
        knows_zone = relation.cursor_column and self._cursor.is_time and relation.knows_zone
        return column_origin(relation.cursor_column, has_zone=relation.has_zone if knows_zone else None)

    def _state_problem(self, state: DatasetState | None) -> str:
        if state is None or state.committed.watermark_type is self._cursor.watermark_type:
            return ""
        return (
            f"its stored watermark is of type {state.committed.watermark_type.type_name!r}, the job asks for "
            f"{self._cursor.kind.value!r}; give the job another name, or its former type again."
        )

    def _error(self, problem: str) -> SourceError:
        return SourceError(job=self.tables.database.job, problem=problem)
