"""QueryExtractor: read one range of a table or query as Arrow.

With ADBC installed, PostgreSQL is read by `COPY (query) TO STDOUT (FORMAT binary)`, decoded in C++ in bounded memory.
In all other cases, rows are fetched through SQLAlchemy and converted to Arrow in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import cache
from typing import Any, Protocol
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import psycopg2

from gobblin_dagster.constructs.clients.sql import CONNECT_WAIT_S, MYSQL
from gobblin_dagster.constructs.sources.incremental.in_order import InOrder
from gobblin_dagster.constructs.sources.query.database import (
    APPLICATION,
    Database,
    without_credentials,
)
from gobblin_dagster.constructs.sources.query.options import QueryOptions
from gobblin_dagster.constructs.sources.query.relation import Relation
from gobblin_dagster.constructs.sources.query.types import Column, instants
from gobblin_dagster.constructs.types.strict_cast import strict_cast
from gobblin_dagster.core.constructs import Chunk, ConstructContext
from gobblin_dagster.core.errors import ExtractError, SourceError, TransientError
from gobblin_dagster.core.postgresql import UTF8, postgresql_may_recover
from gobblin_dagster.core.watermark import Watermark
from gobblin_dagster.core.work_unit import WorkUnit

_FIRST_DAY = -2_440_588
"""Days from 1970-01-01 to 4713 BC, the beginning of PostgreSQL's calendar; a lower value is an overflow in the
driver."""


class RowReader(Protocol):
    """Run one statement and yield its rows."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows, in the driver's types; raises ExtractError or TransientError."""

    def close(self) -> None:
        """Release the connection."""


class QueryExtractor:
    """Read the rows of a work unit, `low <= watermark column < high`, in one statement.

    `WorkUnit.read` holds the columns (`columns`), whether rows with NULL in the watermark column belong to the work
    unit (`nulls`), the step at which the overlap begins (`from`), and whether it is a whole table without a watermark
    column (`whole`).

    Shape: the columns of the table or query, without `exclude_columns`, in the types that the plan found; in no order
    unless the run asks for the order of the watermark column.

    Source: gobblin-sql `JdbcExtractor` (`PostgresqlExtractor`). Differs: Arrow batches instead of one JSON object per
    row.
    """

    def __init__(self, unit: WorkUnit, database: Database, options: QueryOptions, context: ConstructContext) -> None:
        schema, _, table = unit.dataset_urn.partition(".")
        is_whole = bool(unit.read.get("whole", False))
        self._columns = columns_of(unit)
        relation = Relation(
            schema=schema,
            table="" if options.query else table,
            query=options.query,
            columns=self._columns,
            cursor_column="" if is_whole else options.cursor_column,
            cursor=options.cursor,
            backend=database.backend,
        )
        low, high = (options.cursor.step(next(iter(m.components().values()))) for m in (unit.low, unit.expected_high))
        first: Any = unit.read.get("from", low)
        with_nulls = bool(unit.read.get("nulls", False))
        # Rows with NULL have no place in the order, nor have those of a table without a watermark column.
        is_ordered = context.in_order and not with_nulls and not is_whole
        statement = (
            relation.all_rows()
            if is_whole
            else relation.rows(first, high, with_nulls=with_nulls, is_ordered=is_ordered)
        )
        self._low, self._cursor = low, options.cursor
        self._in_order: InOrder | None = None
        if is_ordered:
            column, limit_rows = options.cursor_column, context.limit_rows
            is_text = pa.types.is_string(relation.arrow_schema.field(column).type)
            values = _whole_numbers if is_text and not options.cursor.is_time else None
            self._in_order = InOrder(column, options.cursor.step, self._fail, limit_rows, values, low)
        self.schema: pa.Schema = relation.arrow_schema
        self.bytes_read = 0
        self._label = f"{unit.dataset_urn} {unit.interval}"
        self._urn = unit.dataset_urn
        self._knows_zones = database.is_postgresql
        self._reader = _open(database, statement, options, context, self.schema, self._fail, self._require_clocks)

    def chunks(self) -> Iterator[Chunk]:
        return self._in_order.cut(self._read()) if self._in_order is not None else self._read()

    def position(self) -> Watermark | None:
        """Return the first position whose rows were not handed out; None if rows are not read in order."""
        reached = self._in_order.reached if self._in_order is not None else None
        return None if reached is None else self._cursor.mark(max(reached, self._low))

    def _read(self) -> Iterator[Chunk]:
        rows = 0
        for batch in self._reader.batches():
            numbers = np.arange(rows + 1, rows + 1 + batch.num_rows, dtype=np.int64)
            self.bytes_read += batch.nbytes
            rows += batch.num_rows
            yield Chunk(self._typed(batch), self._label, pa.array(numbers))

    def close(self) -> None:
        self._reader.close()

    def _typed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Cast to the types that the plan found, so that all work units of a dataset have the same schema."""
        arrays = []
        if self._knows_zones:
            self._require_clocks(_instants_of(batch.schema))
        for field, array in zip(self.schema, batch.columns, strict=True):
            try:
                arrays.append(_cast(array, field.type))
            except MemoryError:
                raise
            except (pa.ArrowException, NotImplementedError) as error:
                raise self._fail(_misfit(field, array.to_pylist(), error)) from error
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _require_clocks(self, now: Sequence[bool | None]) -> None:
        """Raise ExtractError for times that got a zone, or lost it, since the plan: they would be hours away.

        Args:
            now: whether the columns hold instants now, None for those that nobody knows.
        """
        for column, field, is_instant in zip(self._columns, self.schema, now, strict=True):
            if is_instant is None or not pa.types.is_timestamp(field.type):
                continue
            was_instant = field.type.tz is not None if column.is_instant is None else column.is_instant
            if was_instant != is_instant:
                wanted, got = ("with", "without") if was_instant else ("without", "with")
                raise self._fail(
                    f"column {field.name}: expected times {wanted} a time zone, as the run was planned, got times "
                    f"{got} one: its type was changed meanwhile. Run again."
                )

    def _fail(self, problem: str) -> ExtractError:
        return ExtractError(dataset_urn=self._urn, file=self._label, problem=problem)


def columns_of(unit: WorkUnit) -> tuple[Column, ...]:
    """Return the columns that a work unit's statement selects, with the Arrow types of the plan."""
    raw: Any = unit.read["columns"]
    return tuple(Column(**column) for column in raw)


