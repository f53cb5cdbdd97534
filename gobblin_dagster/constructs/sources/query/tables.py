"""Find the tables of a database that are datasets, with the columns to read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gobblin_dagster.constructs.sources.query.database import Database, Table
from gobblin_dagster.constructs.sources.query.options import QueryOptions
from gobblin_dagster.constructs.sources.query.relation import Relation
from gobblin_dagster.constructs.sources.query.types import Column
from gobblin_dagster.core.constructs import DatasetOffer, SourceContext
from gobblin_dagster.core.errors import SourceError


@dataclass(frozen=True, slots=True)
class Tables:
    """Find the tables that the options name; a table that cannot be read has a `problem`."""

    options: QueryOptions
    database: Database

    def selected(self, context: SourceContext) -> dict[str, Table]:
        """Return the selected datasets by urn.

        Raises:
            SourceError: no table matches, and none was ever read.
        """
        if self.options.query:
            urn = f"{context.extract.namespace}.{context.extract.table}"
            return {urn: self._of_query(urn)} if context.is_selected(urn) else {}
        found, missing = self._find()
        if not found and not missing and not context.states:
            there = _some(sorted(self.database.tables(None)))
            problem = f"no table of database {self.database.shown} matches; it has {there}."
            raise SourceError(job=self.database.job, problem=problem)
        unknown = self._unknown_exclusions(found.values())
        chosen = {urn: table for urn, table in (found | missing).items() if context.is_selected(urn)}
        return {urn: replace(self._checked(table), notes=unknown) for urn, table in chosen.items()}

    def one(self, urn: str) -> Table | None:
        """Return one dataset; None if there is no such table."""
        if self.options.query:
            return self._of_query(urn)
        schema, name = _split(urn)
        table = self.database.tables([schema], [name]).get(urn)
        return self._checked(table) if table is not None else None

    def gone(self, tables: Mapping[str, Table], context: SourceContext) -> Iterator[DatasetOffer]:
        """Yield an offer without work for each table that was read before, is still included, and no longer exists."""
        for urn, state in context.states.items():
            if urn not in tables and self._is_included(urn) and context.is_selected(urn):
                note = f"the table is gone; it is committed up to {state.watermark}."
                yield DatasetOffer(urn, state.watermark, state.watermark, notes=[note], is_absent=True)

    def relation(self, table: Table) -> Relation:
        """Return the builder of the table's SQL statements."""
        options = self.options.of_table(table.urn)
        return Relation(
            schema=table.schema,
            table="" if options.query else table.name,
            query=options.query,
            columns=table.columns,
            cursor_column=options.cursor_column if table.column(options.cursor_column) is not None else "",
            cursor=options.cursor,
            backend=self.database.backend,
        )

    def of(self, urn: str) -> Tables:
        """Return the same with the options of one table only."""
        return Tables(self.options.of_table(urn), self.database)

    def _find(self) -> tuple[dict[str, Table], dict[str, Table]]:
        """Return the tables that exist, and those that `tables` names and that do not exist."""
        default = self.database.default_schema()
        names = [name if "." in name else f"{default}.{name}" for name in self.options.tables]
        names = [name for name in names if not self._is_excluded(name)]
        if self.options.include:
            there = self.database.tables(None)
        else:
            there = self.database.tables(sorted({_split(urn)[0] for urn in names}), [_split(urn)[1] for urn in names])
        found = {urn: table for urn, table in there.items() if urn in names or self._is_included(urn)}
        absent = [urn for urn in names if urn not in found]
        if not absent:
            return found, {}
        now = self.database.tables(None)
        found |= {urn: now[urn] for urn in absent if urn in now}  # somebody has just renamed another table to its name
        absent = [urn for urn in absent if urn not in now]
        others = _some(sorted(now))
        problem = f"there is no such table in database {self.database.shown}; it has {others}."
        pattern = " To name many tables, give a regular expression in `include`."
        return found, {
            urn: Table(*_split(urn), problem=f"table {urn}: {problem}{pattern if '*' in urn else ''}") for urn in absent
        }

    def _is_included(self, urn: str) -> bool:
        return any(re.fullmatch(regex, urn) for regex in self.options.include) and not self._is_excluded(urn)

    def _is_excluded(self, urn: str) -> bool:
        return any(re.fullmatch(regex, urn) for regex in self.options.exclude)

    def _of_query(self, urn: str) -> Table:
        """Return the query as a table with the columns of its result."""
        schema, name = _split(urn)
        try:
            columns = self.database.query_columns(self.options.query)
        except SourceError as error:
            return Table(schema, name, problem=error.problem)
        table = Table(schema, name, columns)
        return replace(self._checked(table), notes=self._unknown_exclusions([table]))

    def _unknown_exclusions(self, tables: Iterable[Table]) -> tuple[str, ...]:
        """Return a note on `exclude_columns` that no table has: a misspelt column would be published."""
        there = {column.name for table in tables for column in table.columns}
        named = dict.fromkeys(name for one in self.options.all_kinds() for name in one.exclude_columns)
        unknown = ", ".join(name for name in named if name not in there)
        return (f"`exclude_columns`: {unknown} is a column of no table.",) if unknown else ()

    def _checked(self, table: Table) -> Table:
        """Return the table with the columns to read, or with a problem if a needed column is missing."""
        if table.problem:
            return table
        if "." in table.schema and not self.options.query:
            problem = (
                f"the schema {table.schema} has a dot in its name, which ends the schema in dataset.urns; read it by a "
                "`query`."
            )
            return Table(table.schema, table.name, table.columns, problem)
        try:
            options = self.options.of_table(table.urn)
        except ValueError as error:
            return Table(table.schema, table.name, table.columns, f"{table.urn}, `table_options`: {error}.")
        wanted = (*filter(None, [options.cursor_column]), *options.primary_key)
        absent = [name for name in wanted if table.column(name) is None]
        is_without = not options.cursor_column or table.column(options.cursor_column) is None
        if is_without and options.without_watermark != "fail":
            absent = [name for name in absent if name != options.cursor_column]
        elif not options.cursor_column:
            problem = f"{table.urn} has no `watermark`; set one in `table_options`, or `without_watermark`."
            return Table(table.schema, table.name, table.columns, problem)
        if absent:
            there = ", ".join(column.name for column in table.columns) or "none"
            problem = f"{table.urn} has no column {', '.join(absent)}; it has {there}."
            return Table(table.schema, table.name, table.columns, problem)
        left_out = set(options.exclude_columns) - set(wanted)
        columns = [column for column in table.columns if column.name not in left_out]
        is_exact = options.types == "exact"
        read = tuple(one.exactly() if is_exact else one for one in columns)
        return Table(table.schema, table.name, read, _geometry_problem(table.urn, read))


def _geometry_problem(urn: str, columns: Iterable[Column]) -> str:
    places = [column.name for column in columns if column.is_geometry]
    if not places:
        return ""
    return (
        f"{urn}: column {', '.join(places)} holds geometries, which no CAST makes text. Leave it out by "
        f"`exclude_columns`, or read the table by a `query` that has ST_AsText({places[0]})."
    )


def _split(urn: str) -> tuple[str, str]:
    schema, _, name = urn.partition(".")
    return schema, name


def _some(names: Sequence[str]) -> str:
    """Return the first ten names, separated by commas, and the number of the others."""
    if not names:
        return "none"
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more
