"""Steps that change a Delta table in one version: add published files, or merge rows by key."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gobblin_dagster.constructs.publishers.changes import (
    DELETED,
    ENDED,
    Bounds,
    Changes,
    Matches,
    bounds,
    conform,
    require_alone,
    require_key,
    staged_changes,
    tables_of,
    writer_of,
)
from gobblin_dagster.constructs.publishers.child_rows import child_changes
from gobblin_dagster.constructs.publishers.delta_log import DeltaLog
from gobblin_dagster.constructs.publishers.delta_restores import newest_number, restores_of
from gobblin_dagster.constructs.publishers.history import keep_history
from gobblin_dagster.constructs.publishers.merge_rule import MergeRule, is_older
from gobblin_dagster.constructs.publishers.tables import (
    OTHER_TYPE_REMEDY,
    TableCommit,
    TableFile,
    abandoned_error,
    forbid_by,
    holds_extension,
    is_extension,
    is_foreign_decimal,
    race,
    require_names,
    resolved,
    turn,
    unfit_type_in,
    unified_schema,
)
from gobblin_dagster.constructs.types.arrow import has_part, is_text
from gobblin_dagster.constructs.types.columns import has_column
from gobblin_dagster.constructs.types.wider import is_wider
from gobblin_dagster.constructs.writers.partitions import folder_values
from gobblin_dagster.core.constructs import HeldFile
from gobblin_dagster.core.errors import StepRefusedError, StorageError
from gobblin_dagster.core.step_registry import register_commit_step
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.utils.optional_packages import optional_package

_APPLICATION = "gobblin/"
"""How the ids of our application transactions begin."""
_SPOOLED_ROWS = 16_384
"""Rows in memory while a table is written again with wider types."""


@register_commit_step
@dataclass(frozen=True, slots=True)
class AppendToDeltaStep:
    """Add files to a Delta table in one version; done if the table's transaction id of the dataset is our number."""

    type_name: ClassVar[str] = "append_to_delta"
    version: ClassVar[int] = 1
    is_cast: ClassVar[bool] = False
    """Whether rows are written in the table's types; files are added as they are."""

    location: str
    commit: TableCommit
    number: int
    """Version of the application transaction: microseconds since the epoch, so it grows from commit to commit."""
    storage_options: Mapping[str, str] = field(default_factory=dict)
    storage_options_env: Mapping[str, str] = field(default_factory=dict)

    def verify(self, storage: Storage) -> bool:
        try:
            table = self._load()
        except StorageError:
            return False  # `execute` checks again, several times
        return table is not None and self._is_in(table)

    @property
    def place(self) -> str:
        """The folder; empty if the settings of its storage may say at which server it is."""
        is_elsewhere = "://" in self.location and (self.storage_options or self.storage_options_env)
        return "" if is_elsewhere else self.location

    @property
    def listed_files(self) -> Sequence[str]:
        return self.commit.paths

    @property
    def output_paths(self) -> tuple[str, ...]:
        """A file of the table's log: neither it nor the table's folder may be a link that leads out of the output."""
        return (f"{self.location}/_delta_log/_last_checkpoint",)

    def is_lost(self) -> bool:
        """Return whether the table lacks the rows of this commit, which was once done."""
        number = load_numbers(*self._place)(self._application)
        return number is None or number < self.number

    def execute(self, storage: Storage) -> None:
        schema = unified_schema(self.location, self.commit.paths)
        require_whole_log(*self._place)
        # Of changes of one table that are made at once, all but one are in vain.
        with turn(self.location):
            race(lambda: self._append(schema), self.location, self.commit.dataset_urn)

    def forbid(self) -> None:
        """Note in the table's log, by a version without rows, that the commit is abandoned.

        A run that wakes finds the note; one that wakes in its transaction is refused, as the table has a newer version.
        """
        deltalake = _deltalake()
        marks = deltalake.CommitProperties(
            max_commit_retries=0, app_transactions=[deltalake.Transaction(self._abandoned, self.number)]
        )

        def attempt() -> bool:
            try:
                table = self._load() or self._new_table()
                if not self._is_abandoned(table) and not self._is_in(table):
                    table.create_write_transaction([], "append", table.schema(), commit_properties=marks)
            except deltalake.exceptions.CommitFailedError:
                return False
            except FileNotFoundError:
                raise  # a file that tells the columns of a new table; other tries do not find it either
            except (deltalake.exceptions.DeltaError, OSError) as error:
                raise _failed(self.location, self.commit.dataset_urn, error) from error
            return True

        forbid_by(attempt, self.location, self.commit)

    def _new_table(self) -> Any:
        """Make the table for the note that its first commit is abandoned."""
        return self._create(*self._with_partitions(unified_schema(self.location, self.commit.paths)))

    @property
    def _abandoned(self) -> str:
        """Application whose transaction notes that this commit was abandoned."""
        return f"gobblin-abandoned/{self.commit.commit_id}/{self.commit.branch}"

    def _is_abandoned(self, table: Any) -> bool:
        return table.transaction_version(self._abandoned) is not None

    def _is_over(self, table: Any) -> bool:
        """Return whether the table has the commit; raises StepRefusedError if it must not get it."""
        if self._is_abandoned(table):
            raise abandoned_error(self, "its log")
        return self._is_in(table)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> AppendToDeltaStep:
        """Parse the result of `to_json`."""
        return cls(**{**fields, "commit": TableCommit.from_json(fields["commit"])})

    def describe(self) -> str:
        return f"add {len(self.commit.files)} file(s) to Delta table {self.location}"

    @property
    def _application(self) -> str:
        return application_of(self.commit.job, self.commit.dataset_urn, self.commit.branch)

    def _append(self, schema: pa.Schema) -> bool:
        """Add the files unless the table has them; False if another writer changed the table in between."""
        schema, partitions = self._with_partitions(schema)

        def write(table: Any) -> None:
            table.create_write_transaction(
                [self._action(file) for file in self.commit.files],
                "append",
                table.schema(),
                partition_by=partitions or None,
                commit_properties=self._marks(),
            )

        return self._change(schema, partitions, write)

    def _with_partitions(self, schema: pa.Schema) -> tuple[pa.Schema, list[str]]:
        """Return the columns of the files with those that are in the names of their folders, and the names of these."""
        partitions = list(_partition_values(self.location, self.commit.files[0]))
        if len({tuple(_partition_values(self.location, file)) for file in self.commit.files}) > 1:
            raise StepRefusedError(
                step=self.describe(), problem="its files are in folders of different partition columns"
            )
        for name in partitions:
            if name not in schema.names:
                schema = schema.append(pa.field(name, pa.string()))
        return schema, partitions

    def _change(self, schema: pa.Schema, partitions: Sequence[str], write: Callable[[Any], None]) -> bool:
        """Call `write` with the table, unless it has the commit; False if another writer was faster.

        The table is made, and gets new columns, before that.
        """
        errors, version = _deltalake().exceptions, -1
        try:
            table = self._load() or self._create(schema, partitions)
            version = table.version()
            if self._is_over(table):
                return True
            self._require_place(table, partitions)
            evolved = self._with_columns(table, schema)
            # Another run that has the same commit may have been faster while the columns were changed.
            if evolved is not table and self._is_over(evolved):
                return True
            write(evolved)
        except errors.CommitFailedError as error:
            if (newest := self._load()) is None or newest.version() > version:
                return False  # else nobody was faster, and the table takes no such change
            raise StepRefusedError(step=self.describe(), problem=str(error)[:500]) from error
        except errors.SchemaMismatchError as error:
            raise StepRefusedError(step=self.describe(), problem=str(error)[:500]) from error
        except (errors.DeltaError, OSError) as error:
            raise _failed(self.location, self.commit.dataset_urn, error) from error
        return True

    def _marks(self) -> Any:
        """Return what the table's log keeps of this commit."""
        deltalake = _deltalake()
        return deltalake.CommitProperties(
            custom_metadata=self.commit.properties,
            # Never retried inside deltalake: another run may have published this very commit in between.
            max_commit_retries=0,
            app_transactions=[deltalake.Transaction(self._application, self.number)],
        )

    def _load(self) -> Any:
        """Return the newest state of the table; None if it does not exist."""
        return load_table(*self._place)

    @property
    def _place(self) -> tuple[str, Mapping[str, str], Mapping[str, str], str]:
        return self.location, self.storage_options, self.storage_options_env, self.commit.dataset_urn

    def _create(self, schema: pa.Schema, partitions: Sequence[str]) -> Any:
        deltalake = _deltalake()
        return deltalake.DeltaTable.create(
            self.location,
            schema=self._fields(schema),
            mode="ignore",
            partition_by=list(partitions) or None,
            storage_options=self._options(),
        )

    def _is_in(self, table: Any) -> bool:
        known = table.transaction_version(self._application)
        if known is None or known < self.number:
            return False
        if known == self.number or self._is_in_history(table):
            return True
        # A later commit of the dataset cannot begin before this one ended: the clocks disagree. Do not guess.
        problem = f"the table knows a later transaction ({known}) of {self._application} than this one ({self.number})"
        raise StepRefusedError(step=self.describe(), problem=problem)

    def _is_in_history(self, table: Any) -> bool:
        ours = self.commit.commit_id
        return any(entry.get("gobblin.commit-id") == ours for entry in table.history())

    def _require_place(self, table: Any, partitions: Sequence[str]) -> None:
        """Refuse files in other partition folders than the table has: readers would find null in the columns."""
        known = table.metadata().partition_columns
        if {*known} == {*partitions}:
            return
        of_table, of_files = (", ".join(names) or "no column" for names in (known, partitions))
        problem = (
            f"the table is partitioned by {of_table}, and the files by {of_files}: readers would find null in these "
            "columns. Let the writer's `partition_by` name the columns of the table, and abandon this commit; or write "
            "the table again, partitioned as the files are, and recover it"
        )
        raise StepRefusedError(step=self.describe(), problem=problem)

    def _with_columns(self, table: Any, schema: pa.Schema) -> Any:
        """Return the table with all columns of the rows, as wide as theirs.

        Raises:
            StepRefusedError: a type differs, and no value of the one is safe in the other.
        """
        there = _arrow(table)
        require_names(self.describe(), "Delta does", there.names, schema)
        fields = self._fields(schema)
        ours = pa.schema(fields.to_arrow())
        wider = there
        for known in there:
            new = ours.field(known.name) if has_column(ours, known.name) else known
            if known.type == new.type or (self.is_cast and is_wider(known.type, new.type)):
                continue
            if not is_wider(new.type, known.type) or pa.types.is_null(known.type):
                raise self._other_type(known, new)
            wider = wider.set(wider.get_field_index(known.name), new)
        if wider != there:
            self._widen(table, wider)
            table = self._load()
        if missing := [field for field in fields.fields if not has_column(there, field.name)]:
            table.alter.add_columns(missing)
            table = self._load()
        return table

    def _other_type(self, known: pa.Field, new: pa.Field) -> StepRefusedError:
        problem = (
            f"column {known.name!r} is {known.type} in the table and {new.type} in the files, which is no wider type"
        )
        if has_part(known.type, pa.types.is_null) or has_part(new.type, pa.types.is_null):
            problem += "; a column with nothing but nulls needs a type, e.g. by the converter `columns`"
        else:
            problem += f"; {OTHER_TYPE_REMEDY}"
        return StepRefusedError(step=self.describe(), problem=problem)

    def _widen(self, table: Any, schema: pa.Schema) -> None:
        """Write all rows of the table again, in one version, with the wider types of `schema`.

        deltalake does not know Delta's own widening of types, and readers of other versions would find files of the
        former type. The rows go through a local temporary file, because deltalake cannot read while it writes.
        """
        with tempfile.TemporaryFile() as spool:
            with pq.ParquetWriter(spool, schema) as writer:
                for batch in _select(table, schema.names):
                    writer.write_batch(conform(batch, schema))
            spool.seek(0)
            with pq.ParquetFile(spool, pre_buffer=False) as rows:
                _deltalake().write_deltalake(
                    table,
                    pa.RecordBatchReader.from_batches(schema, rows.iter_batches(_SPOOLED_ROWS)),
                    mode="overwrite",
                    schema_mode="overwrite",
                    # If another writer was faster, its rows are not among ours.
                    commit_properties=_deltalake().CommitProperties(max_commit_retries=0),
                )

    def _fields(self, schema: pa.Schema) -> Any:
        if why := unfit_types(schema):
            raise StepRefusedError(step=self.describe(), problem=why)
        require_names(self.describe(), "Delta does", (), schema)
        try:
            # Later files may have nulls where these have none.
            return _deltalake().Schema.from_arrow(pa.schema([column.with_nullable(True) for column in schema]))
        except Exception as error:  # the library raises no type of its own here
            problem = str(error).partition("\n")[0][:300]
            raise StepRefusedError(step=self.describe(), problem=problem) from error

    def _action(self, file: TableFile) -> Any:
        relative = file.path.removeprefix(self.location + "/")
        return _deltalake().transaction.AddAction(
            relative,
            file.size_bytes,
            _partition_values(self.location, file),
            self.number // 1000,
            True,
            json.dumps({"numRecords": file.rows}),
        )

    def _options(self) -> dict[str, str] | None:
        return resolved(self.storage_options, self.storage_options_env) or None


