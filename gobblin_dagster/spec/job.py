"""JobSpec: the content of a job file, as frozen models that refuse unknown keys.

Options of constructs (`type: ...`) are kept unchecked here; the registry checks them, so that this package need not
import `constructs`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, field_validator, model_validator

from gobblin_dagster.core.extract import Extract, ExtractType
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.core.utils.duplicates import repeated
from gobblin_dagster.core.utils.url_text import path_problem
from gobblin_dagster.spec.asset import AssetSettings
from gobblin_dagster.spec.model import SpecModel as SpecModel  # noqa: PLC0414  # others import it from here
from gobblin_dagster.spec.numbers import ExactNumbers
from gobblin_dagster.spec.schedule import ScheduleSpec

NAME_PATTERN = r"^[A-Za-z][A-Za-z0-9_]{0,62}$"
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
"""Letters, digits and `_`, beginning with a letter: valid as a folder name, in Dagster and in SQL."""

Mode = Annotated[str, StringConstraints(pattern=r"^0?[0-7]{3}$")]
"""File permissions as octal text."""


class ConstructSpec(ExactNumbers):
    """A construct: its registered name in `type`, and its options. A name alone means a construct without options."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str
    """Registered short name, e.g. `files`, `sql`, `parquet`; `gobblin schema` lists them with their options."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"type": value} if isinstance(value, str) else value

    @property
    def options(self) -> dict[str, Any]:
        """All keys that are not fields of the spec."""
        return dict(self.model_extra or {})


class OnError(StrEnum):
    """What happens to a row that a converter cannot convert."""

    FAIL = "fail"
    """The work unit fails."""
    SKIP = "skip"
    """The row is dropped, counted and shown."""
    QUARANTINE = "quarantine"
    """The row is published to the dataset's quarantine, as the converter got it, with the reason."""


class ConverterSpec(ConstructSpec):
    """A converter; the other keys are options of its type."""

    name: Name | None = None
    """Name in reports and beside quarantined rows; default: its type."""
    on_error: OnError = OnError.FAIL
    """What happens to a row that cannot be converted: `fail` fails the work unit, `skip` drops the row, `quarantine`
    publishes it to the quarantine. With `skip` and `quarantine`, the other rows of the batch are converted."""
    max_errors: int = Field(default=1000, ge=0)
    """Rows of a work unit that may be skipped or quarantined; if there are more, the work unit fails."""

    @property
    def label(self) -> str:
        """The name in reports."""
        return self.name or self.type


class OnViolation(StrEnum):
    """What happens to a row that breaks a row-level policy; Gobblin's FAIL, OPTIONAL and ERR_FILE are accepted too.

    Source: gobblin-core `RowLevelPolicy.Type` (FAIL, OPTIONAL, ERR_FILE). Differs: OPTIONAL drops rows silently; here
    dropped rows are counted and shown.
    """

    FAIL = "fail"
    """The work unit fails."""
    DROP = "drop"
    """The row is dropped, counted and shown."""
    QUARANTINE = "quarantine"
    """The row is published to the dataset's quarantine, with policy, reason, file and row number."""

    @classmethod
    def _missing_(cls, value: object) -> OnViolation | None:
        return {"FAIL": cls.FAIL, "OPTIONAL": cls.DROP, "ERR_FILE": cls.QUARANTINE}.get(str(value))


class SchemaContract(StrEnum):
    """What a branch may publish if its rows have other columns or types than it published before."""

    EVOLVE = "evolve"
    """New columns are added (nullable), and types may become wider. Missing columns are written as null, and narrower
    types as the published ones. Any other change of a type fails the work unit."""
    FREEZE = "freeze"
    """Any change fails the work unit."""
    DISCARD = "discard"
    """The published schema stays: new columns are left out, missing columns are written as null, and values are cast
    to the published types. A value that does not fit fails the work unit."""
    DISCARD_ROW = "discard_row"
    """The published schema stays, as with `discard`; rows with a value in a new column, or with one that does not fit
    the published type, go to the quarantine."""
    FAIL = "fail"
    """A missing column, or a type that is not wider than the published one, fails the work unit, because readers could
    not read it. New columns and wider types are written unchanged."""

    @classmethod
    def _missing_(cls, value: object) -> SchemaContract | None:
        return cls.DISCARD if value == "discard_value" else None  # as dlt calls it


