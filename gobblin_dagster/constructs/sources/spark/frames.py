"""DataFrames of the source `spark`, built from its options; Spark reads nothing before rows are asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from gobblin_dagster.constructs.decoders.left_out import LeftOutFields
from gobblin_dagster.constructs.records import load_object
from gobblin_dagster.constructs.sources.spark.options import DATASET, ReadOptions, SparkOptions
from gobblin_dagster.core.allow import EVERYTHING, AllowLists
from gobblin_dagster.core.errors import InvalidSpecError, SpecFault, UsageError

_STRICT = {
    "csv": {"mode": "FAILFAST", "enforceSchema": "false"},
    "json": {"mode": "FAILFAST"},
    "xml": {"mode": "FAILFAST"},
}
"""Options by format that hold unless the job sets others."""
_NAMED = re.compile("SubqueryAlias (.+)")
"""A table that a query or a view reads, as EXPLAIN writes it, or the query's own name for something."""
_LOOKED_AT = 100
"""Rows of JSON that are searched for fields without a column."""


@dataclass(frozen=True, slots=True)
class Frames:
    """Build the DataFrames of datasets, on a local session or one of Spark Connect."""

    options: SparkOptions
    base_dir: str
    job: str = ""
    """Name of the job, for messages."""
    allow: AllowLists = EVERYTHING

    def names(self, session: Any) -> list[str]:
        """Return the names of `datasets`; patterns are matched against the tables of the namespace."""
        if not self.options.has_globs:
            return list(self.options.datasets)
        namespace = self.options.table.removesuffix(f".{DATASET}")
        there = [str(row["tableName"]) for row in session.sql(f"show tables in {namespace}").collect()]
        matched = [name for name in there if any(fnmatchcase(name, glob) for glob in self.options.datasets)]
        listed = [name for name in self.options.datasets if not set("*?[") & set(name)]
        return sorted({*matched, *listed})

    def whole(self, session: Any, dataset: str, more: Mapping[str, Any] | None = None) -> Any:
        """Return all rows of a dataset; `more` has further options of its format."""
        if not self.options.query:
            return self._read(session, self.options, dataset, more or {})
        return self._queried(session, self.options.query, dataset)

    def left_out(self, session: Any, dataset: str) -> tuple[str, ...]:
        """Name fields of the first rows of JSON that `columns` does not declare: Spark drops them without a word."""
        read, texts = self.options, self._texts(self.options, dataset)
        if read.format.lower() != "json" or not (read.path and read.columns) or "multiline" in map(str.lower, texts):
            return ()
        columns = self._read(session, read, dataset, {}).schema.jsonValue()["fields"]
        found = LeftOutFields({field["name"]: _shape(field["type"]) for field in columns}, "the rows")
        lines = session.read.options(**texts).text(self._path(read, dataset))
        for line in lines.select("value").limit(_LOOKED_AT).collect():
            with suppress(ValueError):  # Spark names it when it reads the row
                found.add(json.loads(line[0]))
        return found.notes()

    def refresh(self, session: Any, dataset: str) -> None:
        """Let Spark look at the tables of catalogs again.

        A session remembers the files and snapshots of tables that it has read. One that stays for several plans would
        never see what others write: an Iceberg table is looked at again if it was not used for 30 seconds, a Parquet
        table never.
        """
        for name in dict.fromkeys(self._catalog_tables(session, dataset)):
            if session.catalog.tableExists(name):
                session.catalog.refreshTable(name)

    def metadata(self, session: Any, dataset: str, table: str) -> Any:
        """Return a metadata table (`snapshots`, `refs`) of an Iceberg table."""
        if self.options.table:
            return session.table(f"{self._table(self.options, dataset)}.{table}")
        return session.read.format("iceberg").load(f"{self._path(self.options, dataset)}#{table}")

    def sql_name(self, dataset: str) -> str:
        """Return the table's name in Spark SQL, also for a table that has only a path."""
        if self.options.table:
            return self._table(self.options, dataset)
        return f"{self.options.format}.{quoted(self._path(self.options, dataset))}"

    def converted(self, session: Any, frame: Any) -> Any:
        """Apply `sql`, `function` and `spark_partitions`; raises UsageError if the function returns no DataFrame."""
        if self.options.sql:
            frame = session.sql(self.options.sql, rows=frame)
        if self.options.function is not None:
            frame = load_object(self.options.function, "source 'spark'")(frame)
            if not hasattr(frame, "mapInArrow"):
                raise UsageError(
                    problem=f"source 'spark': {self.options.function} returned {type(frame).__name__}, "
                    "expected a DataFrame."
                )
        return frame if self.options.spark_partitions is None else frame.coalesce(self.options.spark_partitions)

    def _catalog_tables(self, session: Any, dataset: str) -> Iterator[str]:
        for read in (self.options, *self.options.views.values()):
            if read.table:
                yield self._table(read, dataset)
        if self.options.query:
            query = self.options.query.rstrip("; \t\r\n")
            # Nothing is read for it, and no file is listed: Spark knows that the result is empty.
            text = f"explain extended select * from (\n{query}\n) limit 0"  # noqa: S608 - it is the job's own query
            explained = self._queried(session, text, dataset)
            yield from _NAMED.findall(explained.collect()[0][0])

    def _queried(self, session: Any, query: str, dataset: str) -> Any:
        views = {name: self._read(session, view, dataset, {}) for name, view in self.options.views.items()}
        # Only with views does Spark read the text as a format string and replace `{name}` by a DataFrame.
        return session.sql(query.replace(DATASET, quoted(dataset)), **views)

    def _read(self, session: Any, read: ReadOptions, dataset: str, more: Mapping[str, Any]) -> Any:
        texts = self._texts(read, dataset)
        # By default, Spark makes NULL of values that do not fit, and assigns CSV columns by position. Make both errors.
        reader = session.read.options(**_STRICT.get(read.format.lower(), {})).options(**texts, **more)
        if read.table:
            return reader.table(self._table(read, dataset))
        reader = reader.format(read.format)
        if read.columns:
            reader = reader.schema(read.columns)
        frame = reader.load(self._path(read, dataset)) if read.path else reader.load()
        self._require_allowed(frame)
        return frame

    def _require_allowed(self, frame: Any) -> None:
        """Raise InvalidSpecError if a local file that Spark found lies outside of the allowed folders, by a link."""
        found = frame.inputFiles() if self.allow.paths is not None else ()
        problems = (self.allow.path_problem(file, self.base_dir) for file in found if file.startswith("file:"))
        if problem := next(filter(None, problems), ""):
            raise InvalidSpecError(file=f"Job {self.job!r}", faults=(SpecFault("source.path", problem),))

    @staticmethod
    def _texts(read: ReadOptions, dataset: str) -> dict[str, Any]:
        return {k: v.replace(DATASET, dataset) if isinstance(v, str) else v for k, v in read.options.items()}

    @staticmethod
    def _table(read: ReadOptions, dataset: str) -> str:
        return read.table.replace(DATASET, quoted(dataset))

    def _path(self, read: ReadOptions, dataset: str) -> str:
        path = read.path.replace(DATASET, dataset)
        return path if path.startswith("/") or "://" in path else f"{self.base_dir}/{path}"


def _shape(kind: Any) -> Any:
    """Return a type of Spark's JSON as a shape, of which only names of fields count."""
    match kind:
        case {"type": "struct", "fields": fields}:
            return {field["name"]: _shape(field["type"]) for field in fields}
        case {"type": "array", "elementType": item}:
            return [_shape(item)]
    return ""


def quoted(name: str) -> str:
    """Return a name quoted for Spark SQL; it may contain any character."""
    return "`" + name.replace("`", "``") + "`"
