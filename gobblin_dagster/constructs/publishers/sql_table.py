"""SqlTablePublisher: load the rows of a publication into a database table, in one transaction with a ledger row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa
import sqlalchemy as sa
from pydantic import Field, field_validator, model_validator
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError

from gobblin_dagster.constructs.clients.environment import to_store
from gobblin_dagster.constructs.clients.sql import (
    column_name,
    columns_of,
    lacks_right,
    make_engine,
    parse_url,
    server_tables,
    table_place,
)
from gobblin_dagster.constructs.clients.sql_locks import holders, is_wait_over
from gobblin_dagster.constructs.publishers.sql_ledger import (
    LEDGER,
    OPTIONAL,
    has_ids,
    ledger_table,
    name_to_note,
    newest_commits,
    other_writers,
    wait_for_turn,
)
from gobblin_dagster.constructs.publishers.sql_load import (
    column_type,
    load_rows,
    merge_rows,
    refuses_key,
    unfit_for_upsert,
)
from gobblin_dagster.constructs.publishers.sql_mysql import (
    TABLE_OPTIONS,
    filled_columns,
    refuses_rows,
    require_transactions,
)
from gobblin_dagster.constructs.publishers.sql_names import (
    exact,
    full_names,
    possible_table_fold,
    table_fold,
    unfit_columns,
    unfit_name,
)
from gobblin_dagster.constructs.publishers.sql_relatives import (
    identities,
    is_view,
    made_again,
    relatives,
    require_kept,
)
from gobblin_dagster.constructs.publishers.sql_silence import SILENT_S, Watch, ask_arguments, while_heard
from gobblin_dagster.constructs.publishers.sql_values import require_fit, with_kept_values
from gobblin_dagster.constructs.publishers.sql_waits import bound_waits
from gobblin_dagster.constructs.publishers.sql_widen import widen_columns
from gobblin_dagster.constructs.publishers.tables import (
    TableCommit,
    TablePublisher,
    abandoned_error,
    batches_of,
    resolved,
    say_not_noted,
    unified_schema,
)
from gobblin_dagster.constructs.types.schema_text import schema_text, type_from_text, type_texts
from gobblin_dagster.core.commit import CommitStep
from gobblin_dagster.core.constructs import ConstructContext, NotedCommit, PublishView
from gobblin_dagster.core.errors import (
    EnvironmentFaultError,
    InvalidSpecError,
    StepRefusedError,
    StorageError,
    UsageError,
)
from gobblin_dagster.core.extract import Extract
from gobblin_dagster.core.mysql import SESSION_THAT_WRITES
from gobblin_dagster.core.step_registry import register_commit_step
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.traits import Widening
from gobblin_dagster.core.urn import table_name_of
from gobblin_dagster.core.utils.sqlite import is_locked
from gobblin_dagster.database.engine import folder_hint
from gobblin_dagster.spec.job import SpecModel

BATCH_ROWS = 50_000
_NO_TABLE = ""
"""What the ledger has in place of the table of a commit that was abandoned."""
_NO_TYPE = "a database table has no type for column(s)"
_FLATTEN = "Convert them to JSON text with the converter `to_json`, or flatten them"
Mode = Literal["append", "upsert", "replace"]


class SqlTableOptions(SpecModel):
    """Options of the publisher `sql_table`."""

    url_env: str = ""
    """Environment variable with the database's SQLAlchemy URL, e.g. `WAREHOUSE_URL` for
    `postgresql://user:password@host:5432/warehouse`; it is read when publishing, and never stored or shown."""
    url: str = ""
    """The URL itself, if it has no password: `sqlite:///warehouse.db` (relative to the project)."""
    table: str = Field(min_length=1)
    """`table` or `schema.table`; created by the first publication if it does not exist. `{dataset}` is replaced by the
    dataset.urn in letters, digits and `_`; two datasets with the same name are refused."""
    mode: Mode = "append"
    """`append`: add rows. `upsert`: a row replaces the one with its `key`, unless that one is newer by the job's
    `extract.delta_fields`; if they are equal, the last one is kept. `replace`: the table has only the rows of the
    newest publication, and serves one job, dataset and branch."""
    key: tuple[str, ...] = ()
    """Columns that identify a row, for `upsert`; primary key of a table that is created. Default:
    `extract.primary_keys`."""

    @field_validator("url")
    @classmethod
    def _no_password(cls, url: str) -> str:
        if url and parse_url(url, "").password is not None:
            raise ValueError("must hold no password; put the URL into the environment and its variable into `url_env`")
        return url

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if bool(self.url) == bool(self.url_env):
            raise ValueError("expected either `url` or `url_env`")
        if self.key and self.mode != "upsert":
            raise ValueError("`key` belongs to `mode: upsert`")
        return self


class SqlTablePublisher(TablePublisher[SqlTableOptions]):
    """Load the branch's rows into a database table, exactly once; the branch's files are not published.

    The step also writes a row into the table `gobblin_commits` of the same database, in the same transaction. New
    columns are added to the table.

    Source: gobblin-sql `JdbcPublisher`, which copies from a staging table. Differs: survives a crash between the copy
    and the watermark.
    """

    Options = SqlTableOptions
    published_elsewhere = "a database table"
    publishes_files = False
    widens: ClassVar[tuple[Widening, ...]] = ("int_to_float", "int_to_decimal", "decimal_scale", "date_to_timestamp")

    def __init__(self, options: SqlTableOptions, context: ConstructContext) -> None:
        super().__init__(options, context)
        self.needs_all_units = options.mode == "replace"
        self.on_again = options.mode
        self.ledger = f"table {LEDGER}, beside table {options.table},"
        self.places = self._database.places_of(self._full_name("dataset"), LEDGER)
        # A file has neither server nor port.
        self.keeps_rows_in = next(iter(self._database.places_of(options.table)), "").replace("://:/", ":///")

    def unfit_extract(self, extract: Extract) -> str:
        if self._options.mode == "upsert" and not (self._options.key or extract.primary_keys):
            return "`mode: upsert` needs `key`, or `extract.primary_keys` for all publishers"
        return ""

    def unfit_columns(self, extract: Extract, schema: pa.Schema) -> str:
        """Return why rows of a schema cannot be loaded; empty if they can."""
        if nested := _without_type(schema_text(schema)):
            return f"{_NO_TYPE} {nested}. {_FLATTEN}"
        is_merged = self._options.mode == "upsert"
        wanted = {*(self._options.key or extract.primary_keys), *extract.delta_fields} if is_merged else set()
        if missing := sorted(wanted.difference(schema.names)):
            return f"`mode: upsert` needs column {', '.join(missing)}; there are {', '.join(schema.names)}"
        return unfit_columns(self._database.backend, schema.names)

    def key_columns(self, extract: Extract) -> Sequence[str]:
        """Return no column: the database refuses rows without a key."""
        return ()

    def newest_commits(self, datasets: Mapping[str, str]) -> Mapping[str, Collection[NotedCommit]]:
        tables = {urn: self._full_name(urn) for urn in datasets}
        with self._database.connection(f"ask {LEDGER} beside table {self._options.table}") as connection:
            return newest_commits(connection, ledger_table(backend=connection.dialect.name), self._context.job, tables)

    def targets_of(self, datasets: Collection[str]) -> Mapping[str, str]:
        if "{dataset}" not in self._options.table:
            return {}
        backend = self._database.backend
        names = {urn: self._full_name(urn) for urn in datasets}
        fold = possible_table_fold(backend)
        if len({fold(name) for name in names.values()}) == len({*names.values()}):
            return names
        with self._database.connection("ask how the database compares names of tables") as connection:
            fold = table_fold(connection)
        return {urn: fold(name) for urn, name in names.items()}

    def server_tables(self, datasets: Collection[str]) -> Mapping[str, Collection[str]]:
        if self._database.backend == "sqlite":
            return {}  # a file has no server
        tables = {urn: self._full_name(urn) for urn in datasets} | {LEDGER: LEDGER}
        with self._database.connection("ask who the server is") as connection:
            found = server_tables(connection, tables, is_read=False)
        return {urn: [*found[urn], *found[LEDGER]] for urn in datasets if urn in found}

    def unfit_targets(self, datasets: Collection[str]) -> Mapping[str, str]:
        backend = self._database.backend
        if backend and self._options.mode == "upsert" and (problem := unfit_for_upsert(backend)):
            return dict.fromkeys(datasets, f"{problem}; choose another `mode`")
        tables = {urn: self._full_name(urn) for urn in datasets}
        problems = {urn: unfit_name(backend, table.split(".")) for urn, table in tables.items()}
        what_to_do = "choose another `table`, or other names of datasets"
        return {urn: f"table {tables[urn]}: {problem}; {what_to_do}" for urn, problem in problems.items() if problem}

    @property
    def _database(self) -> _Database:
        options = self._options
        return _Database(options.url, options.url_env, self._context.base_dir, options.table)

    def _full_name(self, dataset_urn: str) -> str:
        return self._options.table.replace("{dataset}", table_name_of(dataset_urn))

    def _mode(self, view: PublishView) -> Mode:
        """Return the mode for this publication; one that joins an earlier publication always appends."""
        return "append" if view.joins and self._options.mode == "replace" else self._options.mode

    def _has_work(self, view: PublishView) -> bool:
        return bool(view.files) or self._mode(view) == "replace"

    def _step(self, view: PublishView) -> LoadSqlTableStep:
        _check_types(view)
        options = self._options
        is_merged = self._mode(view) == "upsert"
        key = (options.key or view.extract.primary_keys) if is_merged else ()
        newest_by = view.extract.delta_fields if is_merged else ()
        _check_columns(view, "key", key)
        _check_columns(view, "`extract.delta_fields`", newest_by)
        place = self._place(view.dataset_urn)
        for problem in self.unfit_targets([view.dataset_urn]).values():
            raise UsageError(problem=f"Branch {view.branch!r}: {problem}.")
        if place["table"].lower() == LEDGER:
            raise UsageError(
                problem=f"Branch {view.branch!r}: table {self._full_name(view.dataset_urn)} holds the commits of all "
                "jobs of this database.",
                hint="Choose another `table`, or rename the dataset where it comes from.",
            )
        return LoadSqlTableStep(
            commit=TableCommit.of(view, staged=True),
            **place,
            mode=self._mode(view),
            key=key,
            newest_by=newest_by,
            is_own="{dataset}" in options.table,
            may_widen=self._context.evolves,
        )

    def aimed(self, step: CommitStep, folder: str) -> CommitStep | None:
        return replace(step, **self._place(step.commit.dataset_urn)) if isinstance(step, LoadSqlTableStep) else None

    def _place(self, dataset_urn: str) -> dict[str, Any]:
        """Return the fields of a step that say which table it loads."""
        url, variables = to_store({"url": self._options.url}, {})
        schema, _, table = self._full_name(dataset_urn).rpartition(".")
        return {
            "schema": schema,
            "table": table,
            "url": url.get("url", ""),
            "url_env": self._options.url_env or variables.get("url", ""),
            "base_dir": self._context.base_dir,
        }


@register_commit_step
@dataclass(frozen=True, slots=True)
class LoadSqlTableStep:
    """Load staged files into a table; done if the ledger of that database has the commit."""

    type_name: ClassVar[str] = "load_sql_table"
    version: ClassVar[int] = 1

    commit: TableCommit
    schema: str
    table: str
    mode: Mode
    key: tuple[str, ...]
    url: str
    url_env: str
    base_dir: str
    newest_by: tuple[str, ...] = ()
    is_own: bool = False
    """Whether the table is for this dataset only."""
    may_widen: bool = False
    """Whether columns of the table may get wider types; False in steps stored by earlier versions."""

    @property
    def place(self) -> str:
        """The table as a URL; empty if the variable of the database's URL is not set here."""
        return next(iter(self._database.places_of(self._full_name)), "")

    @property
    def loaded_bytes(self) -> int:
        """Bytes of the staged files."""
        return self.commit.size_bytes

    def verify(self, storage: Storage) -> bool:
        with self._connection() as connection:
            return self._is_noted(connection)

    def is_lost(self) -> bool:
        with self._connection() as connection:
            fold = table_fold(connection)
            loaded = self._noted(connection)
            names = full_names(connection, {*loaded, self._full_name}, fold)
            # The ledger is one for all tables of its database, and outlives each.
            ids = [(self._full_name, one) for table, one in loaded.items() if names[table] == names[self._full_name]]
            is_there = ids and columns_of(connection, self.table, self.schema or None) is not None
            return not is_there or bool(made_again(connection, self._ledger, ids))

    def execute(self, storage: Storage) -> None:
        try:
            schema = unified_schema(self.table, self.commit.paths) if self.commit.files else None
        except FileNotFoundError as error:
            # Not undone automatically: a run that continues late may have read the file, and may be loading it now.
            problem = f"staged file {error.filename} is gone, and the table's ledger does not name the commit"
            raise StepRefusedError(step=self.describe(), problem=problem) from error
        table = self._table(schema) if schema is not None else None
        with self._connection() as connection:
            if _NO_TABLE in self._noted(connection):  # before the table is made, or gets columns
                raise abandoned_error(self, LEDGER)
            if table is not None and schema is not None:
                there = _columns(connection, table) or {}
                if problem := unfit_columns(connection.dialect.name, schema.names, there):
                    raise StepRefusedError(step=self.describe(), problem=problem)
            # Tables first, in their own transactions: two datasets may create the same table.
            for wanted in (self._ledger, table):
                if wanted is not None:
                    _make(connection, wanted)
                    require_transactions(self.describe(), connection, wanted)
                    require_kept(self.describe(), connection, wanted)
            if table is not None and schema is not None:
                if self.may_widen:
                    widen_columns(
                        connection,
                        table,
                        schema,
                        lambda: _declared(connection, table) or {},
                        lambda names: batches_of(self.commit.paths, BATCH_ROWS, names),
                    )
                require_fit(self.table, schema, _columns(connection, table) or {}, connection.dialect.name)
        with self._database.load(self.describe(), self.commit.dataset_urn) as connection:
            if self._note(connection):
                self._load(connection, storage, table)
                connection.commit()
            elif not self._is_noted(connection):
                raise abandoned_error(self, LEDGER)

    def forbid(self) -> None:
        """Note the commit without a table: a load that begins later finds it noted, and is refused."""

        def note(connection: sa.Connection) -> None:
            _make(connection, self._ledger)
            if self._note(connection, table=_NO_TABLE):
                connection.commit()

        self._database.note_abandoned(note, self.commit)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"key": list(self.key), "newest_by": list(self.newest_by)}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> LoadSqlTableStep:
        """Parse the result of `to_json`."""
        names = {name: tuple(fields.get(name, ())) for name in ("key", "newest_by")}
        return cls(**{**fields, **names, "commit": TableCommit.from_json(fields["commit"])})

    def describe(self) -> str:
        rows = sum(file.rows for file in self.commit.files)
        return f"{self.mode} {rows:,} row(s) to table {self.table}"

    def _load(self, connection: sa.Connection, storage: Storage, table: sa.Table | None) -> None:
        if self.mode == "replace" or self.is_own:
            wait_for_turn(connection, self.schema, self.table)
            self._require_alone(connection)
        if self.mode == "replace" and _columns(connection, self._table()) is not None:
            connection.execute(_all_rows_deleted(connection, self._table()))
        if table is None:
            return
        there, dialect = _columns(connection, table) or {}, connection.dialect.name
        filled = filled_columns(connection, table)
        batches = with_kept_values(batches_of(self.commit.paths, BATCH_ROWS), there, dialect, filled)
        if self.mode == "upsert":
            merge_rows(connection, table, self.key, self.newest_by, batches)
        else:
            load_rows(connection, table, batches)

    def _table(self, schema: pa.Schema | None = None) -> sa.Table:
        columns = [
            sa.Column(field.name, column_type(field), primary_key=field.name in self.key, autoincrement=False)
            for field in schema or ()
        ]
        return sa.Table(self.table, sa.MetaData(), *columns, schema=self.schema or None, **TABLE_OPTIONS)

    # -- the ledger ----------------------------------------------------------------------------------------------------
    @property
    def _ledger(self) -> sa.Table:
        return ledger_table(backend=self._database.backend)

    def _is_noted(self, connection: sa.Connection) -> bool:
        """Return whether the ledger has the commit, and not as abandoned."""
        return any(table != _NO_TABLE for table in self._noted(connection))

    def _noted(self, connection: sa.Connection) -> dict[str, str | None]:
        """Return the table that got the commit's rows, as the ledger names it, and who it was, if that is known.

        It is named "" for a commit that was abandoned. Empty if the ledger does not have the commit.
        """
        known = _columns(connection, self._ledger)
        if known is None:
            return {}
        columns = self._ledger.c
        query = sa.select(columns.table_name, columns.table_id if has_ids(self._ledger, known) else sa.null()).where(
            columns.commit_id == self.commit.commit_id, exact(connection, columns.branch) == self.commit.branch
        )
        return {str(table): table_id for table, table_id in connection.execute(query)}

    def _require_alone(self, connection: sa.Connection) -> None:
        """Raise StepRefusedError if the table has rows of other datasets or branches, or others would be replaced."""
        commit = self.commit
        if is_view(connection, self.schema, self.table):
            problem = f"table {self.table} is a view, and whose rows its table has cannot be seen; name the table"
            raise StepRefusedError(step=self.describe(), problem=problem)
        ours = {"dataset_urn": commit.dataset_urn, "branch": commit.branch}
        if self.mode == "replace":
            ours["job"] = commit.job
        other = next(other_writers(connection, self.schema, self.table, ours), None)
        if other is None:
            return
        ledger, urn, branch, job = other
        is_of_job = job != commit.job
        problem = (
            f"by {ledger}, the table also has rows of dataset {urn!r}, branch {branch!r}"
            + (f", of job {job!r}" if is_of_job else "")
            + "; give each its own table (`{dataset}` in `table` keeps letters, digits and `_` of the dataset.urn)"
            + (f", or, if this job took the place of that one, delete its rows from {ledger}" if is_of_job else "")
        )
        if (urn, job) == (commit.dataset_urn, commit.job):
            problem += (
                f". If {branch!r} is the former name of this branch: set `branch` of these rows in {ledger} to "
                f"{commit.branch!r}, then `gobblin commit recover`"
            )
        raise StepRefusedError(step=self.describe(), problem=problem)

    @property
    def _full_name(self) -> str:
        return f"{self.schema}.{self.table}".lstrip(".")

    def _note(self, connection: sa.Connection, table: str | None = None) -> bool:
        """Write our ledger row, of another table if one is given; waits for a transaction that writes the same row.

        Return False if that one was committed.
        """
        values = {
            "commit_id": self.commit.commit_id,
            "branch": self.commit.branch,
            "job": self.commit.job,
            "dataset_urn": self.commit.dataset_urn,
            "table_name": name_to_note(connection, self._full_name) if table is None else table,
            "low": self.commit.low,
            "high": self.commit.high,
            "published_at": self.commit.published_at or None,
        }
        if has_ids(self._ledger, _columns(connection, self._ledger) or {}):
            (values["table_id"],) = identities(connection, self._ledger, [self._full_name])
        try:
            connection.execute(sa.insert(self._ledger).values(values))
        except IntegrityError:
            connection.rollback()
            if not self._noted(connection):
                raise  # another constraint of the database failed, and the rows are not there
            return False
        return True

    @property
    def _database(self) -> _Database:
        return _Database(self.url, self.url_env, self.base_dir, self.table)

    def _connection(self) -> AbstractContextManager[sa.Connection]:
        return self._database.connection(self.describe(), self.commit.dataset_urn)


