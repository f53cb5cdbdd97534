"""Steps that change an Iceberg table in one transaction: add published files, or merge rows by key."""

from __future__ import annotations

import os
import re
import struct
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa
from sqlalchemy.exc import DBAPIError

from gobblin_dagster.constructs.publishers.changes import require_key, staged_changes
from gobblin_dagster.constructs.publishers.iceberg_merge import WRITER, has_whole_history, is_first, merge, noted_writer
from gobblin_dagster.constructs.publishers.merge_rule import MergeRule
from gobblin_dagster.constructs.publishers.tables import (
    OTHER_TYPE_REMEDY,
    TableCommit,
    abandoned_error,
    forbid_by,
    race,
    require_names,
    resolved,
    turn,
    unified_schema,
)
from gobblin_dagster.constructs.types.columns import has_column
from gobblin_dagster.constructs.types.wider import common_type, widenings
from gobblin_dagster.core.constructs import HeldFile, NotedCommit
from gobblin_dagster.core.errors import EnvironmentFaultError, GobblinDagsterError, StepRefusedError, StorageError
from gobblin_dagster.core.same_place import WAREHOUSE
from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.core.step_registry import register_commit_step
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.utils.optional_packages import optional_package
from gobblin_dagster.core.utils.parallel import in_parallel
from gobblin_dagster.core.utils.text import first_line
from gobblin_dagster.database.engine import folder_hint

_LOGIN = re.compile(r"//[^/@]*@")
_OF_SQL = ("sqlite", "postgresql")
_FILES_AT_ONCE = 8
_MOST_SAID = 300
_SET_BACK = (
    "the table was set back into the middle of a commit, where rows (of older commits too) are taken out and not yet "
    "put in again"
)


@dataclass(frozen=True, slots=True)
class IcebergCatalog:
    """Where a catalog is; its secrets are in environment variables."""

    name: str
    properties: Mapping[str, str]
    variables: Mapping[str, str]

    def open(self) -> Any:
        """Return it; raises EnvironmentFaultError, and errors of its own if it cannot be reached."""
        with optional_package("pyiceberg"):
            from pyiceberg.catalog import load_catalog  # noqa: PLC0415  # optional package, slow to import

        return load_catalog(self.name, **resolved(self.properties, self.variables))

    def load(self, table: str, dataset_urn: str = "") -> Any:
        """Return the newest state of a table; None if it does not exist; raises StorageError."""
        missing = _errors().NoSuchTableError
        try:
            return self.open().load_table(table)
        except missing:
            return None
        except EnvironmentFaultError:
            raise  # another try does not help
        except Exception as error:  # noqa: BLE001  # catalogs raise errors of their own: HTTP, SQL, cloud
            raise _failed(table, dataset_urn, error) from None

    def load_files(self, table: str) -> list[HeldFile]:
        """Return the data files of the newest state of a table; none if it does not exist; raises StorageError."""
        loaded = self.load(table)
        if loaded is None:
            return []
        try:
            tasks = list(loaded.scan().plan_files())
            listed = {one.file_path: one for task in tasks for one in (task.file, *task.delete_files)}
            sizes = in_parallel(partial(_size, loaded.io), list(listed), _FILES_AT_ONCE)
        except Exception as error:  # noqa: BLE001  # as in `load`
            raise _failed(table, "", error) from None
        found = zip(listed.items(), sizes, strict=True)
        return [HeldFile(path.removeprefix("file://"), one.file_size_in_bytes, size) for (path, one), size in found]


def is_sql(catalog: Mapping[str, str]) -> bool:
    """Return whether a catalog is a SQL database; without a `type`, pyiceberg finds it by the `uri`."""
    kind = catalog.get("type") or ("sql" if catalog.get("uri", "").startswith(_OF_SQL) else "")
    return kind.lower() == "sql"


def table_place(table: str, catalog_name: str, catalog: Mapping[str, str]) -> str:
    """Return a table as a URL, without a login; only SQL catalogs store tables under the catalog's name."""
    uri = _LOGIN.sub("//", catalog.get("uri", ""))
    if is_sql(catalog):
        return f"{uri}#{catalog_name}.{table}"
    if (warehouse := catalog.get("warehouse")) and uri.startswith("http"):
        return f"{uri}{WAREHOUSE}{warehouse}#{table}"
    return f"{uri or catalog.get('type', '')}#{table}"


