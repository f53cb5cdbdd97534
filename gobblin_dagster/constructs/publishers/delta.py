"""DeltaPublisher: add published Parquet files to a Delta table, without writing them again."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal
from urllib.parse import unquote

import pyarrow as pa
from pydantic import Field, field_validator

from gobblin_dagster.constructs.publishers.tables import (
    TableCommit,
    TableFile,
    TablePublisher,
    race,
    require_names,
    resolved,
    unified_schema,
    without_secrets,
)
from gobblin_dagster.constructs.types.arrow import has_part
from gobblin_dagster.constructs.writers.partitions import NULL_SEGMENT
from gobblin_dagster.core.constructs import PublishView
from gobblin_dagster.core.errors import StepRefusedError, StorageError, UsageError
from gobblin_dagster.core.step_registry import register_commit_step
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.utils.optional_packages import optional_package
from gobblin_dagster.spec.job import SpecModel

_VOID = '"void"'
"""Delta's type of columns that have only nulls, in its text form."""


class DeltaOptions(SpecModel):
    """Options of the publisher `delta`."""

    table: Literal["branch", "dataset"] = "branch"
    """`branch`: one table for the branch of all datasets, in the folder `<namespace>/<table>/<branch>` of the output.
    `dataset`: a table in each dataset's own folder."""
    storage_options: dict[str, str] = Field(default_factory=dict)
    """Settings of the table's storage for deltalake, e.g. `{AWS_ENDPOINT_URL: ...}`; default: deltalake's own
    defaults."""
    storage_options_env: dict[str, str] = Field(default_factory=dict)
    """Environment variables by name of the setting. They are read when publishing, and never written to plans, logs or
    state."""

    @field_validator("storage_options")
    @classmethod
    def _no_secrets(cls, settings: dict[str, str]) -> dict[str, str]:
        return without_secrets(settings, "storage_options_env")


class DeltaPublisher(TablePublisher[DeltaOptions]):
    """Add the branch's files to a Delta table, exactly once; the table stores the dataset's progress as transaction id.

    Folders of `partition_by` become the table's partition columns. New columns are added to the table; a column of
    another type is refused.

    Source: none; Gobblin does not publish to Delta.
    """

    packages = ("deltalake",)
    Options = DeltaOptions
    published_elsewhere = "a Delta table"

    def _step(self, view: PublishView) -> AppendToDeltaStep:
        options, commit = self._options, TableCommit.of(view)
        location = view.folder if options.table == "dataset" else posixpath.dirname(view.folder)
        if "%" in location:
            raise UsageError(
                problem=f"Branch {view.branch!r}: there can be no Delta table at {location}: the library that writes "
                "it cannot open folders with `%` in their names.",
                hint="Give its publisher `table: branch`.",
            )
        return AppendToDeltaStep(
            location, commit, _transaction_number(view.now), options.storage_options, options.storage_options_env
        )