@register_commit_step
@dataclass(frozen=True, slots=True, kw_only=True)
class MergeIntoDeltaStep(AppendToDeltaStep):
    """Merge the rows of staged files into a Delta table in one version; known by the same transaction id.

    Only files with a row to replace or delete are written again.
    """

    type_name: ClassVar[str] = "merge_into_delta"
    is_cast: ClassVar[bool] = True

    rule: MergeRule
    partition_by: tuple[str, ...] = ()
    """Partition columns of a table that is created."""

    @property
    def loaded_bytes(self) -> int:
        """Bytes of the staged files."""
        return self.commit.size_bytes

    def execute(self, storage: Storage) -> None:
        require_whole_log(*self._place)
        changes = staged_changes(self.describe(), self.location, self.commit, self.rule)

        columns = self.rule.columns(changes.schema)

        def write(table: Any) -> None:
            self._merge(table, changes)

        with turn(self.location):  # as in `AppendToDeltaStep`
            race(lambda: self._change(columns, self.partition_by, write), self.location, self.commit.dataset_urn)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> MergeIntoDeltaStep:
        """Parse the result of `to_json`."""
        rule, commit = MergeRule.from_json(fields["rule"]), TableCommit.from_json(fields["commit"])
        return cls(**{**fields, "rule": rule, "commit": commit, "partition_by": tuple(fields["partition_by"])})

    def describe(self) -> str:
        rows = sum(file.rows for file in self.commit.files)
        return f"merge {rows:,} row(s) into Delta table {self.location} by {', '.join(self.rule.key)}"

    def _new_table(self) -> Any:
        changes = staged_changes(self.describe(), self.location, self.commit, self.rule)
        return self._create(self.rule.columns(changes.schema), self.partition_by)

    def _require_place(self, table: Any, partitions: Sequence[str]) -> None:
        """Refuse a table without the key; rows are written in its own partitions."""
        require_key(self.describe(), self.rule, _arrow(table).names)

    def _merge(self, table: Any, changes: Changes) -> None:
        rule, there = self.rule, _arrow(table)
        if rule.delete_missing:
            self._require_alone(table)

        def scan(names: Sequence[str], ends: Bounds) -> Iterator[pa.RecordBatch]:
            return _select(table, names, _between(ends))

        if rule.history is not None:
            at = datetime.fromisoformat(self.commit.published_at)
            changes, rule = keep_history(self.describe(), changes, rule, rule.history, there, scan, at)
        version = table.version()
        with child_changes(changes, rule, there, scan) as (changes, rule):
            if changes.keys.num_rows or rule.delete_missing:
                self._replace_rows(table, there, changes, rule)
        if table.version() == version:
            # Nothing was changed, so the library wrote no version; the table must know the commit all the same.
            table.create_write_transaction([], "append", table.schema(), commit_properties=self._marks())

    def _replace_rows(self, table: Any, there: pa.Schema, changes: Changes, rule: MergeRule) -> None:
        schema = pa.schema([there.field(name) for name in changes.schema.names])
        between = _between(bounds(changes.keys, rule.key))
        key = pa.schema([schema.field(name) for name in rule.key])
        matches = Matches(self.describe(), changes.keys, rule.key)
        for rows in tables_of(_select(table, rule.key, between), key):
            matches.of(rows)
        same_key = " AND ".join([*(f"old.{_quoted(name)} = new.{_quoted(name)}" for name in rule.key), *between])
        names = {_quoted(name): f"new.{_quoted(name)}" for name in schema.names}
        is_deleted, is_ended = (f"new.{_quoted(name)}" for name in (DELETED, ENDED))
        newer = f"NOT ({is_older('new', 'old', [_quoted(name) for name in rule.newest_by])})"
        merge = table.merge(_source(changes, schema), same_key, "new", "old", commit_properties=self._marks())
        if self.rule.history is not None:
            merge = merge.when_matched_update({(end := _quoted(self.rule.history.valid_to)): f"new.{end}"}, is_ended)
        merge = (
            merge.when_matched_delete(f"{is_deleted} AND {newer}")
            .when_matched_update(names, f"NOT {is_deleted} AND {newer}")
            .when_not_matched_insert(names, f"NOT ({is_deleted} OR {is_ended})")
        )
        if rule.delete_missing:
            merge = merge.when_not_matched_by_source_delete()
        merge.execute()

    def _require_alone(self, table: Any) -> None:
        """Raise StepRefusedError if the table has rows of another job, dataset or branch."""
        require_alone(self.describe(), self.commit, map(writer_of, table.history()))
        # Log entries are deleted after some time; checkpoints keep the transaction of each writer.
        names = {
            name
            for name in DeltaLog.listed(self.location, self._options() or {}).applications()
            if name.startswith(_APPLICATION)
        }
        require_alone(self.describe(), self.commit, (f"transactions {one!r}" for one in names - {self._application}))


