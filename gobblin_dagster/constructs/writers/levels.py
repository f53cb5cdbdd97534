"""Levels of partition folders: get the value of each row from a column, a time, an SQL expression or a user's class."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Annotated, Any, Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Discriminator, Field, StringConstraints, Tag

from gobblin_dagster.constructs.options.zones import ZoneName
from gobblin_dagster.constructs.records import load_object, records
from gobblin_dagster.constructs.sql.select import SqlSelect
from gobblin_dagster.constructs.sql.syntax import SqlExpression
from gobblin_dagster.constructs.types.arrow import is_binary, value_type
from gobblin_dagster.constructs.types.columns import convert_error
from gobblin_dagster.constructs.types.iso_times import refuse_odd_times, refuse_odd_years
from gobblin_dagster.constructs.types.zones import wall_times
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.spec.job import SpecModel

_NAME = "option `partition_by`"
Granularity = Literal["year", "month", "day", "hour"]
_FORMATS: dict[Granularity, str] = {"year": "%Y", "month": "%Y-%m", "day": "%Y-%m-%d", "hour": "%Y-%m-%d-%H"}
_STEADY = {bool, date, int, str}
"""Types of Python whose values have one type of Arrow, whatever is beside them."""
LevelName = Annotated[str, StringConstraints(min_length=1, max_length=100)]


class TimePartition(SpecModel):
    """A folder level from a date or timestamp column.

    Source: gobblin-core `TimeBasedWriterPartitioner`. Differs: null has a folder of its own, not that of "now".
    """

    column: str
    """Date or timestamp column; it also stays in the file."""
    granularity: Granularity = "day"
    """Length of a folder's time: `year`, `month`, `day` or `hour`. Source: `writer.partition.granularity`."""
    name: LevelName = "date"
    """Name of the folder level; must not be a column of the file."""
    timezone: ZoneName = "UTC"
    """Zone of the folders, for timestamps with a zone; dates and timestamps without a zone are not converted.
    Source: `writer.partition.timezone`, whose default is America/Los_Angeles."""


class SqlPartition(SpecModel):
    """A folder level from an SQL expression."""

    sql: SqlExpression = Field(min_length=1)
    """Expression with one plain value per row: `upper(left(name, 1))`, `id % 16`."""
    name: LevelName
    """Name of the folder level; must not be a column of the file."""


class ClassPartition(SpecModel):
    """A folder level from a class of the user, see `WriterPartitioner`.

    Source: `writer.partitioner.class`.
    """

    partitioner: Annotated[str, StringConstraints(pattern=r"^[\w.]+:[\w.]+$")]
    """`module:Class`; the module may be in the project folder."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments for the class. Default: none."""
    name: LevelName
    """Name of the folder level; must not be a column of the file."""


def _kind(given: object) -> str:
    """Return the form of a level, so that only the faults of this form are reported."""
    keys = given if isinstance(given, dict) else getattr(type(given), "model_fields", {})
    if isinstance(given, str):
        return "column"
    return next((key for key in ("sql", "partitioner") if key in keys), "time")


Partition = Annotated[
    Annotated[str, Tag("column")]
    | Annotated[TimePartition, Tag("time")]
    | Annotated[SqlPartition, Tag("sql")]
    | Annotated[ClassPartition, Tag("partitioner")],
    Discriminator(_kind),
]
"""A level in a job file."""


class WriterPartitioner(Protocol):
    """The interface of a user's class: one of the two methods. An object is made once per work unit and branch.

    Source: gobblin-core-base `WriterPartitioner`. Differs: one value per level; the job file names the level.
    """

    def partition_batch(self, batch: pa.RecordBatch) -> pa.Array:
        """Return one plain value (text, whole number, date, bool, null) per row."""

    def partition_record(self, record: dict[str, Any]) -> Any:
        """Return the value of one row; called only without `partition_batch`."""


class Level(Protocol):
    """A level, bound to the schema of its branch."""

    name: str

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        """Return one value per row, of a type that folder names can hold."""

    def texts(self, values: pa.Array) -> list[str | None]:
        """Return the folder values of distinct values."""


def bound(
    declared: str | TimePartition | SqlPartition | ClassPartition, schema: pa.Schema, context: ConstructContext
) -> Level:
    """Bind a level; raises ValueError or ConvertError if it does not fit the schema, UsageError for a user's class."""
    match declared:
        case str():
            return _Column(declared, schema)
        case TimePartition():
            return _Time(declared, schema)
        case SqlPartition():
            return _Sql(declared, schema, context)
        case ClassPartition():
            return _Object(declared, context)


class _Plain:
    """A level whose folder values are the texts of its values."""

    name: str

    def texts(self, values: pa.Array) -> list[str | None]:
        refuse_odd_times(self.name, values)
        texts: list[str | None] = values.cast(pa.string()).to_pylist()
        return texts