class RowPolicySpec(ConstructSpec):
    """A row-level policy; the other keys are options of its type."""

    name: Name
    """Name in reports and beside quarantined rows."""
    on_violation: OnViolation = OnViolation.QUARANTINE
    """What happens to a row that breaks the policy: `fail` fails the work unit, `drop` drops the row, `quarantine`
    publishes it to the quarantine."""
    max_share: float | None = Field(default=None, ge=0, le=1)
    """Share of a work unit's rows that may break the policy (0.01 means 1%); if it is exceeded, the work unit fails at
    its end. Default: no limit."""

    @model_validator(mode="after")
    def _share_needs_rows_that_pass(self) -> Self:
        if self.max_share is not None and self.on_violation is OnViolation.FAIL:
            raise ValueError(
                "max_share needs on_violation drop or quarantine: with fail the first row ends the work unit"
            )
        return self


class TaskPolicySpec(ConstructSpec):
    """A task-level policy, checked on each branch of each work unit before publishing."""

    name: Name | None = None
    """Name in reports; default: its type."""
    enforce: bool = True
    """True: the work unit fails if the policy does not hold (Gobblin's FAIL). False: the outcome is only recorded
    (OPTIONAL)."""

    @field_validator("enforce", mode="before")
    @classmethod
    def _gobblin_type(cls, given: object) -> object:
        # Gobblin's documentation of the fork operator says FAILED, its code FAIL.
        return {"FAIL": True, "FAILED": True, "OPTIONAL": False}.get(given, given) if isinstance(given, str) else given


MAX_CONVERTERS = 200
"""Most converters in a row: each is a generator over the one before, and Python bounds how deep these stand."""


def _require_few(converters: tuple[ConverterSpec, ...]) -> tuple[ConverterSpec, ...]:
    if len(converters) > MAX_CONVERTERS:
        raise ValueError(
            f"expected at most {MAX_CONVERTERS} converters in a row, got {len(converters)}; most converters take many "
            "columns at once, and `sql` or `function` does the work of many"
        )
    return converters


Converters: TypeAlias = Annotated[tuple[ConverterSpec, ...], AfterValidator(_require_few)]
"""Converters, each of which gets the rows of the one before."""


class BranchSpec(SpecModel):
    """One branch of the fork: its own converters, policies and writer."""

    name: Name
    """Name of the branch: last part of its Dagster asset key, and part of its folder."""
    converters: Converters = ()
    """Applied in order, after the fork."""
    row_policies: tuple[RowPolicySpec, ...] = ()
    """Applied in order, after the branch's converters."""
    task_policies: tuple[TaskPolicySpec, ...] | None = None
    """Default: the job's `task_policies`."""
    writer: ConstructSpec | None = None
    """Default: the job's `writer`."""
    publisher: ConstructSpec | None = None
    """Default: the job's `publisher`."""
    schema_contract: SchemaContract | None = None
    """`evolve`, `freeze`, `discard`, `discard_row` or `fail`; default: the job's `schema_contract`."""
    path: str = "{namespace}/{table}/{branch}/{dataset}"
    """Folder of a dataset's files, below `output.path`. Folder names may hold `{namespace}`, `{table}` and `{branch}`;
    the last folder is `{dataset}`, the percent-encoded dataset.urn. Branches must have different folders. If you
    change it, published files stay where they are and stay readable."""

    @field_validator("path")
    @classmethod
    def _plain_path(cls, path: str) -> str:
        *folders, last = path.split("/")
        if last != "{dataset}" or not folders:
            raise ValueError(f"a path is one or more folders and then {{dataset}}, as raw/{{dataset}}; got {path!r}")
        for folder in folders:
            if not _FOLDER.fullmatch(folder):
                raise ValueError(
                    f"the folder {folder!r} of path {path!r} may hold letters, digits, `_`, `-`, `.`, {{namespace}}, "
                    "{table} and {branch}, and must not begin with `_`, `-` or `.`"
                )
        return path

    @field_validator("name")
    @classmethod
    def _not_reserved(cls, name: str) -> str:
        used_for = {QUARANTINE_BRANCH: "rejected rows", PRE_FORK: "rows rejected before the fork"}.get(name)
        if used_for:
            raise ValueError(f"the name {name!r} is reserved for {used_for}; choose another")
        return name

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        _require_names_to_differ(self.converters, self.row_policies)
        return self


