"""QuerySource: tables of a SQL database, or one query, read in order of a watermark column."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from gobblin_dagster.constructs.extractors.query import QueryExtractor
from gobblin_dagster.constructs.sources.query_cursor import CursorType
from gobblin_dagster.constructs.sources.query_database import Database, Table
from gobblin_dagster.constructs.sources.query_horizon import MARGIN_S, Settled, oldest_transaction, settle
from gobblin_dagster.constructs.sources.query_options import QueryOptions
from gobblin_dagster.constructs.sources.query_plan import Cut, Range, open_ranges
from gobblin_dagster.constructs.sources.query_sql import Relation
from gobblin_dagster.core.constructs import ConstructContext, DatasetOffer, Extractor, SourceContext
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import SourceError, UsageError
from gobblin_dagster.core.extract import Extract, ExtractType
from gobblin_dagster.core.watermark import CommittedRanges
from gobblin_dagster.core.work_unit import WorkUnit

_NOTHING = -(1 << 63)
"""Before every position."""


@dataclass(frozen=True, slots=True)
class _Horizon:
    """How far the database is settled, looked at before anything is counted."""

    now: datetime
    """By the database's clock where it has one."""
    oldest: datetime | None = None
    """Beginning of the oldest open transaction; None where nobody asked."""
    settled: Mapping[str, Settled] = field(default_factory=dict)
    """By urn, for tables with a `long` cursor."""