@register_commit_step
@dataclass(frozen=True, slots=True)
class AppendToIcebergStep:
    """Add files to an Iceberg table in one snapshot with the commit id; done if the table has such a snapshot."""

    type_name: ClassVar[str] = "append_to_iceberg"
    version: ClassVar[int] = 1
    is_cast: ClassVar[bool] = False
    """Whether rows are cast to the table's types, so that narrower ones fit."""

    table: str
    commit: TableCommit
    catalog_name: str
    catalog: Mapping[str, str]
    catalog_env: Mapping[str, str] = field(default_factory=dict)

    def verify(self, storage: Storage) -> bool:
        try:
            table = self._load()
        except StorageError:
            return False  # `execute` checks again, several times
        return table is not None and _holds(table, self.commit)

    @property
    def place(self) -> str:
        """The table as a URL; empty if a variable of the catalog is not set here."""
        try:
            catalog = resolved(self.catalog, self.catalog_env)
        except EnvironmentFaultError:
            return ""
        return table_place(self.table, self.catalog_name, catalog)

    @property
    def listed_files(self) -> Sequence[str]:
        return self.commit.paths

    def is_lost(self) -> bool:
        table = self._load()
        if table is None:
            return True
        current = _current(table)
        whole = _whole(current)
        if any(_is_of(snapshot, self.commit) for snapshot in whole):
            return False
        if len(whole) < len(current):
            return True
        # Snapshots expire, the oldest first.
        at = self.commit.published_at
        return not current or is_first(current[-1]) or (bool(at) and datetime.fromisoformat(at) > _time(current[-1]))

    def execute(self, storage: Storage) -> None:
        schema = unified_schema(self.table, self.commit.paths)
        # Of changes of one table that are made at once, all but one are in vain.
        with turn(self.table):
            race(lambda: self._change(schema, self._add_files), self.table, self.commit.dataset_urn)

    def forbid(self) -> None:
        """Note in the table, as a property and by a snapshot without rows, that the commit is abandoned.

        A run that wakes finds the property; one that wakes in its transaction is refused because of the snapshot.
        """

        def note(transaction: Any) -> None:
            transaction.set_properties({self._abandoned: self.commit.dataset_urn})
            with transaction.update_snapshot().fast_append():
                pass  # no file

        def attempt() -> bool:
            table = self._load() or self._new_table()
            if self._abandoned in table.properties or _holds(table, self.commit):
                return True
            return self._commit(table, note)

        forbid_by(attempt, self.table, self.commit)

    def _new_table(self) -> Any:
        """Make the table for the note that its first commit is abandoned."""
        try:
            schema = unified_schema(self.table, self.commit.paths)
        except FileNotFoundError:  # a run that is frozen may move its files here later; the next commit adds columns
            schema = pa.schema([])
        self._create(schema)
        return self._load()

    def _is_over(self, table: Any) -> bool:
        """Return whether the table has the commit; raises StepRefusedError if it must not get it."""
        if _holds(table, self.commit):
            return True
        if self._abandoned in table.properties:
            raise abandoned_error(self, "a property of the table")
        return False

    @property
    def _abandoned(self) -> str:
        """Property of a table in which this commit was abandoned."""
        return f"gobblin.abandoned.{self.commit.commit_id}.{self.commit.branch}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> AppendToIcebergStep:
        """Parse the result of `to_json`."""
        return cls(**{**fields, "commit": TableCommit.from_json(fields["commit"])})

    def describe(self) -> str:
        return f"add {len(self.commit.files)} file(s) to Iceberg table {self.table}"

    def _change(self, schema: Any, write: Callable[[Any, Any], None]) -> bool:
        """Call `write` with the table and a transaction, unless it has the commit; False if another writer was faster.

        The table is made before that, and the transaction adds new columns.
        """
        table = self._load()
        if table is None:
            self._require_names((), schema)
            self._create(schema)
            table = self._load()
        if self._is_over(table):
            return True
        self._require_columns(table.schema(), schema)

        def change(transaction: Any) -> None:
            with transaction.update_schema() as update:
                update.union_by_name(schema)
            self._require_former_names(table, transaction.table_metadata)
            writer = noted_writer(table, self.commit)
            if writer and writer != table.properties.get(WRITER):
                transaction.set_properties({WRITER: writer})
            write(table, transaction)

        return self._commit(table, change)

    def _commit(self, table: Any, change: Callable[[Any], None]) -> bool:
        """Call `change` with a transaction, and commit it; False if another writer was faster."""
        errors = _errors()
        try:
            with table.transaction() as transaction:
                change(transaction)
        except errors.CommitFailedException:
            return False
        except (errors.CommitStateUnknownException, OSError, UnicodeDecodeError, EOFError) as error:
            raise _failed(self.table, self.commit.dataset_urn, error) from error
        except (errors.ValidationError, *_unfit_values()) as error:
            if "already referenced" in str(error):
                return True
            problem = f"{str(error)[:500]}{_place_of(error)}"
            if "Cannot change column type" in problem:
                problem += f"; {OTHER_TYPE_REMEDY}"
            raise StepRefusedError(step=self.describe(), problem=problem) from error
        except GobblinDagsterError:
            raise
        except Exception as error:  # noqa: BLE001  # as in `_load`: a SQL catalog's database that others have locked
            raise _failed(self.table, self.commit.dataset_urn, error) from None
        return True

    def _add_files(self, table: Any, transaction: Any) -> None:
        transaction.add_files(
            self.commit.paths,
            snapshot_properties=self.commit.properties,
            # The snapshot with our commit id may be expired; then only the list of files shows whether we are done.
            check_duplicate_files=not has_whole_history(table),
        )

    def _require_columns(self, known: Any, schema: pa.Schema) -> None:
        """Refuse rows that do not fit the table's columns."""
        self._require_names([column.name for column in known.fields], schema)
        if missing := [one.name for one in known.fields if one.required and not has_column(schema, one.name)]:
            problem = f"column {missing[0]!r} must not be null in the table, and the rows lack it"
            remedy = "add it to them, e.g. by the converter `add`, or make it optional in the table"
            raise StepRefusedError(step=self.describe(), problem=f"{problem}; {remedy}")
        self._require_scales(known.as_arrow(), schema)

    def _require_former_names(self, table: Any, metadata: Any) -> None:
        """Refuse new columns that take the values of others: those were renamed, and older files have the name."""
        known = table.schema()
        lost = _names(table.name_mapping()) - _names(metadata.name_mapping())
        for number, name in sorted(lost):
            if (now := known.find_column_name(number)) is not None:
                problem = (
                    f"column {name!r} was renamed to {now!r} in the table, whose files have it under its former name: "
                    f"a new column {name!r} would take the values of all older rows. Rename it in the rows too, by the "
                    "converter `rename`, or give it back its name in the table"
                )
                raise StepRefusedError(step=self.describe(), problem=problem)

    def _require_scales(self, there: pa.Schema, schema: pa.Schema) -> None:
        """Refuse decimals of another scale: pyiceberg would take them, other readers move the point of older rows."""
        for name, new in zip(schema.names, schema.types, strict=True):
            known = there.field(name).type if has_column(there, name) else new
            common = common_type(known, new)
            given = [known] if self.is_cast else [known, new]
            if common is not None and any("decimal_scale" in widenings(common, kind) for kind in given):
                problem = f"column {name!r} is {known} in the table and {new} in the files"
                remedy = "Iceberg keeps the number of digits behind the point; convert the column with `cast`"
                raise StepRefusedError(step=self.describe(), problem=f"{problem}; {remedy}")

    def _require_names(self, there: Sequence[str], schema: Any) -> None:
        # The table could hold both, but most of its readers ignore case.
        require_names(self.describe(), "Spark, Trino and Hive do", there, schema)

    def _load(self) -> Any:
        """Return the newest state of the table; None if it does not exist; raises StorageError."""
        table = self._catalog.load(self.table, self.commit.dataset_urn)
        if table is not None:
            # Only in our copy, never stored: pyiceberg would retry by itself, and not notice that another run published
            # the same commit in between.
            metadata = table.metadata
            properties = {**metadata.properties, "commit.retry.num-retries": "0"}
            table.metadata = metadata.model_copy(update={"properties": properties})
        return table

    @property
    def _catalog(self) -> IcebergCatalog:
        return IcebergCatalog(self.catalog_name, self.catalog, self.catalog_env)

    def _create(self, schema: Any) -> None:
        try:
            catalog = self._catalog.open()
            catalog.create_namespace_if_not_exists(self.table.rpartition(".")[0])
            catalog.create_table_if_not_exists(self.table, schema=schema)
        except _unfit_values() as error:
            raise StepRefusedError(step=f"make Iceberg table {self.table}", problem=str(error)[:500]) from error
        except Exception as error:  # noqa: BLE001  # as in `IcebergCatalog.load`
            raise _failed(self.table, self.commit.dataset_urn, error) from None