@dataclass(frozen=True, slots=True)
class _Database:
    """The database of a table."""

    url: str
    url_env: str
    base_dir: str
    table: str
    """Name of the table in messages."""

    @contextmanager
    def connection(self, doing: str, dataset_urn: str | None = None) -> Iterator[sa.Connection]:
        """Yield a new connection; raises StorageError if a retry may help, else StepRefusedError."""
        try:
            with self._engine().connect() as connection:
                yield connection
        except (OperationalError, InterfaceError) as error:
            if refuses_rows(error, self.backend) or refuses_key(error) or lacks_right(error, self.backend):
                raise StepRefusedError(step=doing, problem=self._refusal(error)) from None
            if is_wait_over(error):
                raise self._held(error, dataset_urn) from None
            raise StorageError(
                operation="publish to table",
                path=self.table,
                problem=f"the database failed with {type(error).__name__}: {_first_line(error)}{folder_hint(error)}",
                dataset_urn=dataset_urn,
            ) from None
        except DBAPIError as error:
            raise StepRefusedError(step=doing, problem=self._refusal(error)) from None

    @contextmanager
    def load(self, doing: str, dataset_urn: str) -> Iterator[sa.Connection]:
        """Yield a connection for one transaction; raises as `connection`, and if the database falls silent."""
        watch: Watch | None = None
        try:
            with (
                self.connection(doing, dataset_urn) as connection,
                while_heard(connection, lambda: self._engine(ask_arguments(self.backend))) as watch,
            ):
                yield connection
        except (StorageError, StepRefusedError):
            if watch is None or not watch.is_silent:
                raise
            problem = (
                f"the database said nothing for {SILENT_S:.0f} s: either it does not answer, or something between it "
                "and this machine has lost the connection. Whether the rows are there is looked at by the next run"
            )
            raise StorageError(
                operation="publish to table", path=self.table, problem=problem, dataset_urn=dataset_urn
            ) from None

    def note_abandoned(self, note: Callable[[sa.Connection], None], commit: TableCommit) -> None:
        """Call `note`; where the database is away, the log says so.

        Raises:
            StorageError: another session holds what is needed, maybe the load of this commit.
        """
        try:
            with self._engine().connect() as connection:
                note(connection)
        except EnvironmentFaultError as error:
            say_not_noted(LEDGER, commit, str(error))
        except DBAPIError as error:
            if is_wait_over(error) or is_locked(error.orig):
                raise self._held(error, commit.dataset_urn) from None
            say_not_noted(LEDGER, commit, f"{_first_line(error)}.")

    def _refusal(self, error: DBAPIError) -> str:
        if not lacks_right(error, self.backend):
            return _first_line(error)
        return (
            f"{_first_line(error)}; grant what is missing (a load needs SELECT and INSERT on the table and on "
            f"{LEDGER}, `upsert` UPDATE too, `replace` DELETE; new tables and columns need CREATE and ALTER), then run "
            "again: a commit that waits goes on with `gobblin commit recover`"
        )

    @property
    def backend(self) -> str:
        """SQLAlchemy's name of the kind of database; empty if its URL cannot be parsed or is not set here."""
        try:
            return self._url().get_backend_name()
        except EnvironmentFaultError:
            return ""

    def _held(self, error: DBAPIError, dataset_urn: str | None) -> StorageError:
        told = holders(self._engine(), self.table.rpartition(".")[2], LEDGER)
        told = told or "Which session held it cannot be seen now; it may have ended"
        problem = f"another session holds it, or {LEDGER} beside it: {_first_line(error)}. {told}"
        return StorageError(operation="publish to table", path=self.table, problem=problem, dataset_urn=dataset_urn)

    def places_of(self, *tables: str) -> tuple[str, ...]:
        """Return tables as URLs; none if the URL of the database cannot be parsed or is not set here."""
        try:
            return tuple(table_place(self._url(), table) for table in tables)
        except (EnvironmentFaultError, InvalidSpecError):
            return ()

    def _url(self) -> sa.URL:
        text = self.url or resolved({}, {"url": self.url_env})["url"]
        try:
            return parse_url(text, self.base_dir)
        except ValueError as error:
            raise EnvironmentFaultError(
                problem=f"Table {self.table}: {error}.", hint=f"Correct {self.url_env or '`url`'}."
            ) from None

    def _engine(self, connect_args: Mapping[str, Any] | None = None) -> sa.Engine:
        shown = f"of table {self.table}"
        return bound_waits(make_engine(self._url(), shown, connect_args, session=SESSION_THAT_WRITES))