@register_commit_step
@dataclass(frozen=True, slots=True)
class AppendToDeltaStep:
    """Add files to a Delta table in one version; done if the table's transaction id of the dataset is our number."""

    type_name: ClassVar[str] = "append_to_delta"
    version: ClassVar[int] = 1

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

    def execute(self, storage: Storage) -> None:
        schema = unified_schema(self.location, self.commit.paths)
        race(lambda: self._append(schema), self.location, self.commit.dataset_urn)

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
        return f"gobblin/{self.commit.job}/{self.commit.dataset_urn}/{self.commit.branch}"

    def _append(self, schema: pa.Schema) -> bool:
        """Add the files unless the table has them; False if another writer changed the table in between."""
        deltalake = _deltalake()
        partitions = list(_partition_values(self.location, self.commit.files[0]))
        if len({tuple(_partition_values(self.location, file)) for file in self.commit.files}) > 1:
            raise StepRefusedError(
                step=self.describe(), problem="its files are in folders of different partition columns"
            )
        for name in partitions:
            if name not in schema.names:
                schema = schema.append(pa.field(name, pa.string()))
        try:
            table = self._load() or self._create(schema, partitions)
            if self._is_in(table):
                return True
            table = self._with_columns(table, schema)
            table.create_write_transaction(
                [self._action(file) for file in self.commit.files],
                "append",
                table.schema(),
                partition_by=partitions or None,
                commit_properties=deltalake.CommitProperties(
                    custom_metadata=self.commit.properties,
                    # Never retried inside deltalake: another run may have published this very commit in between.
                    max_commit_retries=0,
                    app_transactions=[deltalake.Transaction(self._application, self.number)],
                ),
            )
        except deltalake.exceptions.CommitFailedError:
            return False
        except deltalake.exceptions.SchemaMismatchError as error:
            raise StepRefusedError(step=self.describe(), problem=str(error)[:500]) from error
        except (deltalake.exceptions.DeltaError, OSError) as error:
            raise self._failed(error) from error
        return True

    def _load(self) -> Any:
        """Return the newest state of the table; None if it does not exist."""
        deltalake = _deltalake()
        try:
            return deltalake.DeltaTable(self.location, storage_options=self._options())
        except deltalake.exceptions.TableNotFoundError:
            return None
        except (deltalake.exceptions.DeltaError, OSError) as error:
            raise self._failed(error) from error

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

    def _with_columns(self, table: Any, schema: pa.Schema) -> Any:
        """Return the table with all columns of the files; raises StepRefusedError if a type differs."""
        known = {column.name: column for column in table.schema().fields}
        require_names(self.describe(), "Delta does", known, schema)
        ours = self._fields(schema).fields
        for column in ours:
            if column.name in known and known[column.name].type != column.type:
                types = (known[column.name].type, column.type)
                problem = f"column {column.name!r} is {types[0]} in the table and {types[1]} in the files"
                if any(_VOID in str(kind) for kind in types):
                    problem += "; a column with nothing but nulls needs a type, e.g. by the converter `columns`"
                raise StepRefusedError(step=self.describe(), problem=problem)
        if missing := [column for column in ours if column.name not in known]:
            table.alter.add_columns(missing)
            table = self._load()
        return table

    def _fields(self, schema: pa.Schema) -> Any:
        for column in schema:
            if has_part(column.type, lambda kind: pa.types.is_timestamp(kind) and kind.unit == "ns"):
                raise self._unfit(column, "Delta keeps microseconds; cast it to timestamp[us]")
            if has_part(column.type, pa.types.is_unsigned_integer):
                # The library would convert them to signed types of the same width, which readers fail to read for large
                # values.
                raise self._unfit(column, "Delta has signed integers only; cast it to one")
        require_names(self.describe(), "Delta does", (), schema)
        try:
            # Later files may have nulls where these have none.
            return _deltalake().Schema.from_arrow(pa.schema([column.with_nullable(True) for column in schema]))
        except Exception as error:  # the library raises no type of its own here
            problem = str(error).partition("\n")[0][:300]
            raise StepRefusedError(step=self.describe(), problem=problem) from error

    def _unfit(self, column: pa.Field, problem: str) -> StepRefusedError:
        return StepRefusedError(step=self.describe(), problem=f"column {column.name!r} is {column.type}, {problem}")

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

    def _failed(self, error: Exception) -> StorageError:
        return StorageError(
            operation="publish to Delta table",
            path=self.location,
            problem=f"{type(error).__name__}: {str(error)[:300]}",
            dataset_urn=self.commit.dataset_urn,
        )


def _deltalake() -> Any:
    """Return the library; raises EnvironmentFaultError if it is not installed."""
    with optional_package("deltalake"):
        import deltalake  # noqa: PLC0415  # optional package
    return deltalake


def _transaction_number(now: datetime) -> int:
    return int(now.timestamp() * 1_000_000)


def _partition_values(location: str, file: TableFile) -> dict[str, str | None]:
    """Return the partition columns of a file with their values, from the names of its folders."""
    values: dict[str, str | None] = {}
    for segment in file.path.removeprefix(location + "/").split("/")[:-1]:
        name, mark, value = segment.partition("=")
        if mark:
            values[unquote(name)] = None if value == NULL_SEGMENT else unquote(value)
    return values