@register_commit_step
@dataclass(frozen=True, slots=True, kw_only=True)
class MergeIntoIcebergStep(AppendToIcebergStep):
    """Merge the rows of staged files into an Iceberg table in one transaction; known by the same commit id.

    The transaction has two snapshots: one without the files that are written again, and one with all rows. Readers see
    the second one, unless somebody sets the table back to the first. If both were expired before a crash was made good,
    the merge is repeated, with the same rows.
    """

    type_name: ClassVar[str] = "merge_into_iceberg"
    is_cast: ClassVar[bool] = True

    rule: MergeRule

    @property
    def loaded_bytes(self) -> int:
        """Bytes of the staged files."""
        return self.commit.size_bytes

    def execute(self, storage: Storage) -> None:
        changes = staged_changes(self.describe(), self.table, self.commit, self.rule)

        columns = self.rule.columns(changes.schema)

        def write(table: Any, transaction: Any) -> None:
            merge(self.describe(), table, transaction, changes, self.rule, self.commit)

        with turn(self.table):  # as in `AppendToIcebergStep`
            race(lambda: self._change(columns, write), self.table, self.commit.dataset_urn)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> MergeIntoIcebergStep:
        """Parse the result of `to_json`."""
        rule, commit = MergeRule.from_json(fields["rule"]), TableCommit.from_json(fields["commit"])
        return cls(**{**fields, "rule": rule, "commit": commit})

    def _new_table(self) -> Any:
        self._create(self.rule.columns(staged_changes(self.describe(), self.table, self.commit, self.rule).schema))
        return self._load()

    def _require_columns(self, known: Any, schema: pa.Schema) -> None:
        require_key(self.describe(), self.rule, [column.name for column in known.fields])
        AppendToIcebergStep._require_columns(self, known, schema)  # classes with slots have no `super()`

    def describe(self) -> str:
        rows = sum(file.rows for file in self.commit.files)
        return f"merge {rows:,} row(s) into Iceberg table {self.table} by {', '.join(self.rule.key)}"


