"""Code shared by publishers of tables: base class, facts of a publication as JSON, reading of Parquet files."""

from __future__ import annotations

import errno
import logging
import os
import random
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel

from gobblin_dagster.constructs.clients.environment import from_environment
from gobblin_dagster.constructs.types.arrow import has_part, parts_of
from gobblin_dagster.constructs.types.plain import plain_schema
from gobblin_dagster.constructs.types.plain_parquet import plain_batches
from gobblin_dagster.core.commit import CommitStep
from gobblin_dagster.core.constructs import ConstructContext, Publication, PublishView
from gobblin_dagster.core.errors import GobblinDagsterError, StepRefusedError, StorageError, UsageError
from gobblin_dagster.core.secrets import has_literal_password, is_secret_name
from gobblin_dagster.core.utils.duplicates import alike
from gobblin_dagster.storage.arrow import arrow_files

OptionsT = TypeVar("OptionsT", bound=BaseModel)
log = logging.getLogger(__name__)
TRIES = 12
"""Number of attempts against other writers of one table; after that, the next run publishes."""
OTHER_TYPE_REMEDY = "convert it back in the job (converter `cast`), or give the job the `schema_contract` `discard`"
"""How rows whose column has another type than the table's are published after all."""
_LONGEST_WAIT_S = 2.0


@dataclass(frozen=True, slots=True)
class TableFile:
    """A published file, as stored in a step."""

    path: str
    size_bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class TableCommit:
    """The content of one publication, and the id by which the table knows it for ever."""

    commit_id: str
    job: str
    run_id: str
    dataset_urn: str
    branch: str
    low: str
    high: str
    files: tuple[TableFile, ...]
    published_at: str = ""
    """When the publication was decided, in UTC, as text that sorts by time; empty in steps stored by earlier
    versions."""

    @classmethod
    def of(cls, view: PublishView, *, staged: bool = False) -> TableCommit:
        """Return the content of a publication; `staged`: with the paths of staged files instead of published ones.

        Raises:
            UsageError: a file is not Parquet.
        """
        for file in view.files:
            if not is_parquet(file.path):
                raise UsageError(
                    problem=f"Branch {view.branch!r}: its publisher takes Parquet files, got {file.path}.",
                    hint="Give the branch `writer: {type: parquet}`.",
                )
        places = view.staged if staged else {file.path: file.path for file in view.files}
        files = tuple(TableFile(places[file.path], file.size_bytes, file.rows) for file in view.files)
        return cls(
            view.commit_id,
            view.job,
            view.run_id,
            view.dataset_urn,
            view.branch,
            view.low,
            view.high,
            files,
            view.now.astimezone(UTC).isoformat(timespec="microseconds"),
        )

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> TableCommit:
        """Parse the result of `dataclasses.asdict`."""
        files = tuple(TableFile(**file) for file in fields["files"])
        return cls(**{**fields, "files": files})

    @property
    def properties(self) -> dict[str, str]:
        """Properties for the table's own history: enough to find the run, and to continue from the table's state."""
        return {
            "gobblin.commit-id": self.commit_id,
            "gobblin.job": self.job,
            "gobblin.run-id": self.run_id,
            "gobblin.dataset-urn": self.dataset_urn,
            "gobblin.branch": self.branch,
            "gobblin.low-watermark": self.low,
            "gobblin.high-watermark": self.high,
        }

    @property
    def size_bytes(self) -> int:
        """Size of the files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def paths(self) -> list[str]:
        """Paths of the files."""
        return [file.path for file in self.files]


@runtime_checkable
class KnowsLosses(Protocol):
    """A step of a table or topic that knows better than by `verify` whether its rows were lost since."""

    def is_lost(self) -> bool:
        """Return True if the target, as it is now, was made or brought back without the commit.

        `verify` may differ: a note can outlive its rows, and a history forgets its oldest commits.

        Raises:
            StorageError, StepRefusedError, EnvironmentFaultError: the target cannot be asked.
        """


@runtime_checkable
class HasPlace(Protocol):
    """A step that knows the place of its table or topic."""

    @property
    def place(self) -> str:
        """The table or topic, as `PublisherTraits.keeps_rows_in`, of its dataset; empty if that is not known here."""


@runtime_checkable
class AimsSteps(Protocol):
    """A publisher that can ask its table or topic for the rows of a step that was stored with other settings."""

    def aimed(self, step: CommitStep, folder: str) -> CommitStep | None:
        """Return a stored step as it would be with the settings of now; None if it is no step of such a publisher.

        Args:
            step: a step of the job, which was committed.
            folder: absolute folder of the branch's files.
        """


class TablePublisher(ABC, Generic[OptionsT]):
    """Put a branch's Parquet files into a table or topic, in one step that can check there whether it is done."""

    published_elsewhere: ClassVar[str]
    publishes_files: bool = True

    def __init__(self, options: OptionsT, context: ConstructContext) -> None:
        self._options = options
        self._context = context

    def unfit_writer(self, type_name: str, options: Mapping[str, Any]) -> str:
        """Return why the branch's writer does not fit this publisher; empty if it does."""
        return unfit_type(type_name)

    def publish(self, view: PublishView) -> Publication:
        steps = (self._step(view),) if self._has_work(view) else ()
        return Publication(steps=steps, publishes_files=self.publishes_files)

    def _has_work(self, view: PublishView) -> bool:
        return bool(view.files)

    @abstractmethod
    def _step(self, view: PublishView) -> CommitStep:
        """Return the step; raises UsageError if the table or topic cannot take the files."""