def _columns(connection: sa.Connection, table: sa.Table) -> dict[str, sa.types.TypeEngine[Any]] | None:
    """Return the types by which a table's columns keep values, by name; None if the table does not exist."""
    declared = _declared(connection, table)
    return None if declared is None else {name: _kept_as(connection, kind) for name, kind in declared.items()}


def _declared(connection: sa.Connection, table: sa.Table) -> dict[str, sa.types.TypeEngine[Any]] | None:
    """Return the types of a table's columns by name; None if the table does not exist."""
    columns = columns_of(connection, table.name, table.schema)
    if columns is None:
        return None
    return {column_name(column["name"], connection.dialect): column["type"] for column in columns}


def _kept_as(connection: sa.Connection, kind: sa.types.TypeEngine[Any]) -> sa.types.TypeEngine[Any]:
    """Return the type by which a column keeps its values: that of its domain in PostgreSQL."""
    if not isinstance(kind, postgresql.DOMAIN):
        return kind
    if not isinstance(kind.data_type, sa.Numeric):
        return _kept_as(connection, kind.data_type)
    # SQLAlchemy finds the type of a domain without its digits.
    digits = sa.text(
        "SELECT numeric_precision, numeric_scale FROM information_schema.domains WHERE domain_name = :name "
        "AND domain_schema = coalesce(:schema, domain_schema) ORDER BY numeric_scale"
    )
    found = connection.execute(digits, {"name": kind.name, "schema": kind.schema}).first()
    return sa.Numeric(*found) if found else kind.data_type