def newest_commits(table: Any, job: str) -> dict[str, list[NotedCommit]]:
    """Return the newest commit of each branch of a job that the table holds now, by dataset.urn."""
    newest: dict[tuple[str, str], NotedCommit] = {}
    current = _current(table)
    whole = len(_whole(current))
    for place, snapshot in enumerate(current):
        facts = _facts(snapshot)
        if facts.get("gobblin.job") == job:
            commit = NotedCommit(facts["gobblin.commit-id"], _time(snapshot), "" if place < whole else _SET_BACK)
            newest.setdefault((facts["gobblin.dataset-urn"], facts["gobblin.branch"]), commit)
    found: dict[str, list[NotedCommit]] = {}
    for (urn, _), commit in newest.items():
        found.setdefault(urn, []).append(commit)
    return found


def _size(files: Any, path: str) -> int | None:
    try:
        return len(files.new_input(path))
    except FileNotFoundError:
        return None


def _names(mapping: Any) -> set[tuple[int, str]]:
    """Return the names under which files have columns, by the number of the column, those in structs too."""
    found: set[tuple[int, str]] = set()
    waiting = list(mapping.root) if mapping is not None else []
    while waiting:
        one = waiting.pop()
        found |= {(one.field_id, name) for name in one.names if one.field_id is not None}
        waiting += one.fields
    return found


