"""QuerySource: read tables of a SQL database, or one query, in order of a watermark column."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from gobblin_dagster.constructs.clients.sql import parse_url, server_tables, table_place
from gobblin_dagster.constructs.sources.incremental.cursor import Present, require_reached
from gobblin_dagster.constructs.sources.incremental.options import held_back
from gobblin_dagster.constructs.sources.incremental.ranges import committed_steps
from gobblin_dagster.constructs.sources.query.database import Database, Table
from gobblin_dagster.constructs.sources.query.extractor import QueryExtractor, columns_of
from gobblin_dagster.constructs.sources.query.options import QueryOptions
from gobblin_dagster.constructs.sources.query.planner import Offers
from gobblin_dagster.constructs.sources.query.relation import Relation, schema_of
from gobblin_dagster.constructs.sources.query.tables import Tables
from gobblin_dagster.constructs.sources.query.upper_bound import NOTHING, caps, look
from gobblin_dagster.constructs.sources.query.wait_limits import WaitLimits
from gobblin_dagster.core.constructs import ConstructContext, DatasetOffer, Extractor, SourceContext
from gobblin_dagster.core.errors import StartpointError, UsageError
from gobblin_dagster.core.extract import Extract, ExtractType
from gobblin_dagster.core.same_place import is_same_place
from gobblin_dagster.core.startpoint import Oldest, Timestamp, Upcoming
from gobblin_dagster.core.watermark import Watermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.core.work_unit import WorkUnit


class QuerySource:
    """Read tables of a SQL database. Each table is a dataset; rows at or after its last high watermark are new.

    The high watermark is the step after the highest value. It is found, together with the row counts, in one snapshot
    of the database, and bounds every read: rows that come later are read by the next run.

    Source: gobblin-core `QueryBasedSource`, `QueryBasedExtractor`, `Partitioner`. Differs: ranges are half-open; the
    source waits for open transactions; a failed range is read again alone.
    """

    full_extract = "start_over"
    identity = ("url",)

    @property
    def holds_back(self) -> str:
        """Why rows that exist may not be read."""
        columns = (one.watermark.column for one in self._options.all_kinds() if one.watermark is not None)
        return next(map(held_back, columns), "")

    Options = QueryOptions

    def __init__(self, options: QueryOptions, context: ConstructContext) -> None:
        self._options = options
        self._context = context
        self._cursor = options.cursor

    def plan(self, context: SourceContext) -> Iterator[DatasetOffer]:
        self.check_extract(context.extract)
        database = self._database()
        tables = Tables(self._options, database)
        datasets = tables.selected(context)
        horizon = look(tables, datasets, context.clock.now())
        yield from tables.gone(datasets, context)
        with database.snapshot() as connection:
            database.limits.apply(connection)
            for urn, table in sorted(datasets.items()):
                of_table = tables if table.problem else tables.of(urn)
                yield Offers(of_table, connection, horizon).of(table, context.states.get(urn))

    def resolve_startpoint(
        self, dataset_urn: str, position: Watermark | Timestamp | Oldest | Upcoming, context: SourceContext
    ) -> Watermark | None:
        if isinstance(position, Oldest):
            return None
        if self._options.table_options:
            return self._of_table(dataset_urn).resolve_startpoint(dataset_urn, position, context)
        database = self._database()
        tables = Tables(self._options, database)
        table = tables.one(dataset_urn)
        try:
            if table is None or table.problem:
                raise ValueError(table.problem.rstrip(".") if table is not None else "there is no such table")
            relation = tables.relation(table)
            if not relation.cursor_column:
                raise ValueError("it has no watermark column, and so no positions")
            now = context.clock.now()
            if isinstance(position, Upcoming):
                return self._mark_behind(database, tables, table, relation, now)
            if isinstance(position, Timestamp):
                return self._mark_at(position.instant, relation, now)
            self._require_reached(position, database, tables, table, relation, now)
            return position
        except (ValueError, TypeError, OverflowError) as error:
            raise StartpointError(dataset_urn=dataset_urn, startpoint=str(position), problem=str(error)) from error

    def _mark_at(self, instant: datetime, relation: Relation, now: datetime) -> Watermark:
        if not self._cursor.is_time:
            raise ValueError(f"the watermark column {relation.cursor_column} holds no times")
        # Instants in the future become the end: no row that comes before them may be skipped.
        lowest = self._cursor.lowest_from(min(instant, now), self._options.zone, relation.has_zone)
        return self._cursor.mark(min(lowest, self._present(relation, now).settled))

    def _present(self, relation: Relation, now: datetime) -> Present:
        lag = self._cursor.span(self._options.lag) if self._options.lag else 0
        return Present(self._cursor.floor(now, self._options.zone, relation.has_zone), lag)

    def _require_reached(
        self, mark: Watermark, database: Database, tables: Tables, table: Table, relation: Relation, now: datetime
    ) -> None:
        if type(mark) is not self._cursor.watermark_type:
            return  # the engine says so, and which type it expects
        highest = self._highest(database, table, relation)
        after = None if highest is None else self._cursor.step(highest) + 1

        def ends() -> Iterator[int]:
            horizon = look(tables, {table.urn: table}, now)
            yield from (end for end, _ in caps(self._options, relation, table.urn, after or 0, horizon))

        require_reached(self._cursor, mark, after, self._present(relation, now) if self._cursor.is_time else None, ends)

    @staticmethod
    def _highest(database: Database, table: Table, relation: Relation) -> Any:
        with database.snapshot() as connection, database.errors(f"{table.urn}: ", of_table=table.name):
            database.limits.apply(connection)
            return connection.execute(relation.highest()).scalar_one()

    def _mark_behind(
        self, database: Database, tables: Tables, table: Table, relation: Relation, now: datetime
    ) -> Watermark:
        """Return the end of the rows that are settled: rows of open transactions come after it."""
        horizon = look(tables, {table.urn: table}, now)
        highest = self._highest(database, table, relation)
        if highest is None:
            raise ValueError("the table has no rows, and so no end yet; `oldest` reads all rows that come")
        after = self._cursor.step(highest) + 1
        end, why = min([(after, ""), *caps(self._options, relation, table.urn, after, horizon)])
        if end <= NOTHING:
            raise ValueError(f"its end is not known now: {why}")
        return self._cursor.mark(end)

    def extractor(self, unit: WorkUnit) -> Extractor:
        return QueryExtractor(unit, self._database(), self._options.of_table(unit.dataset_urn), self._context)

    def preview_schema(self, unit: WorkUnit) -> pa.Schema:
        return schema_of(columns_of(unit))

    def tells_positions(self) -> bool:
        """Return True: rows are read in order of the watermark column if the run asks for it."""
        return True

    def count_rows(self, dataset_urn: str, ranges: CommittedRanges) -> int | None:
        if self._options.table_options:
            return self._of_table(dataset_urn).count_rows(dataset_urn, ranges)
        if self._options.overlap or self._options.nulls == "include":
            return None  # some rows read are in no committed range
        if ranges.watermark_type is not self._cursor.watermark_type:
            return None
        steps = committed_steps(ranges, self._cursor)
        database = self._database()
        tables = Tables(self._options, database)
        table = tables.one(dataset_urn)
        if table is None or table.problem or not steps:
            return None if steps else 0
        relation = tables.relation(table)
        if not relation.cursor_column:
            return None  # nobody knows which rows there were
        with database.snapshot() as connection:
            return sum(int(number or 0) for number in connection.execute(relation.counts(steps)).one())

    # -- what there is -------------------------------------------------------------------------------------------------
    def _of_table(self, urn: str) -> QuerySource:
        return QuerySource(self._options.of_table(urn), self._context)

    def would_read(self, path: str) -> bool:
        options = self._options
        try:
            url = parse_url(options.url.get_secret_value(), self._context.base_dir)
        except ValueError:
            return False  # the plan says so
        table = path.rpartition("#")[2]
        place = table_place(url, table)
        if options.query or not is_same_place(place, path):
            return False
        is_named = any(is_same_place(place, table_place(url, name)) for name in options.tables)
        flags = re.IGNORECASE if url.get_backend_name() == "sqlite" else re.NOFLAG  # which has names as they were made
        if not is_named and not any(re.fullmatch(one, table, flags) for one in options.include):
            return False
        return not any(re.fullmatch(one, table, flags) for one in options.exclude)

    def server_tables(self, datasets: Collection[str]) -> Mapping[str, Collection[str]]:
        if self._options.query:
            return {}
        with self._database().snapshot() as connection:
            return server_tables(connection, {urn: urn for urn in datasets}, is_read=True)

    def named_datasets(self) -> Sequence[str]:
        return ()

    def _database(self) -> Database:
        limits = WaitLimits(self._options.lock_wait_s, self._options.plan_timeout_s)
        return Database(self._options.url.get_secret_value(), self._context.base_dir, self._context.job, limits)

    def check_extract(self, extract: Extract) -> None:
        kinds = self._options.all_kinds()
        if any(one.without_watermark == "full" for one in kinds) and not extract.is_full:
            raise UsageError(
                problem=f"Job {self._context.job!r}: `without_watermark: full` reads tables whole in each run, and "
                f"`extract.type: {extract.type}` would publish their rows again each time.",
                hint="Use `snapshot_only`, which replaces what was published, in a job of their own; or `leave_out`.",
            )
        if any(one.overlap for one in kinds) and extract.type is not ExtractType.SNAPSHOT_APPEND:
            raise UsageError(
                problem=f"Job {self._context.job!r}: `overlap` reads rows twice, and `extract.type: {extract.type}` "
                "would publish them twice.",
                hint="Use `snapshot_append`: its readers keep the newest row of a primary key.",
            )