@dataclass(frozen=True, slots=True)
class _Missing:
    """What a database does not have yet, and the statement that makes it."""

    what: str
    statement: sa.Executable | str
    """A text is run as it is: in `sa.text`, `:b` of a name would be a parameter."""
    is_optional: bool = False


def _make(connection: sa.Connection, table: sa.Table) -> None:
    """Create a table and its schema, or add missing columns; each statement in its own transaction.

    Other datasets may make the same table at the same time, with other columns: after a statement that failed, what is
    missing is looked up again. A statement that fails twice was not overtaken, but is refused.
    """
    failed: set[str] = set()
    while True:
        for one in _missing(connection, table):
            if one.is_optional and one.what in failed:
                continue
            try:
                if isinstance(one.statement, str):
                    connection.exec_driver_sql(one.statement)
                else:
                    connection.execute(one.statement)
                connection.commit()
            except DBAPIError:
                connection.rollback()
                if one.what in failed:
                    raise
                failed.add(one.what)
                break
        else:
            return


def _missing(connection: sa.Connection, table: sa.Table) -> list[_Missing]:
    known = _columns(connection, table)
    missing: list[_Missing] = []
    if known is None:
        if table.schema and not sa.inspect(connection).has_schema(table.schema):
            missing.append(_Missing("schema", sa.schema.CreateSchema(table.schema)))
        missing.append(_Missing("table", sa.schema.CreateTable(table)))
    else:
        quote = connection.dialect.identifier_preparer
        for column in table.columns:
            if column.name not in known:
                kind = column.type.compile(connection.dialect)
                change = f"ALTER TABLE {quote.format_table(table)} ADD COLUMN {quote.quote(column.name)} {kind}"
                missing.append(_Missing(f"column {column.name}", change, OPTIONAL in column.info))
    connection.rollback()  # the inspection began a transaction
    return missing