def unfit_types(schema: pa.Schema, mode: str = "") -> str:
    """Return which column a Delta table cannot hold, and what to do; empty if it can hold all.

    Args:
        schema: of the rows.
        mode: of the publisher, if files or versions of rows are to be judged too.
    """
    return unfit_type_in(schema, (*_UNFIT, *_UNFIT_IN_MODE.get(mode, ())))


_NO_EXTENSION = "a type of Arrow that Delta does not have; make it text, e.g. by the converter `columns`"
_UNFIT: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (
        lambda kind: pa.types.is_timestamp(kind) and kind.unit == "ns",
        "Delta keeps microseconds; cast it to timestamp[us]",
    ),
    (pa.types.is_time, "Delta has no time of day; make it text, e.g. by the converter `columns`"),
    (pa.types.is_duration, "Delta has no durations; make it a number of seconds, e.g. by the converter `columns`"),
    # The library would convert them to signed types of the same width, which readers fail to read for large values.
    (pa.types.is_unsigned_integer, "Delta has signed integers only; cast it to one"),
    (pa.types.is_float16, "Delta has no such numbers; cast it to float"),
    (is_foreign_decimal, "Delta has decimals of at most 38 digits; cast it to decimal128"),
    (holds_extension, _NO_EXTENSION),
    # The table says bytes or a list, and names the type all the same: its readers fail.
    (
        lambda kind: is_extension(kind) and not (is_text(kind.storage_type) or pa.types.is_integer(kind.storage_type)),
        _NO_EXTENSION,
    ),
)
_UNFIT_IN_MODE: Mapping[str, tuple[tuple[Callable[[pa.DataType], bool], str], ...]] = {
    "append": (
        (
            lambda kind: pa.types.is_timestamp(kind) and kind.tz not in {None, "UTC"},
            "Delta keeps UTC, and files are added as they are; cast it to the same with the time zone UTC",
        ),
    ),
    "scd2": ((is_extension, _NO_EXTENSION),),
}