# Folders that begin with `_` or `.` are ours (`_gobblin`), lead elsewhere (`..`), or are hidden from readers. Readers
# would take `a=b` as a partition column.
_FOLDER = re.compile(
    r"(?:[A-Za-z0-9]|\{(?:namespace|table|branch)\})(?:[A-Za-z0-9_.-]|\{(?:namespace|table|branch)\})*"
)

QUARANTINE_BRANCH = "quarantine"
"""Name of the branch that holds rejected rows, in folders and manifests; reserved."""
PRE_FORK = "pre_fork"
"""Name, in the records of rejected rows, of the part before the fork; reserved, because the others are branch names."""


def _require_names_to_differ(converters: Sequence[ConverterSpec], policies: Sequence[RowPolicySpec]) -> None:
    """Raise ValueError if two parts that reject rows have the same name, so that reports could not tell them apart."""
    names = [policy.name for policy in policies]
    names += [converter.label for converter in converters if converter.on_error is not OnError.FAIL]
    if twice := repeated(names):
        raise ValueError(
            f"names of row policies and of converters with on_error must differ, got {', '.join(twice)} more than once"
        )


class ForkSpec(SpecModel):
    """The fork operator and its branches.

    Source: `fork.operator.class`, `fork.branches`, `fork.branch.name.<i>`.
    """

    operator: ConstructSpec = Field(default_factory=lambda: ConstructSpec(type="identity"))
    """Chooses the rows of each branch; default: every branch gets all rows."""
    branches: tuple[BranchSpec, ...] = Field(min_length=1)
    queue_capacity: int = Field(default=8, ge=1, le=1000)
    """Batches that may wait before each branch. Branches run in parallel, each in its own thread; a larger number needs
    more memory. Source: `fork.record.queue.capacity`, which counts records."""
    queue_timeout_s: float = Field(default=1.0, gt=0, le=60)
    """Seconds that the fork or a branch waits at the queue before it checks whether the other side still works.
    Source: `fork.record.queue.timeout`."""

    @field_validator("branches")
    @classmethod
    def _unique(cls, branches: tuple[BranchSpec, ...]) -> tuple[BranchSpec, ...]:
        if twice := repeated(branch.name for branch in branches):
            raise ValueError(f"branch names must differ, got {', '.join(twice)} more than once")
        return branches


class ExtractSpec(SpecModel):
    """The table that the job fills, and how the rows of one run relate to those of earlier runs.

    Source: `extract.namespace`, `extract.table.name`, `extract.table.type`.
    """

    namespace: Name
    table: Name
    type: ExtractType = ExtractType.APPEND_ONLY
    """`append_only`: each run adds new rows; rows never change. `snapshot_append`: each run adds new and changed rows;
    of rows with one primary key, the newest counts. `snapshot_only`: each run reads everything and replaces what was
    published."""
    is_full: bool | None = None
    """True: each run reads everything from the beginning and replaces what was published. Default: true for
    `snapshot_only`, false for the others. Source: `extract.is.full`."""
    primary_keys: tuple[str, ...] = ()
    """Columns that identify a row, for publishers that update rows. Source: `extract.primary.key.fields`."""
    delta_fields: tuple[str, ...] = ()
    """Columns whose value grows with each change of a row, for publishers that update rows. Source:
    `extract.delta.fields`."""

    @property
    def reads_everything(self) -> bool:
        """Whether each run reads from the beginning."""
        return self.type is ExtractType.SNAPSHOT_ONLY if self.is_full is None else self.is_full

    @model_validator(mode="after")
    def _snapshots_are_whole(self) -> Self:
        if self.type is ExtractType.SNAPSHOT_ONLY and self.is_full is False:
            raise ValueError("type snapshot_only reads everything: leave out is_full: false, or use snapshot_append")
        return self