def is_parquet(path: str) -> bool:
    """Return whether a published file was written as Parquet."""
    return path.endswith(".parquet")


def unfit_type(writer: str) -> str:
    """Return why a publisher that reads Parquet cannot use a type of writer; empty if it can."""
    return (
        ""
        if writer == "parquet"
        else f"it takes Parquet files; give the branch `writer: {{type: parquet}}`, not {writer!r}"
    )


def open_parquet(path: str) -> pq.ParquetFile:
    """Open a published file; reads only its footer until rows are asked for. Raises OSError, StorageError."""
    files, (inside,) = arrow_files([path])
    try:
        opened = files.open_input_file(inside)
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error  # Arrow's has no file name
    try:
        # With pre-buffering, the whole file would be kept in memory.
        return pq.ParquetFile(opened, pre_buffer=False)
    except pa.ArrowInvalid as error:
        problem = f"the file is damaged: {str(error).rstrip('.')}"
        raise StorageError(operation="read", path=path, problem=problem) from error


def batches_of(paths: Sequence[str], rows: int, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of published files in plain batches of at most `rows`; keeps at most one row group in memory.

    Given `columns`, files without one of them are left out.
    """
    for path in paths:
        with open_parquet(path) as file:
            if columns is None or set(columns) <= set(file.schema_arrow.names):
                yield from plain_batches(file, rows, columns)


def unified_schema(table: str, paths: Sequence[str]) -> pa.Schema:
    """Return one plain schema for files that may differ in columns or the width of types; raises StepRefusedError."""
    schemas = []
    for path in paths:
        with open_parquet(path) as file:
            schemas.append(plain_schema(file.schema_arrow.remove_metadata()))
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise StepRefusedError(step=f"publish to {table}", problem=f"its files disagree: {error}") from error


def require_names(step: str, who: str, there: Iterable[str], schema: pa.Schema) -> None:
    """Raise StepRefusedError if a column of the files differs from another column in case only.

    Args:
        step: name of the step, for the message.
        who: the readers that ignore case, for the message: `"Delta does"`.
        there: names of the table's columns.
        schema: schema of the files; names inside structs are compared too.
    """
    known = {*there}
    new = [name for name in schema.names if name not in known]
    folded = {name.lower() for name in new}
    pair = alike([*(name for name in there if name.lower() in folded), *new], str.lower)
    for names in (pair, *(alike(names, str.lower) for names in _struct_names(schema))):
        if names is not None:
            problem = f"columns {names[0]!r} and {names[1]!r} differ in case only, which {who} not see; rename one"
            raise StepRefusedError(step=step, problem=problem)


def unfit_type_in(schema: pa.Schema, tests: Iterable[tuple[Callable[[pa.DataType], bool], str]]) -> str:
    """Return which column a table cannot hold, and what to do; empty if it can hold all.

    Args:
        schema: of the rows.
        tests: for each kind of type that the table does not hold, at any depth, a test and what is wrong with it.
    """
    for column in schema:
        for test, problem in tests:
            if has_part(column.type, test):
                return f"column {column.name!r} is {column.type}, {problem}"
    return ""


def is_extension(kind: pa.DataType) -> bool:
    """Return whether a type is an extension of Arrow, such as `arrow.json`."""
    return isinstance(kind, pa.BaseExtensionType)


def holds_extension(kind: pa.DataType) -> bool:
    """Return whether a list, struct or map has an extension of Arrow inside, which few of its functions take."""
    return any(map(is_extension, list(parts_of([kind]))[1:]))


def is_foreign_decimal(kind: pa.DataType) -> bool:
    """Return whether a type is a decimal of another width than the one that tables and their libraries know."""
    return bool(pa.types.is_decimal(kind) and not pa.types.is_decimal128(kind))


def _struct_names(schema: pa.Schema) -> Iterator[list[str]]:
    """Yield the field names of each struct, at any depth."""
    for kind in parts_of(schema.types):
        if pa.types.is_struct(kind):
            yield [field.name for field in kind]


def without_secrets(settings: dict[str, str], env_option: str) -> dict[str, str]:
    """Return settings that may be stored with a commit sequence.

    Raises ValueError, without the value, if one is secret.
    """
    secret = sorted(name for name, value in settings.items() if is_secret_name(name) or has_literal_password(value))
    if secret:
        raise ValueError(f"{', '.join(secret)} must hold no secret; name the environment variable in `{env_option}`")
    return settings


def resolved(settings: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return settings together with those from environment variables; raises EnvironmentFaultError."""
    return {**settings, **from_environment(variables, "publisher's setting", "Set it where the commit runs.")}


_turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


def turn(table: str) -> AbstractContextManager[bool]:
    """Return a lock for changes of one table by the threads of this process; each change reads what it replaces."""
    return _turns[table]


def race(attempt: Callable[[], bool], table: str, dataset_urn: str) -> None:
    """Call `attempt` until it returns True; wait longer after each lost attempt, and after each StorageError.

    Raises:
        StorageError: all attempts were lost to other writers, or the last one raised this error; the next run tries
        again.
    """
    lost: StorageError | None = None
    for number in range(TRIES):
        if number:
            # The random factor separates competing writers; it protects no secret.
            time.sleep(random.uniform(0.5, 1) * min(0.02 * 2**number, _LONGEST_WAIT_S))  # noqa: S311
        try:
            if attempt():
                return
        except StorageError as error:
            lost = error
    problem = f"others were faster {TRIES} times"
    raise lost or StorageError(operation="publish to table", path=table, problem=problem, dataset_urn=dataset_urn)


def forbid_by(attempt: Callable[[], bool], table: str, commit: TableCommit) -> None:
    """Call `race` for the note that a commit is abandoned; where the table cannot take it, the log says so.

    A table that is gone or broken, or files that are, must not keep a person from abandoning what waits for them.
    """
    try:
        race(attempt, table, commit.dataset_urn)
    except (GobblinDagsterError, OSError, pa.ArrowException) as error:
        say_not_noted(table, commit, f"{str(error).rstrip('.')}.")


def abandoned_error(step: CommitStep, target: str) -> StepRefusedError:
    """Return the error for a step that a target notes as abandoned: its rows are not there, and must not get there."""
    problem = (
        f"{target} notes that this commit was abandoned, so it never gets the rows. If the state store still has the "
        "commit: abandon it once more (`gobblin commit abandon`), and the next run reads its rows again"
    )
    return StepRefusedError(step=step.describe(), problem=problem)


def say_not_noted(target: str, commit: TableCommit, problem: str) -> None:
    """Log that a target could not take the note that a commit is abandoned."""
    log.warning(
        "%s could not note that commit %s is abandoned: %s If a run was frozen while it published, end it.",
        target,
        commit.commit_id,
        problem,
    )