def _instants_of(schema: pa.Schema) -> list[bool | None]:
    """Return for each column whether its times have a zone; None for other columns."""
    return [kind.tz is not None if pa.types.is_timestamp(kind) else None for kind in schema.types]


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return strict_cast(array.storage if isinstance(array, pa.ExtensionArray) else array, kind)


def _open(
    database: Database,
    statement: sa.Select[Any],
    options: QueryOptions,
    context: ConstructContext,
    schema: pa.Schema,
    fail: Callable[[str], ExtractError],
    require_clocks: Callable[[Sequence[bool | None]], None],
) -> RowReader:
    if database.is_postgresql:
        try:
            import adbc_driver_manager as adbc  # noqa: PLC0415 - an optional driver, needed here only
            import adbc_driver_postgresql as driver  # noqa: PLC0415 - its other part
        except ModuleNotFoundError:
            return _FetchingReader(database, statement, options.fetch_rows, schema, fail, require_clocks)
        reader = _AdbcReader(database, statement, context.block_bytes, fail, require_clocks, adbc, driver.connect)
        if reader.knows_types:
            return reader
        reader.close()
    return _FetchingReader(database, statement, options.fetch_rows, schema, fail, require_clocks)


@cache
def _adbc_database(adbc: Any, connect: Callable[[str], Any], url: str) -> tuple[Any, bool]:
    """Return ADBC's database, from which connections are opened, and whether it knows types; it keeps none itself.

    It queries all types of the server, which takes six times as long as a connection. So it is made once per process.
    Types that are created later do no harm: types that are not built in are read as text (`Column.as_text`).
    Where the server quotes all names (`quote_all_identifiers`) it knows none, and all values would be bytes: that could
    be set for its connection only, by a parameter with which PgBouncer refuses to connect.
    """
    found = connect(url)
    with adbc.AdbcConnection(found) as connection, adbc.AdbcStatement(connection) as statement:
        statement.set_sql_query("SELECT 1")
        stream, _ = statement.execute_query()
        with pa.RecordBatchReader.from_stream(stream) as reader:
            return found, pa.types.is_integer(reader.schema.types[0])


class _AdbcReader:
    """Read from PostgreSQL by ADBC, without a Python object per row."""

    def __init__(
        self,
        database: Database,
        statement: sa.Select[Any],
        block_bytes: int,
        fail: Callable[[str], ExtractError],
        require_clocks: Callable[[Sequence[bool | None]], None],
        adbc: Any,
        connect: Callable[[str], Any],
    ) -> None:
        self._database = database
        self._fail = fail
        self._require_clocks = require_clocks
        self._block_bytes = block_bytes
        self._adbc = adbc
        # The statement contains its bounds as literals: with parameters, the driver cannot use COPY.
        dialect = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]  # SQLAlchemy has no type
        self._sql = str(statement.compile(dialect=dialect, compile_kwargs={"literal_binds": True}))
        with self._errors():
            found, self.knows_types = _adbc_database(adbc, connect, _libpq_url(database.url))
            self._connection = adbc.AdbcConnection(found)
            self._connection.set_autocommit(False)

    def batches(self) -> Iterator[pa.RecordBatch]:
        with self._errors(), self._adbc.AdbcStatement(self._connection) as statement:
            statement.set_sql_query(self._database.transaction)
            statement.execute_update()
            statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(self._block_bytes)})
            statement.set_sql_query(self._sql)
            stream, _ = statement.execute_query()
            with pa.RecordBatchReader.from_stream(stream) as reader:
                # Also if there is no row: they may lie in other ranges now.
                self._require_clocks(_instants_of(reader.schema))
                for batch in reader:
                    if batch.num_rows:
                        self._refuse_infinite(batch)
                        yield batch
            self._connection.commit()  # a pool gives the session to others; it ends one in the midst of a transaction

    def close(self) -> None:
        self._connection.close()

    def _refuse_infinite(self, batch: pa.RecordBatch) -> None:
        """Raise ExtractError for a time that the driver got from 'infinity', or from a year beyond Arrow's range."""
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            if pa.types.is_timestamp(array.type):
                least, first = pc.min(array.view(pa.int64())).as_py(), _FIRST_DAY * 86_400_000_000
            elif pa.types.is_date32(array.type):
                least, first = pc.min(array.view(pa.int32())).as_py(), _FIRST_DAY
            else:
                continue
            if least is not None and least < first:
                raise self._fail(
                    f"column {name}: holds 'infinity', or a year after 294246, for which there is no value. Read it "
                    "with "
                    f"a `query` that has NULLIF({name}, 'infinity'), or leave it out with `exclude_columns`."
                )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except MemoryError:
            raise
        except (self._adbc.Error, OSError, pa.ArrowException) as error:
            problem = without_credentials(str(error), self._database.url)
            state = getattr(error, "sqlstate", None)
            is_told = state is not None or isinstance(error, self._adbc.OperationalError | OSError)
            if is_told and postgresql_may_recover(state, str(error)):
                raise TransientError(
                    problem=f"Database {self._database.shown} cannot be read now: {problem}."
                ) from None
            raise self._fail(f"database {self._database.shown} says: {problem}.") from None