def load_table(location: str, options: Mapping[str, str], variables: Mapping[str, str], dataset_urn: str = "") -> Any:
    """Return the newest state of a table; None if it does not exist; raises StorageError."""
    deltalake, settings = _deltalake(), resolved(options, variables)
    try:
        return deltalake.DeltaTable(location, storage_options=settings or None)
    except deltalake.exceptions.TableNotFoundError:
        return None
    except (deltalake.exceptions.DeltaError, OSError) as error:
        damage = ""
        with suppress(deltalake.exceptions.DeltaError, OSError):
            damage = DeltaLog.listed(location, settings).fault()
        raise _damaged(location, dataset_urn, damage) if damage else _failed(location, dataset_urn, error) from error


def require_whole_log(
    location: str, options: Mapping[str, str], variables: Mapping[str, str], dataset_urn: str = ""
) -> DeltaLog | None:
    """Return the log of a table, None if there is no table.

    Raises:
        StorageError: a version file is empty: readers pass over it, with all its rows. Or the log cannot be listed.
    """
    deltalake = _deltalake()
    try:
        log = DeltaLog.listed(location, resolved(options, variables))
    except deltalake.exceptions.TableNotFoundError:
        return None
    except (deltalake.exceptions.DeltaError, OSError) as error:
        raise _failed(location, dataset_urn, error) from error
    if damage := log.emptied():
        raise _damaged(location, dataset_urn, damage)
    return log