class CommitSpec(SpecModel):
    """When and how a dataset is published."""

    policy: Literal["full", "successful", "partial"] = "full"
    """What is published of a dataset if some of its work units fail. `full`: nothing. `successful`: all work units
    that succeeded; the next run reads only the failed ranges again. `partial`: like `successful`, and of a work unit
    that failed while reading also the part before the failure, if its source knows positions. Source:
    `job.commit.policy`."""
    failed_units_fail_run: bool = False
    """True: a run with a failed work unit ends as failed (exit code 1 instead of 4), although the rest is committed.
    Source: `job.commit.partial.fail.task.fails.job.commit`."""
    scope: Literal["dataset", "job"] = "dataset"
    """`dataset`: each dataset is published on its own. `job`: all datasets of a run are published together or not at
    all; with policy `full`, one failed dataset keeps all others from being published."""
    durability: Literal["full", "fast"] = "full"
    """`full`: files and folders are synced to disk before the watermark moves. `fast`: they are not, and a power loss
    may lose published files."""
    redo_limit: int = Field(default=3, ge=1, le=100)
    """How often runs try to finish a stored sequence before its dataset is quarantined."""
    parallelism: int = Field(default=8, ge=1, le=64)
    """Threads on the driver that commit datasets and move files."""
    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once"
    """`exactly_once`: the steps of a publication are stored before they are done. `at_least_once`: they are not; after
    a crash, the output may hold files that no snapshot names, with rows that other files hold too.
    Source: `gobblin.runtime.delivery.semantics`; its upper-case values are accepted."""
    spark_threshold: int = Field(default=50_000, ge=1)
    """Number of files of a dataset from which on Spark tasks move them instead of threads on the driver."""
    keep_snapshots: int = Field(default=10, ge=1)
    """Number of newest snapshots of a dataset that can be read and rolled back to. `gobblin clean` deletes files that
    only older snapshots hold."""
    steps: tuple[ConstructSpec, ...] = ()
    """Commit steps of your own; they run in order after all files were moved and before the dataset is committed."""

    @model_validator(mode="after")
    def _group_needs_the_write_ahead(self) -> Self:
        if self.scope == "job" and self.delivery == "at_least_once":
            raise ValueError(
                "scope job needs delivery exactly_once: steps that are not stored before they are done cannot be undone"
            )
        return self

    @field_validator("delivery", mode="before")
    @classmethod
    def _any_case(cls, given: object) -> object:
        return given.lower() if isinstance(given, str) else given


class RetrySpec(SpecModel):
    """Retries, in the same run, of a work unit that failed for a temporary reason.

    Source: `task.maxretries`, `task.retry.intervalinsec`.
    """

    count: int = Field(default=2, ge=0, le=100)
    """Retries after the first attempt; 0 turns them off."""
    backoff_s: float = Field(default=1.0, ge=0, le=3600)
    """Seconds before the first retry; the wait doubles with each further retry."""
    max_backoff_s: float = Field(default=60.0, ge=0, le=86400)
    """Longest wait, in seconds."""
    jitter: float = Field(default=0.5, ge=0, le=1)
    """Share (0-1) by which a wait is made longer or shorter at random; never longer than `max_backoff_s`."""