class _FetchingReader:
    """Read through SQLAlchemy, `fetch_rows` rows at a time."""

    def __init__(
        self,
        database: Database,
        statement: sa.Select[Any],
        fetch_rows: int,
        schema: pa.Schema,
        fail: Callable[[str], ExtractError],
        require_clocks: Callable[[Sequence[bool | None]], None],
    ) -> None:
        self._database = database
        self._statement = statement
        self._require_clocks = require_clocks
        self._fetch_rows = fetch_rows
        self._schema = schema
        self._fail = fail

    def batches(self) -> Iterator[pa.RecordBatch]:
        try:
            with self._database.snapshot() as connection:
                options = {"stream_results": True, "max_row_buffer": self._fetch_rows}
                result: Any = connection.execution_options(**options).execute(self._statement)
                self._require_clocks(instants(result.cursor.description, is_mysql=self._database.backend in MYSQL))
                while rows := result.fetchmany(self._fetch_rows):
                    yield _to_batch(self._schema, rows)
        except SourceError as error:
            raise self._fail(error.problem) from None
        except _MisfitError as error:
            raise self._fail(str(error)) from error
        except MemoryError:
            raise
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise self._fail(f"a value does not fit its column: {str(error)[:200]}") from error

    def close(self) -> None:
        """Do nothing: the connection ends with the generator."""


class _MisfitError(ValueError):
    """A value does not fit its column."""


def _to_batch(schema: pa.Schema, rows: Any) -> pa.RecordBatch:
    """Return rows in the types that Arrow finds for their values, with the names of the schema."""
    arrays = []
    for field, values in zip(schema, zip(*rows, strict=True), strict=True):
        try:
            arrays.append(pa.array(list(values)))
        except MemoryError:
            raise
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise _MisfitError(_misfit(field, values, error)) from error
    return pa.RecordBatch.from_arrays(arrays, names=schema.names)


def _misfit(field: pa.Field, values: Iterable[Any], error: Exception) -> str:
    """Return what is wrong with a column: its first value that is none of its type, and how to read it."""
    got, remedy = str(error)[:200], "a CAST or NULLIF"
    for value in values:
        try:
            _cast(pa.array([value]), field.type)
        except (pa.ArrowException, NotImplementedError, ValueError, TypeError, OverflowError):
            got = f"got {repr(value)[:200]}"
            if isinstance(value, str) and value.startswith("0000-00-00"):
                got, remedy = f"{got}, which is no date", f"NULLIF({field.name}, 0)"
            elif isinstance(value, int) and value >= 2**63:
                got, remedy = f"{got}, which is beyond 64 bits with a sign", f"CAST({field.name} AS CHAR)"
            break
    return (
        f"column {field.name}: expected {field.type}, {got}. Read it with a `query` that has {remedy}, or leave it out "
        "with `exclude_columns`."
    )


def _whole_numbers(texts: pa.Array) -> pa.Array:
    """Return numbers that are read as text, because their type has no precision: texts do not sort as they do."""
    return pa.array([int(Decimal(text)) for text in texts.to_pylist()], pa.int64())


def _libpq_url(url: sa.URL) -> str:
    """Return the URL in libpq's form, with our application name."""
    _, given = psycopg2.dialect().create_connect_args(url)  # type: ignore[no-untyped-call]  # as `dialect` above
    # Options of the URL (a search_path) hold for the plan, so they must hold for reading too.
    options = {
        **given,
        "application_name": APPLICATION,
        "connect_timeout": str(CONNECT_WAIT_S),
        **UTF8,
    }
    # Encoded by hand: libpq decodes %20, but not `+`; SQLAlchemy writes spaces in names and passwords as `+`.
    return "postgresql:///?" + "&".join(f"{quote(key)}={quote(str(value), safe='')}" for key, value in options.items())
