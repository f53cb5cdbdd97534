"""Options of the source `query`, checked when the job file is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal, Self
from zoneinfo import ZoneInfo

from pydantic import Field, SecretStr, field_validator, model_validator

from gobblin_dagster.constructs.options.regexes import Regex
from gobblin_dagster.constructs.options.zones import ZoneName
from gobblin_dagster.constructs.sources.incremental.cursor import Cursor, CursorType
from gobblin_dagster.constructs.sources.incremental.options import Value, check_cursor_options
from gobblin_dagster.constructs.sources.incremental.ranges import Cut
from gobblin_dagster.spec.job import SpecModel


class WatermarkOptions(SpecModel):
    """The column that orders the rows."""

    column: str = Field(min_length=1)
    """Name of the column. Source: `extract.delta.fields`."""
    type: CursorType = CursorType.TIMESTAMP
    """`long`, `timestamp`, `date` or `hour`. Source: `source.querybased.watermark.type`."""


class TableOptions(SpecModel):
    """Options of some tables; what is not set is as for the others."""

    watermark: WatermarkOptions | None = None
    """As above; null: the tables have no watermark column, see `without_watermark`."""
    primary_key: tuple[str, ...] = ()
    """As above."""
    exclude_columns: tuple[str, ...] = ()
    """As above, in addition."""
    start: Value | None = None
    """As above."""
    end: Value | None = None
    """As above."""
    max_watermark: str | None = None
    """As above."""
    nulls: Literal["fail", "exclude", "include"] = "fail"
    """As above."""
    lag: int | str = 0
    """As above."""
    overlap: int | str = 0
    """As above."""
    partition_interval: int | str | None = None
    """As above."""
    split_points: tuple[Value, ...] = ()
    """As above."""
    without_watermark: Literal["fail", "leave_out", "full"] = "fail"
    """As above."""


class QueryOptions(SpecModel):
    """Options of the source `query`."""

    url: SecretStr
    """URL of the database, as SQLAlchemy writes it: `${SHOP_URL}` with `postgresql://user:password@host:5432/shop`, or
    `sqlite:///shop.db`. Take it from the environment. It is never shown; messages show the host and the database only.
    Source: `source.conn.*`."""
    tables: tuple[str, ...] = ()
    """Names of tables or views, `schema.table` or `table` in the default schema. Each is a dataset `schema.table`.
    Source: `source.entities`."""
    include: tuple[Regex, ...] = ()
    """Regular expressions that match whole names `schema.table`; every table that matches is a dataset.
    Source: `entity.whitelist`."""
    exclude: tuple[Regex, ...] = ()
    """Tables that match one of these are not read, even if another option names them. Source: `entity.blacklist`."""
    query: str = ""
    """One SQL query instead of tables; its result has the watermark column. The dataset is `<namespace>.<table>`.
    Source: `source.querybased.query`."""
    exclude_columns: tuple[str, ...] = ()
    """Columns that are never read. Source: `source.querybased.excluded.columns`."""
    types: Literal["wide", "exact"] = "wide"
    """Types of PostgreSQL's columns. `wide`: integers have 64 bits, `real` is a double; times of day, arrays and
    addresses are text. `exact`: as the table has them, arrays as lists, and addresses (`inet`) without a mask that was
    not there. Other databases: no difference."""
    watermark: WatermarkOptions | None = None
    """Column that tells which rows are new: those at or after the last high watermark. Default: the tables have none,
    see `without_watermark`."""
    without_watermark: Literal["fail", "leave_out", "full"] = "fail"
    """What to do with a table that lacks the watermark column: `fail` its dataset; `leave_out` reads nothing and says
    so in the plan; `full` reads it whole in each run, in jobs that read everything (`extract.type: snapshot_only`)."""
    table_options: Mapping[str, TableOptions] = Field(default_factory=dict)
    """Other options for the tables whose names `schema.table` match a glob, e.g. `{"shop.log*": {watermark: {column:
    id, type: long}}}`; of several globs that match, later ones win."""
    primary_key: tuple[str, ...] = ()
    """Columns that identify a row; they must exist. Needed by `overlap`. Source: `extract.primary.key.fields`."""
    start: Value | None = None
    """First position to read (inclusive); default: the lowest in the table. Source: `source.querybased.start.value`."""
    end: Value | None = None
    """Position at which to stop (exclusive). Source: `source.querybased.end.value`, which is inclusive."""
    max_watermark: str | None = None
    """`CURRENTDATE-1`, `CURRENTHOUR`, `CURRENTMINUTE-5`, `CURRENTSECOND-30`: read up to the end of that day, hour,
    minute or second. Default: for `date` `CURRENTDATE-1`, for `hour` `CURRENTHOUR-1`, because the present day or hour
    is incomplete. Source: `source.querybased.append.max.watermark.limit`."""
    timezone: ZoneName = "UTC"
    """Zone of `max_watermark`, and of the wall clock in columns without a zone. Source: `source.timezone`, whose
    default is America/Los_Angeles."""
    nulls: Literal["fail", "exclude", "include"] = "fail"
    """What to do with rows whose watermark column is NULL: `fail` the dataset; `exclude` them and count them in the
    plan; `include` those that exist at the first read, once."""
    horizon: Literal["auto", "none"] = "auto"
    """How late commits are handled. `auto`: in PostgreSQL, read no row that a row of an open transaction could come
    before; other databases need `lag` if writers commit out of order. Times of the last second or in the future wait.
    `none`: rows that are committed late, below the watermark, are lost."""
    horizon_wait_s: float = Field(default=10.0, ge=0, le=3600)
    """Seconds to wait at most, for all tables together, for open transactions that write to tables with a `long`
    watermark."""
    lock_wait_s: float = Field(default=30.0, ge=1, le=86_400)
    """Seconds to wait at most for a table that another session has locked: the plan for all tables together, a work
    unit at each attempt. Then only this table fails. In SQLite a lock is of the whole database, and fails the job."""
    plan_timeout_s: float = Field(default=1800.0, ge=1, le=86_400)
    """Seconds that one statement of the plan may take, such as one that counts the rows of a slow view. Then only this
    table fails."""
    lag: int | str = 0
    """Distance to keep from the newest row: positions for `long`; for times, a duration (`90s`, `30m`, `6h`, `2d`)
    before now. Newer rows wait for a later run. Default: none."""
    overlap: int | str = 0
    """Distance before the last high watermark that is read again for late rows, as `lag`. For `snapshot_append` with a
    `primary_key` only: readers keep the newest row of a key. Source: `source.querybased.low.watermark.backup.secs`."""
    partition_interval: int | str | None = None
    """Width of one work unit, as `lag`; default: by `rows_per_work_unit`. Source:
    `source.querybased.partition.interval`, in hours."""
    split_points: tuple[Value, ...] = ()
    """Positions at which work units end, instead of `partition_interval`. Source:
    `partitioner.userSpecifiedPartitions`."""
    max_partitions: int = Field(default=20, ge=1, le=10_000)
    """Most work units of a range; intervals are widened to fit. Source: `source.max.number.of.partitions`."""
    rows_per_work_unit: int = Field(default=1_000_000, ge=1)
    """Rows of one work unit, if rows are evenly spread; used without `partition_interval` and `split_points`."""
    count_rows: bool | Literal["auto"] = "auto"
    """Whether to count rows while planning. `auto`: yes, except that PostgreSQL's estimate is used if it is above a
    million rows. Source: `source.querybased.skip.count.calc`, which is the opposite."""
    fetch_rows: int = Field(default=10_000, ge=1, le=10_000_000)
    """Rows fetched at a time if no Arrow driver is installed. Source: `source.querybased.fetch.size`."""

    @property
    def cursor(self) -> Cursor:
        """Arithmetic of the watermark column; without one, of the numbers before and behind a whole table."""
        return Cursor(self.watermark.type if self.watermark is not None else CursorType.LONG)

    @property
    def cursor_column(self) -> str:
        """Name of the watermark column; empty if there is none."""
        return self.watermark.column if self.watermark is not None else ""

    def of_table(self, urn: str) -> QueryOptions:
        """Return the options of one table, without `table_options`; raises ValueError if they do not fit together."""
        found = [one for glob, one in self.table_options.items() if urn == glob or fnmatchcase(urn, glob)]
        return self._merged(found) if found else self.model_copy(update={"table_options": {}})

    def all_kinds(self) -> list[QueryOptions]:
        """Return the options for tables that match no glob, and those of each glob."""
        return [self, *(self._merged([one]) for one in self.table_options.values())]

    def _merged(self, found: Sequence[TableOptions]) -> QueryOptions:
        changes: dict[str, object] = {"table_options": {}}
        for one in found:
            changes |= {name: getattr(one, name) for name in one.model_fields_set}
        excluded = [*self.exclude_columns, *(name for one in found for name in one.exclude_columns)]
        merged = self.model_copy(update={**changes, "exclude_columns": tuple(excluded)})
        merged._check()
        return merged

    @property
    def cut(self) -> Cut:
        """How ranges become work units."""
        cursor = self.cursor
        return Cut(
            interval=cursor.span(self.partition_interval) if self.partition_interval is not None else None,
            points=tuple(sorted({cursor.parse(point) for point in self.split_points})),
            max_partitions=self.max_partitions,
            rows_per_unit=self.rows_per_work_unit,
        )

    @property
    def zone(self) -> ZoneInfo:
        """Time zone of `timezone`."""
        return ZoneInfo(self.timezone)

    @field_validator("url")
    @classmethod
    def _has_scheme(cls, url: SecretStr) -> SecretStr:
        if "://" not in url.get_secret_value():
            # The message does not repeat the text, which may hold a password.
            raise ValueError("expected a URL like postgresql://user:password@host:5432/database; take it from ${...}")
        return url

    @field_validator("query")
    @classmethod
    def _closed(cls, query: str) -> str:
        """Remove the `;` at the end, and add a line break: the text is put in brackets, which a comment would hide."""
        text = query.rstrip("; \t\r\n")
        return f"{text}\n" if text else ""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if bool(self.query) == bool(self.tables or self.include):
            raise ValueError("expected either `query`, or `tables` and `include`")
        self._check()
        for glob, one in self.table_options.items():
            try:
                self._merged([one])
            except ValueError as error:
                raise ValueError(f"table_options, {glob}: {error}") from None
        return self

    def _check(self) -> None:
        """Raise ValueError if options do not fit together."""
        if self.watermark is None and self.without_watermark == "fail" and not self.table_options:
            raise ValueError("expected a `watermark`, or `without_watermark: full` to read tables whole in each run")
        check_cursor_options(self.cursor, self.zone, dict(self))
        if self.overlap and not self.primary_key:
            raise ValueError("overlap: needs `primary_key`, so that readers can drop rows that were read twice")