def load_files(location: str, options: Mapping[str, str], variables: Mapping[str, str]) -> list[HeldFile]:
    """Return the data files of the newest state of a table; none if it does not exist; raises StorageError."""
    table = load_table(location, options, variables)
    log = require_whole_log(location, options, variables) if table is not None else None
    try:
        return list(log.data_files(table)) if log is not None else []
    except (_deltalake().exceptions.DeltaError, OSError) as error:
        raise _failed(location, "", error) from error


def load_numbers(
    location: str, options: Mapping[str, str], variables: Mapping[str, str], dataset_urn: str = ""
) -> Callable[[str], int | None]:
    """Return a function that tells the number of an application's newest transaction whose rows a table holds.

    None if it holds none, or the table does not exist.

    Raises:
        StorageError: the table cannot be read.
    """
    table = load_table(location, options, variables, dataset_urn)
    if table is None:
        return lambda application: None
    require_whole_log(location, options, variables, dataset_urn)
    deltalake = _deltalake()

    def at_version(number: int) -> Any:
        return deltalake.DeltaTable(location, version=number, storage_options=resolved(options, variables) or None)

    try:
        restores = restores_of(table, at_version)
    except (deltalake.exceptions.DeltaError, OSError) as error:
        raise _failed(location, dataset_urn, error) from error
    return partial(newest_number, table, restores)