class _Column(_Plain):
    def __init__(self, name: str, schema: pa.Schema) -> None:
        self.name = name
        kind = _type_of(name, schema)
        if not _is_plain(kind):
            raise ValueError(f"partition column {name!r} is {kind}, which cannot be a folder name")

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        return batch.column(self.name)


class _Time:
    def __init__(self, declared: TimePartition, schema: pa.Schema) -> None:
        self.name = declared.name
        self._declared = declared
        kind = _type_of(declared.column, schema)
        if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            problem = f"partition column {declared.column!r} is {kind}; a granularity needs a date or timestamp"
            raise ValueError(problem)

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        column = batch.column(self._declared.column)
        is_aware = pa.types.is_timestamp(column.type) and column.type.tz is not None
        if is_aware:
            column = column.cast(pa.timestamp(column.type.unit, self._declared.timezone))
        refuse_odd_years(self._declared.column, column)
        # By the wall clock: the hour that occurs twice a year has one folder.
        column = wall_times(column) if is_aware else column
        return pc.floor_temporal(column, unit=self._declared.granularity)

    def texts(self, values: pa.Array) -> list[str | None]:
        texts: list[str | None] = pc.strftime(values, format=_FORMATS[self._declared.granularity]).to_pylist()
        return texts


class _Sql(_Plain):
    def __init__(self, declared: SqlPartition, schema: pa.Schema, context: ConstructContext) -> None:
        self.name = declared.name
        # The line break ends a comment at the end of the expression.
        self._select = SqlSelect(f"({declared.sql}\n) AS value", f"{_NAME}, level {self.name!r}", context, declared.sql)
        kind = self._select.schema(schema).field(0).type
        if not _is_plain(kind):
            raise self._select.error(f"{declared.sql!r} is {kind}, which cannot be a folder name")

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        result = self._select.run(batch)
        if result.num_rows != batch.num_rows:
            raise self._select.error(f"expected one value for each of {batch.num_rows} rows, got {result.num_rows}")
        return result.column(0)


class _Object(_Plain):
    def __init__(self, declared: ClassPartition, context: ConstructContext) -> None:
        self.name = declared.name
        self._target, self._context = declared.partitioner, context
        cls = load_object(declared.partitioner, _NAME)
        try:
            made: Any = cls(**declared.options)
        except TypeError as error:
            raise UsageError(problem=f"{_NAME}: {declared.partitioner} cannot be made: {error}.") from error
        self._by_batch = getattr(made, "partition_batch", None)
        self._by_record = getattr(made, "partition_record", None)
        if not (callable(self._by_batch) or callable(self._by_record)):
            problem = f"{_NAME}: {declared.partitioner} has neither partition_batch nor partition_record."
            raise UsageError(problem=problem)

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        try:
            values = self._asked(batch)
        except MemoryError:  # no fault of the rows
            raise
        except Exception as error:  # any exception of a user's class is an error of this batch
            raise self._error(f"it raised {type(error).__name__}: {error}") from error
        if len(values) != batch.num_rows:
            raise self._error(f"expected one value for each of {batch.num_rows} rows, got {len(values)}")
        if not _is_plain(values.type):
            raise self._error(f"expected plain values, got {values.type}, which cannot be a folder name")
        return values

    def _asked(self, batch: pa.RecordBatch) -> pa.Array:
        if self._by_batch is not None:
            given = self._by_batch(batch)
            if isinstance(given, list):
                return _array(given)
            return given if isinstance(given, pa.Array) else pa.array(given)
        asked: Any = self._by_record
        return _array([asked(record) for record in records(batch)])

    def _error(self, problem: str) -> Exception:
        return convert_error(f"{self._target}: {problem}", f"{_NAME}, level {self.name!r}", self._context)


def _array(found: list[Any]) -> pa.Array:
    """Return values of a user's class; those whose type would depend on the others (`1.1` beside `1.25`) as texts."""
    kinds = {type(value) for value in found if value is not None}
    if len(kinds) <= 1 and kinds <= _STEADY:
        return pa.array(found)
    texts = []
    for value in found:
        alone = pa.array([value])
        if not _is_plain(alone.type):
            return pa.nulls(len(found), alone.type)
        refuse_odd_times("value", alone)
        texts.append(alone.cast(pa.string())[0])
    return pa.array(texts, pa.string())


def names_of(levels: Sequence[str | TimePartition | SqlPartition | ClassPartition]) -> list[str]:
    """Return the names of levels."""
    return [level if isinstance(level, str) else level.name for level in levels]


def _type_of(name: str, schema: pa.Schema) -> pa.DataType:
    if name not in schema.names:
        raise ValueError(f"partition_by expects column {name!r}; found: {', '.join(schema.names)}")
    return schema.field(name).type


def _is_plain(kind: pa.DataType) -> bool:
    kind = value_type(kind)
    is_plain = not (pa.types.is_nested(kind) or pa.types.is_floating(kind) or is_binary(kind))
    return is_plain and not isinstance(kind, pa.BaseExtensionType)