class QuerySource:
    """Reads tables of a SQL database; each is a dataset, and what lies at or after its last high watermark is new.

    The high watermark is the step after the highest value, found together with the counts in one snapshot of the
    database, and every read is bounded by it: rows that come later are the next run's.

    Source: gobblin-core `QueryBasedSource`, `QueryBasedExtractor`, `Partitioner`. Differs: ranges are half-open; open
    transactions are waited for; a failed range is read again alone.
    """

    Options = QueryOptions

    def __init__(self, options: QueryOptions, context: ConstructContext) -> None:
        self._options = options
        self._context = context
        self._cursor = options.cursor
        span = self._cursor.span
        self._lag = span(options.lag) if options.lag else 0
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
        tables = self._tables(database, context)
        horizon = self._horizon(database, tables, context)
        yield from self._gone(tables, context)
        with database.snapshot() as connection:
            for urn, table in sorted(tables.items()):
                yield self._offer(database, connection, urn, table, context.states.get(urn), horizon)

    def extractor(self, unit: WorkUnit) -> Extractor:
        return QueryExtractor(unit, self._database(), self._options, self._context)

    def count_rows(self, dataset_urn: str, ranges: CommittedRanges) -> int | None:
        if self._overlap or self._options.nulls == "include":
            return None  # rows were read that no committed range holds
        if ranges.watermark_type is not self._cursor.watermark_type:
            return None
        steps = self._steps(ranges)
        database = self._database()
        schema, _, name = dataset_urn.partition(".")
        table = (
            self._query_table(database, dataset_urn)
            if self._options.query
            else database.tables([schema], [name]).get(dataset_urn)
        )
        if table is None or table.problem or not steps:
            return None if steps else 0
        relation = self._relation(database, table)
        with database.snapshot() as connection:
            return sum(int(number or 0) for number in connection.execute(relation.counts(steps)).one())

    # -- what there is -------------------------------------------------------------------------------------------------
    def _database(self) -> Database:
        return Database(self._options.url.get_secret_value(), self._context.base_dir, self._context.job)

    def _check_extract(self, extract: Extract) -> None:
        if extract.type is ExtractType.SNAPSHOT_ONLY:
            raise UsageError(
                problem=f"Job {self._context.job!r}: `extract.type: snapshot_only` needs a publisher that replaces what is "
                "published, and there is none yet.",
                hint="Use `append_only`, or `snapshot_append` with a column that moves with each change.",
            )
        if self._overlap and extract.type is not ExtractType.SNAPSHOT_APPEND:
            raise UsageError(
                problem=f"Job {self._context.job!r}: `overlap` reads rows twice, and `extract.type: {extract.type}` would "
                "publish them twice.",
                hint="Use `snapshot_append`, where the newest row of a primary key counts.",
            )

    def _tables(self, database: Database, context: SourceContext) -> dict[str, Table]:
        """Return the selected datasets by urn; what cannot be read has a `problem`."""
        if self._options.query:
            urn = f"{context.extract.namespace}.{context.extract.table}"
            return {urn: self._query_table(database, urn)} if context.is_selected(urn) else {}
        found, missing = self._find(database)
        tables = {urn: self._checked(table) for urn, table in (found | missing).items() if context.is_selected(urn)}
        if not found and not missing and not context.states:
            there = sorted(database.tables(None))
            raise self._error(f"no table of database {database.shown} matches; it has {_some(there)}.")
        return tables

    def _find(self, database: Database) -> tuple[dict[str, Table], dict[str, Table]]:
        """Return the tables that are there, and those that are named and are not."""
        default = database.default_schema()
        names = [name if "." in name else f"{default}.{name}" for name in self._options.tables]
        names = [name for name in names if not self._is_excluded(name)]
        if self._options.include:
            there = database.tables(None)
        else:
            there = database.tables(sorted({_split(urn)[0] for urn in names}), [_split(urn)[1] for urn in names])
        found = {
            urn: table
            for urn, table in there.items()
            if urn in names
            or (any(re.fullmatch(regex, urn) for regex in self._options.include) and not self._is_excluded(urn))
        }
        absent = [urn for urn in names if urn not in found]
        if not absent:
            return found, {}
        others = _some(sorted(database.tables(None)))
        problem = f"there is no such table in database {database.shown}; it has {others}."
        return found, {urn: Table(*_split(urn), problem=f"table {urn}: {problem}") for urn in absent}

    def _gone(self, tables: Mapping[str, Table], context: SourceContext) -> Iterator[DatasetOffer]:
        """Offer nothing of tables that were read, would be read again, and are not there any more."""
        for urn, state in context.states.items():
            wanted = any(re.fullmatch(regex, urn) for regex in self._options.include) and not self._is_excluded(urn)
            if wanted and urn not in tables and context.is_selected(urn):
                note = f"the table is not there any more; it is committed up to {state.watermark}."
                yield DatasetOffer(urn, state.watermark, state.watermark, notes=[note])

    def _is_excluded(self, urn: str) -> bool:
        return any(re.fullmatch(regex, urn) for regex in self._options.exclude)

    def _query_table(self, database: Database, urn: str) -> Table:
        """Return the query as a table, with the columns that it delivers."""
        schema, name = _split(urn)
        try:
            columns = database.query_columns(self._options.query)
        except SourceError as error:
            return Table(schema, name, problem=error.problem)
        return self._checked(Table(schema, name, columns))

    def _checked(self, table: Table) -> Table:
        """Return the table with the columns to read; a column that is not there is its problem."""
        if table.problem:
            return table
        wanted = (self._options.watermark.column, *self._options.primary_key)
        absent = [name for name in wanted if table.column(name) is None]
        if absent:
            there = ", ".join(column.name for column in table.columns)
            problem = f"{table.urn} has no column {', '.join(absent)}; it has {there}."
            return Table(table.schema, table.name, table.columns, problem)
        left_out = set(self._options.exclude_columns) - set(wanted)
        return Table(table.schema, table.name, tuple(c for c in table.columns if c.name not in left_out))

    def _relation(self, database: Database, table: Table) -> Relation:
        return Relation(
            schema=table.schema,
            table="" if self._options.query else table.name,
            query=self._options.query,
            columns=table.columns,
            cursor_column=self._options.watermark.column,
            cursor=self._cursor,
            is_sqlite=database.backend == "sqlite",
        )

    # -- how far it is settled -----------------------------------------------------------------------------------------
    def _horizon(self, database: Database, tables: Mapping[str, Table], context: SourceContext) -> _Horizon:
        """Look at open transactions; must come before the snapshot that is planned from."""
        if not database.is_postgresql:
            return _Horizon(context.clock.now())
        with database.session() as session:
            now = session.execute(sa.select(sa.func.clock_timestamp())).scalar_one().astimezone(UTC)
        if self._options.horizon == "none":
            return _Horizon(now)
        if self._cursor.is_time:
            return _Horizon(now, oldest=oldest_transaction(database))
        if self._options.query:
            return _Horizon(now)
        readable = {urn: table for urn, table in tables.items() if not table.problem}
        queries = {urn: self._relation(database, table).highest() for urn, table in readable.items()}
        names = {urn: (table.schema, table.name) for urn, table in readable.items()}
        return _Horizon(now, settled=settle(database, names, queries, self._options.horizon_wait_s))

    def _caps(self, relation: Relation, urn: str, after: int, horizon: _Horizon) -> list[tuple[int, str]]:
        """Return exclusive bounds of what may be read, with the reason of each; `after` is the end of what is there."""
        options, cursor, zone = self._options, self._cursor, self._options.zone
        caps: list[tuple[int, str]] = []
        if options.end is not None:
            caps.append((cursor.parse(options.end), "`end`"))
        if not cursor.is_time:
            caps.append((after - self._lag, f"`lag: {options.lag}`"))
            settled = horizon.settled.get(urn)
            if settled is not None and settled.highest is not None:
                caps.append((cursor.step(settled.highest) + 1, "rows came meanwhile"))
            if settled is not None and settled.open_writers:
                caps.append((_NOTHING, f"{settled.open_writers} transaction(s) that write to it are still open"))
            return caps
        default = {CursorType.DATE: "CURRENTDATE-1", CursorType.HOUR: "CURRENTHOUR-1"}.get(cursor.kind)
        limit = options.max_watermark or default
        if limit is not None:
            caps.append((cursor.limit(limit, horizon.now, zone, relation.has_zone), f"`max_watermark: {limit}`"))
        now = cursor.floor(horizon.now, zone, relation.has_zone)
        if self._lag:
            caps.append((now - self._lag, f"`lag: {options.lag}`"))
        if horizon.oldest is not None:
            oldest = cursor.floor(horizon.oldest - timedelta(seconds=MARGIN_S), zone, relation.has_zone)
            caps.append((oldest, f"a transaction is open since {horizon.oldest:%Y-%m-%d %H:%M:%SZ}"))
        return caps

    # -- the offer -----------------------------------------------------------------------------------------------------
    def _offer(
        self,
        database: Database,
        connection: sa.Connection,
        urn: str,
        table: Table,
        state: DatasetState | None,
        horizon: _Horizon,
    ) -> DatasetOffer:
        problem = table.problem or self._state_problem(state)
        if problem:
            return DatasetOffer(urn, None, None, problem=str(self._error(problem)))
        relation = self._relation(database, table)
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
        notes = self._null_notes(nulls, relation, state)
        if highest is None:
            return DatasetOffer(urn, mark, mark, notes=notes)
        try:
            first, after = self._cursor.step(lowest), self._cursor.step(highest) + 1
        except (ValueError, TypeError, OverflowError) as error:
            problem = f"{urn}, watermark column {relation.cursor_column} of type `{self._cursor.kind}`: {error}."
            return DatasetOffer(urn, mark, None, problem=str(self._error(problem)))
        high, why = min([(after, ""), *self._caps(relation, urn, after, horizon)])
        if why and high < after and not any(low < after <= end for low, end in committed):
            shown = self._cursor.mark(max(high, committed[-1][1] if committed else first))
            notes.append(f"from {shown} on, rows are left for a later run: {why}.")
        start = self._cursor.parse(self._options.start) if self._options.start is not None else None
        units = self._units(connection, relation, urn, open_ranges(committed, first, high, start), committed)
        if not units:
            return DatasetOffer(urn, mark, mark, notes=notes)
        notes += self._reading_notes(database, committed)
        return DatasetOffer(urn, units[0].low, units[-1].expected_high, units, notes=notes)

    def _count_nulls(self, connection: sa.Connection, relation: Relation, table: Table) -> int:
        column = table.column(relation.cursor_column)
        if column is None or not column.nullable:
            return 0
        return int(connection.execute(relation.null_count()).scalar_one())

    def _null_notes(self, nulls: int, relation: Relation, state: DatasetState | None) -> list[str]:
        if not nulls:
            return []
        what = f"{nulls} row(s) have NULL in {relation.cursor_column}"
        if self._options.nulls == "exclude":
            return [f"{what} and are not read (`nulls: exclude`)."]
        if state is None:
            return [f"{what} and are read now, once (`nulls: include`)."]
        return [f"{what}; those that came after the first read are not read (`nulls: include` reads them once)."]

    def _reading_notes(self, database: Database, committed: Sequence[Range]) -> list[str]:
        notes = []
        if self._overlap and committed:
            key = ", ".join(self._options.primary_key)
            notes.append(
                f"{self._options.overlap} before the last watermark are read again; the newest row of ({key}) counts."
            )
        blind = not database.is_postgresql or (bool(self._options.query) and not self._cursor.is_time)
        if (self._options.horizon == "none" or blind) and not self._lag and database.backend != "sqlite":
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
        """Cut open ranges into work units and count their rows."""
        opened = list(ranges)
        totals = self._counted(connection, relation, opened)
        parts = [
            part for (low, high), rows in zip(opened, totals, strict=True) for part in self._cut.ranges(low, high, rows)
        ]
        counts = totals if parts == opened else self._counted(connection, relation, parts)
        columns = [{"name": c.name, "type": c.type, "as_text": c.as_text} for c in relation.columns]
        units: list[WorkUnit] = []
        for (low, high), rows in zip(parts, counts, strict=True):
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
                    rows=None if read.keys() & {"nulls", "from"} else rows,
                )
            )
        return units

    def _counted(self, connection: sa.Connection, relation: Relation, ranges: Sequence[Range]) -> list[int | None]:
        if not ranges or not self._options.count_rows:
            return [None] * len(ranges)
        return [int(number or 0) for number in connection.execute(relation.counts(ranges)).one()]

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


def _split(urn: str) -> tuple[str, str]:
    schema, _, name = urn.partition(".")
    return schema, name


def _some(names: Sequence[str]) -> str:
    """Name a few of many."""
    if not names:
        return "none"
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more