def application_of(job: str, dataset_urn: str, branch: str) -> str:
    """Return the id of the application whose transactions are the commits of a dataset's branch."""
    return f"{_APPLICATION}{job}/{dataset_urn}/{branch}"


def _damaged(location: str, dataset_urn: str, problem: str) -> StorageError:
    return StorageError(
        operation="publish to Delta table", path=location, problem=problem, dataset_urn=dataset_urn or None
    )


def _failed(location: str, dataset_urn: str, error: Exception) -> StorageError:
    said = str(error).partition("\n   0: ")[0]  # a trace of the library's own calls follows
    return StorageError(
        operation="publish to Delta table",
        path=location,
        problem=f"{type(error).__name__}: {said[:300]}",
        dataset_urn=dataset_urn,
    )


def _arrow(table: Any) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


def _select(table: Any, names: Sequence[str], conditions: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
    """Yield rows of a Delta table, called `old` in the conditions; files that its statistics rule out are not read."""
    columns = ", ".join(f"old.{_quoted(name)}" for name in names)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    query = f"SELECT {columns} FROM old{where}"  # noqa: S608  # names and values are quoted
    for batch in _deltalake().QueryBuilder().register("old", table).execute(query):
        yield pa.record_batch(batch)


def _source(changes: Changes, schema: pa.Schema) -> pa.RecordBatchReader:
    """Return new rows and then versions that end, with `DELETED` and `ENDED` as last columns."""
    whole = schema.append(pa.field(DELETED, pa.bool_())).append(pa.field(ENDED, pa.bool_()))

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in changes.batches(schema):
            yield batch.append_column(ENDED, pa.array(np.zeros(batch.num_rows, bool)))
        for batch in changes.ends.to_batches() if changes.ends is not None else ():
            flags = [pa.array(np.full(batch.num_rows, flag)) for flag in (False, True)]
            yield pa.RecordBatch.from_arrays([*conform(batch, schema).columns, *flags], schema=whole)

    return pa.RecordBatchReader.from_batches(whole, rows())


def _between(ends: Bounds) -> list[str]:
    return [
        f"old.{_quoted(name)} {test} {_literal(end)}"
        for name, both in ends.items()
        for test, end in zip((">=", "<="), both, strict=True)
    ]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _literal(value: int | str) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def _deltalake() -> Any:
    """Return the library; raises EnvironmentFaultError if it is not installed."""
    with optional_package("deltalake"):
        import deltalake  # noqa: PLC0415  # optional package
    return deltalake


def _partition_values(location: str, file: TableFile) -> dict[str, str | None]:
    """Return the partition columns of a file with their values, from the names of its folders."""
    return folder_values(file.path.removeprefix(location + "/"))
