"""Options of the source `spark`, checked when the job file is read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import Field, StringConstraints, model_validator

from gobblin_dagster.constructs.options.targets import Target
from gobblin_dagster.constructs.options.zones import ZoneName
from gobblin_dagster.constructs.sources.incremental.cursor import Cursor, CursorType
from gobblin_dagster.constructs.sources.incremental.options import Value, check_cursor_options
from gobblin_dagster.core.utils.duplicates import repeated
from gobblin_dagster.spec.job import SpecModel

DATASET = "{dataset}"
"""Placeholder for the dataset's name in `path`, `table`, `query` and options."""
GLOBS = frozenset("*?[")
"""Letters of patterns, in `datasets` and paths."""
ViewName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*$")]
_BEFORE_QUERY = re.compile(r"\A(\s|\(|--[^\n]*(\n|$)|/\*.*?\*/)*", re.DOTALL)
"""Text that may come before the first word of a query: blanks, brackets and comments."""
_QUERIES = ("select", "with", "from", "values", "table")
_WITH_COLUMN = ("start", "end", "max_watermark", "lag", "partition_interval", "partitions", "nulls")


class ReadOptions(SpecModel):
    """What Spark reads: a table, or files and other data by a format of `spark.read`."""

    format: str = ""
    """Name of a data source as `spark.read.format` takes it: `parquet`, `csv`, `json`, `orc`, `avro`, `jdbc`, `delta`,
    `iceberg`, `org.example.MyFormat`."""
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Options of the format, as its documentation names them. Take secrets from the environment: `${SHOP_PASSWORD}`."""
    columns: str = ""
    """Columns as SQL declares them, `id bigint, name string`, if the format does not know them."""
    path: str = ""
    """Path or URL that the format loads; relative to the project. Some formats need none, only `options`."""
    table: str = ""
    """Table of a catalog that Spark knows, `catalog.namespace.table`, instead of `format`."""

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        if self.table and (self.path or self.columns):
            raise ValueError("`table` takes no `path` and no `columns`: the catalog knows both")
        if (self.path or self.columns) and not self.format:
            raise ValueError("`path` and `columns` need a `format`, e.g. parquet")
        return self

    def texts(self) -> Iterator[str]:
        """Yield the texts that may contain `{dataset}`."""
        yield from (self.path, self.table)
        yield from (value for value in self.options.values() if isinstance(value, str))


class SparkWatermark(SpecModel):
    """How new rows are found: by a column, or by the snapshots of the table."""

    column: str = ""
    """Column that orders the rows; `type` is the type of its values."""
    type: CursorType = CursorType.TIMESTAMP
    """Type of the column's values: `long`, `timestamp`, `date` or `hour`."""
    snapshot: Literal["iceberg", "delta"] | None = None
    """Instead of a column: `iceberg`, by the snapshots of an Iceberg table, or `delta`, by the versions of a Delta
    table."""

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        if bool(self.column) == bool(self.snapshot):
            raise ValueError("expected either `column` (with its `type`) or `snapshot`")
        if self.snapshot and "type" in self.model_fields_set:
            raise ValueError("type: is that of a `column`; snapshots have their own order")
        return self


