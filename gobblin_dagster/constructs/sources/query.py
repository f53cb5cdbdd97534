"""QuerySource: tables of a SQL database, or one query, read in order of a watermark column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from gobblin_dagster.constructs.extractors.query import QueryExtractor, columns_of
from gobblin_dagster.constructs.sources.query_caps import NOTHING, Horizon, caps, look
from gobblin_dagster.constructs.sources.query_counts import MOST_COUNTED, RowCounts
from gobblin_dagster.constructs.sources.query_database import Database, Table
from gobblin_dagster.constructs.sources.query_options import QueryOptions
from gobblin_dagster.constructs.sources.query_plan import Cut, Range, open_ranges
from gobblin_dagster.constructs.sources.query_sql import Relation, schema_of
from gobblin_dagster.constructs.sources.query_tables import Tables
from gobblin_dagster.core.constructs import ConstructContext, DatasetOffer, Extractor, SourceContext
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import SourceError, StartpointError, UsageError
from gobblin_dagster.core.extract import Extract, ExtractType
from gobblin_dagster.core.startpoint import Oldest, Timestamp, Upcoming
from gobblin_dagster.core.watermark import CommittedRanges, Watermark
from gobblin_dagster.core.work_unit import WorkUnit


class QuerySource:
    """Reads tables of a SQL database; each is a dataset, and what lies at or after its last high watermark is new.

    The high watermark is the step after the highest value, found together with the counts in one snapshot of the
    database, and every read is bounded by it: rows that come later are the next run's.

    Source: gobblin-core `QueryBasedSource`, `QueryBasedExtractor`, `Partitioner`. Differs: ranges are half-open; open
    transactions are waited for; a failed range is read again alone.
    """

    full_extract = "start_over"

    Options = QueryOptions

    def __init__(self, options: QueryOptions, context: ConstructContext) -> None:
        self._options = options
        self._context = context
        self._cursor = options.cursor
        span = self._cursor.span
        self._overlap = span(options.overlap) if options.overlap else 0
        self._cut = Cut(
            interval=span(options.partition_interval) if options.partition_interval is not None else None,
            points=tuple(sorted({self._cursor.parse(point) for point in options.split_points})),
            max_partitions=options.max_partitions,
            rows_per_unit=options.rows_per_work_unit,
        )

    def plan(self, context: SourceContext) -> Iterator[DatasetOffer]:
        self._check_extract(context.extract)
        database = self._database()
        tables = Tables(self._options, database)
        datasets = tables.selected(context)
        horizon = look(tables, datasets, context.clock.now())
        yield from tables.gone(datasets, context)
        with database.snapshot() as connection:
            for urn, table in sorted(datasets.items()):
                relation = tables.relation(table)
                yield self._isolated(database, connection, relation, urn, table, context.states.get(urn), horizon)

    def resolve_startpoint(
        self, dataset_urn: str, position: Watermark | Timestamp | Oldest | Upcoming, context: SourceContext
    ) -> Watermark | None:
        if isinstance(position, Watermark):
            return position
        if isinstance(position, Oldest):
            return None
        database = self._database()
        tables = Tables(self._options, database)
        table = tables.one(dataset_urn)
        try:
            if table is None or table.problem:
                raise ValueError(table.problem.rstrip(".") if table is not None else "there is no such table")
            relation = tables.relation(table)
            if isinstance(position, Timestamp):
                return self._mark_at(position.instant, relation)
            return self._mark_behind(database, tables, table, relation, context.clock.now())
        except (ValueError, TypeError, OverflowError) as error:
            raise StartpointError(dataset_urn=dataset_urn, startpoint=str(position), problem=str(error)) from error

    def _mark_at(self, instant: datetime, relation: Relation) -> Watermark:
        if not self._cursor.is_time:
            raise ValueError(f"the watermark column {relation.cursor_column} tells no time")
        return self._cursor.mark(self._cursor.floor(instant, self._options.zone, relation.has_zone))

    def _mark_behind(
        self, database: Database, tables: Tables, table: Table, relation: Relation, now: datetime
    ) -> Watermark:
        """Return the end of what is there and settled: rows of transactions that are still open come after it."""
        horizon = look(tables, {table.urn: table}, now)
        with database.snapshot() as connection, database.errors(f"{table.urn}: "):
            highest = connection.execute(relation.highest()).scalar_one()
        if highest is None:
            raise ValueError("there are no rows yet whose end it could be; `oldest` reads all that come")
        after = self._cursor.step(highest) + 1
        end, why = min([(after, ""), *caps(self._options, relation, table.urn, after, horizon)])
        if end <= NOTHING:
            raise ValueError(f"its end is not known now: {why}")
        return self._cursor.mark(end)

    def extractor(self, unit: WorkUnit) -> Extractor:
        return QueryExtractor(unit, self._database(), self._options, self._context)

    def foresee_schema(self, unit: WorkUnit) -> pa.Schema:
        return schema_of(columns_of(unit))

    def tells_positions(self) -> bool:
        """Rows are read in order of the watermark column where that is asked for."""
        return True

    def count_rows(self, dataset_urn: str, ranges: CommittedRanges) -> int | None:
        if self._overlap or self._options.nulls == "include":
            return None  # rows were read that no committed range holds
        if ranges.watermark_type is not self._cursor.watermark_type:
            return None
        steps = self._steps(ranges)
        database = self._database()
        tables = Tables(self._options, database)
        table = tables.one(dataset_urn)
        if table is None or table.problem or not steps:
            return None if steps else 0
        relation = tables.relation(table)
        with database.snapshot() as connection:
            return sum(int(number or 0) for number in connection.execute(relation.counts(steps)).one())

    # -- what there is -------------------------------------------------------------------------------------------------
    def _database(self) -> Database:
        return Database(self._options.url.get_secret_value(), self._context.base_dir, self._context.job)

    def _check_extract(self, extract: Extract) -> None:
        if self._overlap and extract.type is not ExtractType.SNAPSHOT_APPEND:
            raise UsageError(
                problem=f"Job {self._context.job!r}: `overlap` reads rows twice, and `extract.type: {extract.type}` would "
                "publish them twice.",
                hint="Use `snapshot_append`, where the newest row of a primary key counts.",
            )

    # -- one dataset ---------------------------------------------------------------------------------------------------
    def _isolated(
        self,
        database: Database,
        connection: sa.Connection,
        relation: Relation,
        urn: str,
        table: Table,
        state: DatasetState | None,
        horizon: Horizon,
    ) -> DatasetOffer:
        """Offer one dataset; what the database refuses of it (no permission) is its problem alone."""
        problem = table.problem or self._state_problem(state)
        if problem:
            return DatasetOffer(urn, None, None, problem=str(self._error(problem)))
        try:
            with database.errors(f"{urn}: "), connection.begin_nested():
                return self._offer(database, connection, relation, urn, table, state, horizon)
        except SourceError as error:
            return DatasetOffer(urn, None, None, problem=str(error))

    def _offer(
        self,
        database: Database,
        connection: sa.Connection,
        relation: Relation,
        urn: str,
        table: Table,
        state: DatasetState | None,
        horizon: Horizon,
    ) -> DatasetOffer:
        committed = self._steps(state.committed) if state is not None else []
        mark = state.watermark if state is not None else None
        lowest, highest = connection.execute(relation.bounds()).one()
        nulls = self._count_nulls(connection, relation, table)
        if nulls and self._options.nulls == "fail":
            problem = (
                f"{urn}: {nulls} row(s) have NULL in the watermark column {relation.cursor_column}; "
                "set `nulls: exclude` or `nulls: include`."
            )
            return DatasetOffer(urn, mark, None, problem=str(self._error(problem)))
        notes = self._null_notes(nulls, relation, committed)
        if highest is None:
            return DatasetOffer(urn, mark, mark, notes=notes)
        try:
            first, after = self._cursor.step(lowest), self._cursor.step(highest) + 1
            high, why = min([(after, ""), *caps(self._options, relation, urn, after, horizon)])
            self._cursor.mark(high)  # there is nothing after 'infinity'
        except (ValueError, TypeError, OverflowError) as error:
            problem = f"{urn}, watermark column {relation.cursor_column} of type `{self._cursor.kind}`: {error}."
            return DatasetOffer(urn, mark, None, problem=str(self._error(problem)))
        if why and high < after and not any(low < after <= end for low, end in committed):
            shown = self._cursor.mark(max(high, committed[-1][1] if committed else first))
            notes.append(f"from {shown} on, rows are left for a later run: {why}.")
        start = self._cursor.parse(self._options.start) if self._options.start is not None else None
        units = self._units(connection, relation, urn, open_ranges(committed, first, high, start), committed)
        if not units:
            return DatasetOffer(urn, mark, mark, notes=notes)
        notes += self._reading_notes(database, committed, units)
        return DatasetOffer(urn, units[0].low, units[-1].expected_high, units, notes=notes)

    def _count_nulls(self, connection: sa.Connection, relation: Relation, table: Table) -> int:
        column = table.column(relation.cursor_column)
        if column is None or not column.nullable:
            return 0
        return int(connection.execute(relation.null_count()).scalar_one())

    def _null_notes(self, nulls: int, relation: Relation, committed: Sequence[Range]) -> list[str]:
        if not nulls:
            return []
        what = f"{nulls} row(s) have NULL in {relation.cursor_column}"
        if self._options.nulls == "exclude":
            return [f"{what} and are not read (`nulls: exclude`)."]
        if not committed:
            return [f"{what} and are read now, once (`nulls: include`)."]
        return [f"{what}; those that came after the first read are not read (`nulls: include` reads them once)."]

    def _reading_notes(self, database: Database, committed: Sequence[Range], units: Sequence[WorkUnit]) -> list[str]:
        notes = []
        if any(unit.size_bytes is not None for unit in units):
            notes.append(f"more than {MOST_COUNTED:,} rows, as PostgreSQL estimates; `count_rows: true` counts them.")
        if self._overlap and committed:
            key = ", ".join(self._options.primary_key)
            notes.append(
                f"{self._options.overlap} before the last watermark are read again; the newest row of ({key}) counts."
            )
        blind = not database.is_postgresql or (bool(self._options.query) and not self._cursor.is_time)
        if (self._options.horizon == "none" or blind) and not self._options.lag and database.backend != "sqlite":
            notes.append(
                "open transactions are not waited for: rows that are committed late, below the watermark, are lost; set `lag`."
            )
        return notes

    def _units(
        self,
        connection: sa.Connection,
        relation: Relation,
        urn: str,
        ranges: Iterator[Range],
        committed: Sequence[Range],
    ) -> list[WorkUnit]:
        """Cut open ranges into work units and tell what they hold."""
        counts = RowCounts(connection, relation, self._options.count_rows)
        opened = list(ranges)
        totals = counts.of(opened)
        parts = [
            part
            for (low, high), total in zip(opened, totals, strict=True)
            for part in self._cut.ranges(low, high, total.rows)
        ]
        columns = [{"name": c.name, "type": c.type, "as_text": c.as_text} for c in relation.columns]
        units: list[WorkUnit] = []
        for (low, high), expected in zip(parts, totals if parts == opened else counts.of(parts), strict=True):
            read: dict[str, Any] = {"columns": columns}
            if self._options.nulls == "include" and self._is_beginning(low, parts, committed):
                read["nulls"] = True
            if self._overlap and committed and low == committed[-1][1]:
                read["from"] = low - self._overlap
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
        """Tell whether a work unit is the first one of its dataset ever, or that one again."""
        if not committed:
            return low == parts[0][0]
        return committed[0] == (low, low)

    def _steps(self, ranges: CommittedRanges) -> list[Range]:
        return [(self._cursor.step(low), self._cursor.step(high)) for low, high in ranges.ranges.get("", ())]

    def _state_problem(self, state: DatasetState | None) -> str:
        if state is None or state.committed.watermark_type is self._cursor.watermark_type:
            return ""
        return (
            f"its stored watermark is of type {state.committed.watermark_type.type_name!r}, the job asks for "
            f"{self._cursor.kind.value!r}; give the job another name, or its former type."
        )

    def _error(self, problem: str) -> SourceError:
        return SourceError(job=self._context.job, problem=problem)