def _all_rows_deleted(connection: sa.Connection, table: sa.Table) -> sa.Delete:
    """Return the statement that deletes all rows of a table.

    PostgreSQL would delete those of tables that inherit from it too, which are others' rows unless they are its
    partitions.
    """
    deleted = sa.delete(table)
    kinds = {one.kind for one in relatives(connection, table.schema, table.name) if one.place == 0}
    return deleted.with_hint("ONLY") if kinds - {"p"} else deleted


def _check_types(view: PublishView) -> None:
    """Raise UsageError for columns that no table can hold, before anything is stored."""
    if unfit := _without_type(view.schema or ""):
        raise UsageError(problem=f"Branch {view.branch!r}: {_NO_TYPE} {unfit}.", hint=f"{_FLATTEN}.")


def _without_type(schema: str) -> str:
    """Return the columns of a schema's text that no table can hold, as a list for people."""
    return ", ".join(name for name, kind in type_texts(schema).items() if type_from_text(kind) is None)


def _check_columns(view: PublishView, what: str, names: Sequence[str]) -> None:
    """Raise UsageError for columns that the branch does not have, before anything is stored."""
    there = type_texts(view.schema or "")
    missing = [name for name in names if name not in there]
    if missing:
        raise UsageError(
            problem=f"Branch {view.branch!r} has no column {', '.join(missing)}, which {what} of its table names; "
            f"it has {', '.join(there)}.",
            hint="Keep the column in the branch, or leave it out there.",
        )


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).strip().partition("\n")[0][:300]