class LimitSpec(SpecModel):
    """How much one work unit may read in a run; the next run reads the rest.

    After `rows`, `bytes` or `seconds`, the work unit ends at the next position that its source knows: `kafka` behind
    each message, `query` and `rest` where the value changes, `files` at the end of a file, `python` at the next
    `ReadUpTo`. For `bytes` and `seconds` the batch at hand is read to its end.

    Source: `extract.limit.enabled`, `extract.limit.type`. Differs: several limits may be set at once; the next run
    reads the rest, which Gobblin loses.
    """

    rows: int | None = Field(default=None, ge=1)
    """Rows after which the work unit ends. Source: `extract.limit.count.limit`."""
    bytes: int | None = Field(default=None, ge=1)
    """Bytes of input after which the work unit ends."""
    seconds: float | None = Field(default=None, gt=0)
    """Seconds of reading after which the work unit ends. Source: `extract.limit.timeLimit`."""
    rows_per_second: float | None = Field(default=None, gt=0)
    """Highest speed: reading waits between batches to stay below it. Source: `extract.limit.rateLimit`."""
    bytes_per_second: float | None = Field(default=None, gt=0)
    """Highest speed in bytes of input, in the same way."""

    @property
    def ends_early(self) -> bool:
        """Whether a work unit may end before its expected high."""
        return self.rows is not None or self.bytes is not None or self.seconds is not None


class RateSpec(SpecModel):
    """Highest speed of a run; reading waits between batches to stay below it.

    It is divided evenly among the packs of work units that run at once, and each keeps its part: while fewer packs run
    at the end of a run, it is slower than it may be.
    """

    rows_per_second: float | None = Field(default=None, gt=0)
    """Rows that all work units together read in a second."""
    bytes_per_second: float | None = Field(default=None, gt=0)
    """Bytes of input that they read in a second."""


class ExecutionSpec(SpecModel):
    """How work units are distributed over Spark tasks, limited and retried."""

    tasks_per_core: int = Field(default=2, ge=1, le=16)
    """Number of Spark tasks (packs of work units) per core. A small number is usually the fastest."""
    block_bytes: int = Field(default=1 << 20, ge=1 << 16, le=1 << 28)
    """Bytes that readers read at a time; a larger number is faster and needs more memory."""
    max_work_units: int | None = Field(default=None, ge=1)
    """The most work units of a run, divided evenly among datasets; later runs read the rest.
    Source: `date.partitioned.source.max.workunits.per.job`."""
    packs: int | None = Field(default=None, ge=1, le=100_000)
    """The most packs of a run; default: `tasks_per_core` times cores. Source: `mr.job.max.mappers`."""
    packing: Literal["single_level", "bi_level"] = "single_level"
    """`single_level`: work units are distributed one by one, which balances best. `bi_level`: work units of one
    dataset are put together first, which makes fewer files. Source: `kafka.workunit.packer.type`."""
    retry_failed: Literal["always", "never", "onfull", "onpartial"] = "always"
    """Whether later runs read the ranges of failed work units again, if other work units of the dataset were
    published: `always`, `never`, `onfull` or `onpartial` (only with this commit policy). With policy `full` nothing is
    published if a work unit fails, so everything is read again. Source: `workunit.retry.policy`."""
    limit: LimitSpec = Field(default_factory=LimitSpec)
    """Limits on what each work unit reads; default: none."""
    rate: RateSpec = Field(default_factory=RateSpec)
    """Highest speed of the whole run; default: none."""
    merge_bytes: int = Field(default=64 << 20, ge=0)
    """Work units of one dataset in one pack write common files, for up to about this many bytes of input; 0: each work
    unit writes its own files."""
    retries: RetrySpec = Field(default_factory=RetrySpec)
    """Retries of work units that failed for a temporary reason (such as a lost connection); each starts from the
    beginning."""