class SparkOptions(ReadOptions):
    """Options of the source `spark`."""

    query: str = ""
    """Query in Spark SQL over tables, and over `views` written `{name}`; instead of `format` and `table`."""
    views: dict[ViewName, ReadOptions] = Field(default_factory=dict)
    """What the query reads in addition to tables, by name."""
    datasets: tuple[Annotated[str, StringConstraints(min_length=1)], ...] = ()
    """Names that replace `{dataset}`, each a dataset of its own; with `table` also globs (`orders_*`), matched against
    the tables of the namespace. Default: one dataset, `<namespace>.<table>` of `extract`."""
    watermark: SparkWatermark | None = None
    """How new rows are found. Default: everything is read in each run, for `extract.type: snapshot_only`."""
    start: Value | None = None
    """First position of the column to read (inclusive); default: the lowest one."""
    end: Value | None = None
    """Position of the column at which to stop (exclusive)."""
    max_watermark: str | None = None
    """`CURRENTDATE-1`, `CURRENTHOUR`, `CURRENTMINUTE-5`, `CURRENTSECOND-30`: read up to the end of that day, hour,
    minute or second. Default: for `date` `CURRENTDATE-1`, for `hour` `CURRENTHOUR-1`, because the present day or hour
    is incomplete."""
    timezone: ZoneName = "UTC"
    """Zone of `max_watermark`, and of the wall clock in columns without a zone."""
    lag: int | str = 0
    """Distance to keep from the newest row (`long`) or from now (times), so that late rows are not missed: a number, or
    `90s`, `30m`, `6h`, `2d`. Default: none."""
    nulls: Literal["fail", "exclude", "include"] = "fail"
    """What to do with rows whose watermark column is NULL: `fail` the dataset; `exclude` them and count them in the
    plan; `include` those that exist at the first read, once."""
    partition_interval: int | str | None = None
    """Width of a work unit, as `lag`; default: each range is one work unit."""
    partitions: int = Field(default=20, ge=1, le=10_000)
    """Most work units of a range; intervals are widened to fit. If it is set without `partition_interval`, exactly so
    many."""
    snapshots_per_work_unit: int | None = Field(default=None, ge=1)
    """Most snapshots or versions of one work unit; default: all new ones."""
    count_rows: bool = True
    """Whether to count the rows of a column's ranges while planning: one Spark job per dataset with new rows."""
    sql: str = ""
    """Query over `{rows}` that converts the rows of a work unit before converters: `select id, a.b from {rows}`."""
    function: Target | None = None
    """`module:function` that gets the DataFrame of a work unit and returns another; applied after `sql`."""
    spark_partitions: int | None = Field(default=None, ge=1, le=10_000)
    """Most Spark partitions of a work unit, by `coalesce`; each writes a file per branch. Default: Spark's own
    number."""

    @property
    def cursor(self) -> Cursor:
        """Arithmetic of the watermark column; raises ValueError if there is none."""
        if self.watermark is None or not self.watermark.column:
            raise ValueError("the watermark is no column")
        return Cursor(self.watermark.type)

    @property
    def zone(self) -> ZoneInfo:
        """Time zone of `timezone`."""
        return ZoneInfo(self.timezone)

    @property
    def has_globs(self) -> bool:
        """Whether `datasets` has patterns to match against tables."""
        return any(GLOBS & set(name) for name in self.datasets)

    @property
    def is_plain(self) -> bool:
        """Whether the rows are those of the source, unchanged by `sql` and `function`."""
        return not self.sql and self.function is None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if sum(map(bool, (self.query, self.table, self.format))) != 1:
            raise ValueError("expected one of `format` (with `path` and `options`), `table` and `query`")
        if self.query and self.options:
            raise ValueError("options: a `query` reads tables and `views`; give the options to a view")
        if self.views and not self.query:
            raise ValueError("`views` are for a `query`")
        if unused := [name for name in self.views if f"{{{name}}}" not in self.query]:
            raise ValueError(f"views: the query does not read {{{unused[0]}}}")
        if self.sql and "{rows}" not in self.sql:
            raise ValueError("sql: expected a query over {rows}")
        for name, text in (("query", self.query), ("sql", self.sql)):
            rest = _BEFORE_QUERY.sub("", text)
            if text and not rest.lower().startswith(_QUERIES):
                # Spark runs a command at once, so it would run with every plan.
                raise ValueError(f"{name}: expected a query that begins with {', '.join(_QUERIES)}, got {rest[:20]!r}")
        self._check_datasets()
        self._check_watermark()
        return self

    def _check_datasets(self) -> None:
        texts = [*self.texts(), self.query, *(text for view in self.views.values() for text in view.texts())]
        named = any(DATASET in text for text in texts)
        if named != bool(self.datasets):
            raise ValueError("`datasets` and a `{dataset}` in `path`, `table`, `query` or options need each other")
        if twice := repeated(self.datasets):
            raise ValueError(f"datasets: {', '.join(twice)} more than once")
        if self.has_globs and not self.table.endswith(f".{DATASET}"):
            raise ValueError("datasets: globs need a `table` like catalog.namespace.{dataset}; else list the names")

    def _check_watermark(self) -> None:
        column = self.watermark is not None and bool(self.watermark.column)
        foreign = [name for name in _WITH_COLUMN if name in self.model_fields_set]
        if foreign and not column:
            raise ValueError(f"{foreign[0]}: is for a `watermark` with a `column`")
        if self.watermark is None or column:
            if self.snapshots_per_work_unit is not None:
                raise ValueError("snapshots_per_work_unit: is for a `watermark` with a `snapshot`")
        elif self.query or (self.format and self.format != self.watermark.snapshot):
            raise ValueError(
                f"watermark: snapshots need a `table`, or `format: {self.watermark.snapshot}` with a `path`"
            )
        if column:
            check_cursor_options(self.cursor, self.zone, dict(self))