def _current(table: Any) -> list[Any]:
    """Return the snapshots that led to what the table holds now, newest first, as far back as they are kept.

    The table also lists those that were undone by a rollback, and those of other branches.
    """
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    found = []
    snapshot = by_id.get(table.metadata.current_snapshot_id)
    while snapshot is not None:
        found.append(snapshot)
        snapshot = by_id.get(snapshot.parent_snapshot_id)
    return found


def _whole(current: Sequence[Any]) -> Sequence[Any]:
    """Return those of the current snapshots whose rows the table has: all, unless it was set back into a merge.

    A merge takes files out in one snapshot, and puts its rows and all others of these files in with the next, an
    append. Both have its id (in tables of all versions), so one without the other shows where the table was set back.
    Older snapshots are left out too, of any dataset: nobody knows whose rows the files had.
    """
    newer = None
    for place, snapshot in enumerate(current):
        commit = _commit_of(snapshot)
        if commit[0] is not None and not _is_append(snapshot) and (newer is None or _commit_of(newer) != commit):
            return current[:place]
        newer = snapshot
    return current


def _time(snapshot: Any) -> datetime:
    return datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)


def _failed(table: str, dataset_urn: str, error: Exception) -> StorageError:
    # The text of the catalog's error may contain its URL with a password, or a statement with values, so only its type
    # and number are shown, and what the driver of a database says.
    said = f": {os.strerror(error.errno)}" if isinstance(error, OSError) and error.errno else ""
    if type(error) is OSError and not said:  # Arrow's, of a file; requests and others raise classes of their own
        reason = _LOGIN.sub("//", hidden(str(error)).partition("\n")[0])
        said = f": {reason[:_MOST_SAID].rstrip('.')}"
    if isinstance(error, DBAPIError) and error.orig is not None:
        said = f": {_LOGIN.sub('//', hidden(first_line(error.orig))).rstrip('.')}{folder_hint(error)}"
    place = _place_of(error)
    remedy = "; if it is damaged or gone, bring it back from a copy of the table" if place else ""
    return StorageError(
        operation="publish to Iceberg table",
        path=table,
        problem=f"its catalog or its files failed with {type(error).__name__}{said}{place}{remedy}",
        dataset_urn=dataset_urn or None,
    )


def _place_of(error: Exception) -> str:
    """Say which file of a table was being read; pyiceberg's errors do not, so the calls that they left are asked."""
    with optional_package("pyiceberg"):
        from pyiceberg.io import InputFile  # noqa: PLC0415  # optional package

    calls = [call.f_locals for call, _ in traceback.walk_tb(error.__traceback__)]
    read = [one.location for names in calls for one in names.values() if isinstance(one, InputFile)]
    return f", at {read[-1]}" if read else ""


def _errors() -> Any:
    """Return pyiceberg's errors; raises EnvironmentFaultError if it is not installed."""
    with optional_package("pyiceberg"):
        from pyiceberg import exceptions  # noqa: PLC0415  # optional package
    return exceptions


def _unfit_values() -> tuple[type[Exception], ...]:
    """Return the exceptions of pyiceberg for types and values that Iceberg does not have; retries do not help."""
    with optional_package("pyiceberg"):
        from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException  # noqa: PLC0415  # optional package

    return (ValueError, TypeError, NotImplementedError, OverflowError, struct.error, UnsupportedPyArrowTypeException)


def _holds(table: Any, commit: TableCommit) -> bool:
    return any(_is_of(snapshot, commit) for snapshot in table.metadata.snapshots)


def _is_of(snapshot: Any, commit: TableCommit) -> bool:
    return _commit_of(snapshot) == (commit.commit_id, commit.branch)


def _commit_of(snapshot: Any) -> tuple[str | None, str | None]:
    facts = _facts(snapshot)
    return facts.get("gobblin.commit-id"), facts.get("gobblin.branch")


def _is_append(snapshot: Any) -> bool:
    return str(snapshot.summary.operation.value) == "append"


def _facts(snapshot: Any) -> Mapping[str, Any]:
    return snapshot.summary.additional_properties if snapshot.summary is not None else {}