class OutputSpec(SpecModel):
    """Where published data is stored."""

    path: str = Field(min_length=1)
    """Root of the output: a local folder (relative to the project) or a URL. Staging is below it, in `_gobblin`."""
    file_mode: Mode | None = None
    """Permissions of published files, octal in quotes, e.g. `"0640"`. Default: those that the process gives new files.
    Source: `writer.file.permissions`."""
    dir_mode: Mode | None = None
    """Permissions of the folders of published files, e.g. `"0750"`; those of `path` itself do not change.
    Source: `writer.dir.permissions`."""
    group: str | None = Field(default=None, min_length=1)
    """Group of published files and their folders, by name. Source: `writer.group.name`."""

    @field_validator("path")
    @classmethod
    def _is_whole(cls, path: str) -> str:
        if problem := path_problem(path):
            raise ValueError(problem)
        return path


class JobSpec(SpecModel):
    """One job: a source, what happens to its rows, and where they are published."""

    job: Name
    """Name of the job, under which its state is stored: after renaming it, the job reads everything again."""
    description: str = ""
    """Text for people, shown in Dagster."""
    schedule: ScheduleSpec | None = None
    """When Dagster starts the job. Default: a person, a sensor or a scheduler of your own starts it."""
    pool: Annotated[str, StringConstraints(pattern=r"^\S+$")] | None = None
    """Pool of Dagster in which a run takes a slot while it reads and commits; jobs may share one. Default:
    `gobblin_<job>`. A pool has no limit until somebody sets one in Dagster."""
    asset: AssetSettings = Field(default_factory=AssetSettings)
    """How Dagster shows the branches: owners, tags, group, and how old their data may become."""
    source: ConstructSpec
    extract: ExtractSpec
    converters: Converters = ()
    """Applied in order, before the fork."""
    row_policies: tuple[RowPolicySpec, ...] = ()
    """Applied in order, after the converters and before the fork; a row is rejected by the first policy that it
    breaks."""
    fork: ForkSpec = Field(default_factory=lambda: ForkSpec(branches=(BranchSpec(name="main"),)))
    """Default: one branch `main` that gets every row."""
    task_policies: tuple[TaskPolicySpec, ...] = ()
    """Checked on each branch without `task_policies` of its own."""
    writer: ConstructSpec = Field(default_factory=lambda: ConstructSpec(type="parquet"))
    """Writer of branches without a `writer` of their own."""
    publisher: ConstructSpec | None = None
    """Publisher of branches without a `publisher` of their own. Default: `replace` if each run reads everything
    (`extract.is_full`), else `append`. The quarantine is always appended to. Source: `data.publisher.type`."""
    schema_contract: SchemaContract | None = None
    """What happens if columns or types differ from what was published: `evolve`, `freeze`, `discard` or `fail`.
    Default: no contract, rows are written unchanged."""
    output: OutputSpec
    commit: CommitSpec = Field(default_factory=CommitSpec)
    execution: ExecutionSpec = Field(default_factory=ExecutionSpec)

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        _require_names_to_differ(self.converters, self.row_policies)
        return self

    @field_validator("row_policies")
    @classmethod
    def _unique_policies(cls, policies: tuple[RowPolicySpec, ...]) -> tuple[RowPolicySpec, ...]:
        if twice := repeated(policy.name for policy in policies):
            raise ValueError(f"row policy names must differ, got {', '.join(twice)} more than once")
        return policies

    def to_extract(self) -> Extract:
        """Return the extract as a value of `core`."""
        extract = self.extract
        return Extract(
            namespace=extract.namespace,
            table=extract.table,
            type=extract.type,
            primary_keys=extract.primary_keys,
            delta_fields=extract.delta_fields,
            is_full=extract.reads_everything,
        )

    def writer_of(self, branch: BranchSpec) -> ConstructSpec:
        """Return the writer of a branch."""
        return branch.writer or self.writer

    def task_policies_of(self, branch: BranchSpec) -> tuple[TaskPolicySpec, ...]:
        """Return the task-level policies of a branch: its own, which may be empty, else the job's."""
        return self.task_policies if branch.task_policies is None else branch.task_policies

    def publisher_of(self, branch: BranchSpec) -> ConstructSpec:
        """Return the publisher of a branch."""
        is_full = self.extract.reads_everything
        return branch.publisher or self.publisher or ConstructSpec(type="replace" if is_full else "append")

    def dataset_folder(self, branch: str, dataset_urn: str) -> str:
        """Return the folder of a branch's files of a dataset, relative to the output's root.

        Source: `writer.file.path`, `writer.file.path.type`. Differs: a template; branches never share folders.

        Args:
            branch: name of a branch, or `QUARANTINE_BRANCH`.
            dataset_urn: the dataset.
        """
        return f"{self.folder_of_datasets(branch)}/{DatasetUrn(dataset_urn).path_segment}"

    def folder_of_datasets(self, branch: str) -> str:
        """Return the folder of a branch's datasets, relative to the output's root."""
        paths = {one.name: one.path for one in self.fork.branches}
        return self._folder(branch, paths.get(branch, BranchSpec(name="main").path))

    def _folder(self, branch: str, path: str) -> str:
        outer = path.removesuffix("/{dataset}")
        return outer.format(namespace=self.extract.namespace, table=self.extract.table, branch=branch)

    @model_validator(mode="after")
    def _branches_share_no_folder(self) -> Self:
        # No folder may be below another either: a dataset of the outer branch may have the name of the inner folder.
        paths = {
            **{branch.name: branch.path for branch in self.fork.branches},
            QUARANTINE_BRANCH: BranchSpec(name="main").path,
        }
        # Some file systems ignore case. In sorted order, a folder comes right before the folders inside of it.
        folders = sorted((f"{self._folder(name, path)}/".casefold(), name) for name, path in paths.items())
        for (outer, one), (inner, other) in pairwise(folders):
            if inner.startswith(outer):
                there, here = (self._folder(name, paths[name]) for name in (one, other))
                raise ValueError(
                    f"fork.branches: the files of {other!r} (in {here}) would be inside the folder of {one!r} "
                    f"({there}), at least if the file system ignores case; give each branch a path of its own"
                )
        return self

    @model_validator(mode="after")
    def _branches_share_no_asset(self) -> Self:
        key = self.asset.key
        if key is not None and "{branch}" not in key and len(self.fork.branches) > 1:
            raise ValueError(f"asset.key: each branch is an asset of its own, so the key needs {{branch}}; got {key!r}")
        return self

    @model_validator(mode="after")
    def _full_extracts_are_whole(self) -> Self:
        if self.extract.reads_everything and self.execution.max_work_units is not None:
            raise ValueError(
                "execution.max_work_units would publish the first part of a full extract again and again; leave it "
                "out, or choose another extract.type than snapshot_only (or extract.is_full: false)"
            )
        return self

    @model_validator(mode="after")
    def _limits_need_parts(self) -> Self:
        if self.execution.limit.ends_early and self.extract.reads_everything:
            raise ValueError(
                "execution.limit: rows, bytes and seconds end a work unit early, and a part of a snapshot would "
                "replace the whole; leave them out, or choose another extract.type than snapshot_only"
            )
        return self

    @property
    def keeps_parts(self) -> bool:
        """Whether a first part of a work unit may be published without the rest."""
        return self.commit.policy == "partial" or self.execution.limit.ends_early

    @property
    def has_quarantine(self) -> bool:
        """Whether any row-level policy, converter or schema contract may quarantine rows."""
        branches = self.fork.branches
        if SchemaContract.DISCARD_ROW in {branch.schema_contract or self.schema_contract for branch in branches}:
            return True
        policies = [*self.row_policies, *(policy for branch in branches for policy in branch.row_policies)]
        converters = [*self.converters, *(converter for branch in branches for converter in branch.converters)]
        return any(policy.on_violation is OnViolation.QUARANTINE for policy in policies) or any(
            converter.on_error is OnError.QUARANTINE for converter in converters
        )
