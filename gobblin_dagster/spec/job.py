"""JobSpec: what a user declares for one job, as frozen models that refuse unknown keys.

Constructs (`type: ...`) keep their options unread here: the registry checks them when the spec is bound, so that this
package never imports `constructs`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, field_validator, model_validator

from gobblin_dagster.core.extract import Extract, ExtractType
from gobblin_dagster.core.urn import DatasetUrn
from gobblin_dagster.core.utils.duplicates import repeated
from gobblin_dagster.spec.numbers import ExactNumbers

NAME_PATTERN = r"^[A-Za-z][A-Za-z0-9_]{0,62}$"
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
"""Letters, digits and `_`, beginning with a letter: safe as a folder, a Dagster name and a SQL identifier."""

Mode = Annotated[str, StringConstraints(pattern=r"^0?[0-7]{3}$")]
"""Permissions as octal text."""


class SpecModel(ExactNumbers):
    """A frozen declaration that refuses unknown keys, infinite numbers, and booleans for numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class ConstructSpec(ExactNumbers):
    """A construct by its registered name; all other keys are its options. A name alone is a construct without options."""

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    type: str
    """Registered short name, e.g. `files`, `sql`, `parquet`; `gobblin schema` lists them with their options."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"type": value} if isinstance(value, str) else value

    @property
    def options(self) -> dict[str, Any]:
        """The keys that belong to the construct."""
        return dict(self.model_extra or {})


class OnError(StrEnum):
    """What becomes of a row that a converter cannot take."""

    FAIL = "fail"
    """The work unit fails."""
    SKIP = "skip"
    """The row is dropped, counted and shown."""
    QUARANTINE = "quarantine"
    """The row, as the converter got it, is published to the dataset's quarantine with the reason."""


class ConverterSpec(ConstructSpec):
    """A converter; the other keys are options of its type."""

    name: Name | None = None
    """Shown in reports and written beside quarantined rows; default: its type."""
    on_error: OnError = OnError.FAIL
    """`fail`, `skip` or `quarantine`: what becomes of a row that it cannot take. The others of the batch go on."""
    max_errors: int = Field(default=1000, ge=0)
    """Most rows of a work unit that are skipped or quarantined; one more fails it."""

    @property
    def label(self) -> str:
        """The name in reports."""
        return self.name or self.type


class OnViolation(StrEnum):
    """What becomes of a row that breaks a row-level policy; Gobblin's FAIL, OPTIONAL and ERR_FILE are understood.

    Source: gobblin-core `RowLevelPolicy.Type` (FAIL, OPTIONAL, ERR_FILE). Differs: OPTIONAL drops rows there without a
    word; here dropped rows are counted and shown.
    """

    FAIL = "fail"
    """The work unit fails."""
    DROP = "drop"
    """The row is dropped, counted and shown."""
    QUARANTINE = "quarantine"
    """The row is published to the dataset's quarantine with rule, reason and source position."""

    @classmethod
    def _missing_(cls, value: object) -> OnViolation | None:
        return {"FAIL": cls.FAIL, "OPTIONAL": cls.DROP, "ERR_FILE": cls.QUARANTINE}.get(str(value))


class SchemaContract(StrEnum):
    """What a branch may publish when its rows come with other columns or types than it published before."""

    EVOLVE = "evolve"
    """New columns are added (nullable), types may widen; columns that are gone are written as null, narrower types as
    the wider ones published before. Other types fail."""
    FREEZE = "freeze"
    """Any change fails the work unit."""
    DISCARD = "discard"
    """The published schema stays: new columns are left out, columns that are gone are written as null, values are cast
    to the published types; one that does not fit fails."""
    FAIL = "fail"
    """What readers of the published files could not take fails: a column gone or of a type that is no wider one. New
    columns and wider types are written as they come, nothing is filled in."""


class RowPolicySpec(ConstructSpec):
    """A row-level policy; the options belong to its type."""

    name: Name
    """Shown in reports and written beside quarantined rows."""
    on_violation: OnViolation = OnViolation.QUARANTINE
    """`fail`, `drop` or `quarantine`."""
    max_share: float | None = Field(default=None, ge=0, le=1)
    """Greatest allowed ratio of rejected to judged rows of a work unit (0.01: 1%); more fail it at its end. Default: any."""

    @model_validator(mode="after")
    def _share_needs_rows_that_pass(self) -> Self:
        if self.max_share is not None and self.on_violation is OnViolation.FAIL:
            raise ValueError(
                "max_share needs on_violation drop or quarantine: with fail the first row ends the work unit"
            )
        return self


class TaskPolicySpec(ConstructSpec):
    """A task-level policy, judged on each branch of each work unit before publishing."""

    name: Name | None = None
    """Shown in reports; default: its type."""
    enforce: bool = True
    """True: a failure fails the work unit (Gobblin's FAIL). False: it is only recorded (OPTIONAL)."""

    @field_validator("enforce", mode="before")
    @classmethod
    def _gobblin_type(cls, given: object) -> object:
        # FAILED stands in the fork operator's documentation, FAIL in the code.
        return {"FAIL": True, "FAILED": True, "OPTIONAL": False}.get(given, given) if isinstance(given, str) else given


class BranchSpec(SpecModel):
    """One branch of the fork: its own converters, policies and writer."""

    name: Name
    """Last part of the branch's Dagster asset key and of its folder."""
    converters: tuple[ConverterSpec, ...] = ()
    """Applied in order, after the fork."""
    row_policies: tuple[RowPolicySpec, ...] = ()
    task_policies: tuple[TaskPolicySpec, ...] | None = None
    """Default: those of the job."""
    writer: ConstructSpec | None = None
    """Default: the job's `writer`."""
    publisher: ConstructSpec | None = None
    """Default: the job's `publisher`."""
    schema_contract: SchemaContract | None = None
    """`evolve`, `freeze`, `discard` or `fail`; default: the job's `schema_contract`."""
    path: str = "{namespace}/{table}/{branch}/{dataset}"
    """Folder of a dataset's files, below `output.path`: plain folder names, which may hold `{namespace}`, `{table}` and
    `{branch}`, and `{dataset}` (the dataset.urn, percent-encoded) as the last one. No two branches share folders. Where it
    changes, published files stay where they are and stay readable."""

    @field_validator("path")
    @classmethod
    def _plain_path(cls, path: str) -> str:
        *folders, last = path.split("/")
        if last != "{dataset}" or not folders:
            raise ValueError(f"a path is one or more folders and then {{dataset}}, as raw/{{dataset}}; got {path!r}")
        for folder in folders:
            if not _FOLDER.fullmatch(folder):
                raise ValueError(
                    f"the folder {folder!r} of path {path!r} may hold letters, digits, `_`, `-`, `.`, {{namespace}}, {{table}} "
                    "and {branch}, and begins with no `_`, `-` or `.`"
                )
        return path

    @field_validator("name")
    @classmethod
    def _not_reserved(cls, name: str) -> str:
        kept_for = {QUARANTINE_BRANCH: "rejected rows", PRE_FORK: "what stands before the fork"}.get(name)
        if kept_for:
            raise ValueError(f"the name {name!r} is kept for {kept_for}; choose another")
        return name

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        _require_names_to_differ(self.converters, self.row_policies)
        return self


# Folders that begin with `_` or `.` are ours (`_gobblin`), lead elsewhere (`..`) or are hidden from readers; `=` would be a
# partition column to them.
_FOLDER = re.compile(
    r"(?:[A-Za-z0-9]|\{(?:namespace|table|branch)\})(?:[A-Za-z0-9_.-]|\{(?:namespace|table|branch)\})*"
)

QUARANTINE_BRANCH = "quarantine"
"""Folder and manifest name of rejected rows; no branch may take it."""
PRE_FORK = "pre_fork"
"""The stage before the fork, as rejected rows name it beside the branches; a replay would take a branch of that name for it."""


def _require_names_to_differ(converters: Sequence[ConverterSpec], policies: Sequence[RowPolicySpec]) -> None:
    """Raise ValueError where a report could not tell rejected rows apart."""
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
    """Which branch takes which rows; default: every branch takes all."""
    branches: tuple[BranchSpec, ...] = Field(min_length=1)
    queue_capacity: int = Field(default=8, ge=1, le=1000)
    """Batches that may wait for each branch; branches run in parallel, each in a thread. Memory grows with it.
    Source: `fork.record.queue.capacity`, which counts records."""
    queue_timeout_s: float = Field(default=1.0, gt=0, le=60)
    """Seconds that a side of a queue waits before it looks whether the other side still works.
    Source: `fork.record.queue.timeout`."""

    @field_validator("branches")
    @classmethod
    def _unique(cls, branches: tuple[BranchSpec, ...]) -> tuple[BranchSpec, ...]:
        if twice := repeated(branch.name for branch in branches):
            raise ValueError(f"branch names must differ, got {', '.join(twice)} more than once")
        return branches


class ExtractSpec(SpecModel):
    """Where the data belongs, and how one extraction relates to the former ones.

    Source: `extract.namespace`, `extract.table.name`, `extract.table.type`.
    """

    namespace: Name
    table: Name
    type: ExtractType = ExtractType.APPEND_ONLY
    """`append_only`: each run adds rows never seen before. `snapshot_append`: it adds changed rows too, the newest row of a
    primary key counts. `snapshot_only`: it reads everything and replaces what was published."""
    is_full: bool | None = None
    """True: each run reads everything from the beginning, and its publication takes the place of the last one. Default:
    true for `snapshot_only`, false for the others. Source: `extract.is.full`."""
    primary_keys: tuple[str, ...] = ()
    """Columns that name a row, for publishers that update rows. Source: `extract.primary.key.fields`."""
    delta_fields: tuple[str, ...] = ()
    """Columns that grow with each change of a row, for such publishers. Source: `extract.delta.fields`."""

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
    """`full`: all work units of a dataset or nothing. `successful`: what succeeded; failed ranges are read again alone.
    `partial`: as `successful`, and of a work unit whose reading broke off the part before, where its source tells positions.
    Source: `job.commit.policy`."""
    failed_units_fail_run: bool = False
    """Whether a run ends as failed (exit code 1, not 4) where a work unit failed, though what is good is committed.
    Source: `job.commit.partial.fail.task.fails.job.commit`."""
    scope: Literal["dataset", "job"] = "dataset"
    """`dataset`: each dataset is published on its own. `job`: all datasets of a run together, or none; with policy `full` the
    failure of any holds back all."""
    durability: Literal["full", "fast"] = "full"
    """`full`: files and folders are synced to disk before the watermark moves. `fast`: they are not; power loss may
    lose published files."""
    redo_limit: int = Field(default=3, ge=1, le=100)
    """Failed redos of a stored sequence before its dataset is quarantined."""
    parallelism: int = Field(default=8, ge=1, le=64)
    """Threads on the driver that commit datasets and move files."""
    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once"
    """`exactly_once`: what is to be done is stored before it is done. `at_least_once`: it is not; after a crash, files may
    lie in the output that no snapshot names, beside others with the same rows.
    Source: `gobblin.runtime.delivery.semantics`; its upper-case values are understood."""
    spark_threshold: int = Field(default=50_000, ge=1)
    """Files of a dataset from which on they are moved by Spark tasks instead of by the driver's threads."""
    keep_snapshots: int = Field(default=10, ge=1)
    """Newest snapshots of a dataset that can be read and rolled back to; `gobblin clean` deletes the files that only older
    ones hold."""
    steps: tuple[ConstructSpec, ...] = ()
    """Steps of your own: after the files are in place and before the dataset is committed, in order."""

    @model_validator(mode="after")
    def _group_needs_the_write_ahead(self) -> Self:
        if self.scope == "job" and self.delivery == "at_least_once":
            raise ValueError(
                "scope job needs delivery exactly_once: what is not stored before cannot be undone together"
            )
        return self

    @field_validator("delivery", mode="before")
    @classmethod
    def _any_case(cls, given: object) -> object:
        return given.lower() if isinstance(given, str) else given


class RetrySpec(SpecModel):
    """Attempts to repeat a work unit that failed for a passing reason, in the same run.

    Source: `task.maxretries`, `task.retry.intervalinsec`.
    """

    count: int = Field(default=2, ge=0, le=100)
    """Retries after the first attempt; 0 turns them off."""
    backoff_s: float = Field(default=1.0, ge=0, le=3600)
    """Seconds before the first retry; doubled before each further one."""
    max_backoff_s: float = Field(default=60.0, ge=0, le=86400)
    """Longest wait in seconds."""
    jitter: float = Field(default=0.5, ge=0, le=1)
    """Share by which a wait is lengthened or shortened at random; the longest is never lengthened."""


class LimitSpec(SpecModel):
    """How much one work unit may read in a run; what is left is planned again by the next one.

    Rows, bytes and seconds end it at the first position at or behind the bound that its source can tell: with the batch; rows of
    the source `python` with the first `ReadUpTo`.

    Source: `extract.limit.enabled`, `extract.limit.type`. Differs: several limits may hold at once; what is left is read by
    the next run, not lost.
    """

    rows: int | None = Field(default=None, ge=1)
    """Rows read. Source: `extract.limit.count.limit`."""
    bytes: int | None = Field(default=None, ge=1)
    """Bytes of input read."""
    seconds: float | None = Field(default=None, gt=0)
    """Seconds of reading. Source: `extract.limit.timeLimit`."""
    rows_per_second: float | None = Field(default=None, gt=0)
    """Reading waits where it is faster than this, batch by batch. Source: `extract.limit.rateLimit`."""

    @property
    def ends_early(self) -> bool:
        """Whether a work unit may end before its expected high."""
        return self.rows is not None or self.bytes is not None or self.seconds is not None


class ExecutionSpec(SpecModel):
    """How the work is spread over Spark tasks."""

    tasks_per_core: int = Field(default=2, ge=1, le=16)
    """Packs (MultiWorkUnits) per core; few and well packed is fastest."""
    block_bytes: int = Field(default=1 << 20, ge=1 << 16, le=1 << 28)
    """Bytes that readers take at a time: more is faster and needs more memory."""
    max_work_units: int | None = Field(default=None, ge=1)
    """Most work units of one run, shared out evenly among datasets; what is left is planned by a later run.
    Source: `date.partitioned.source.max.workunits.per.job`."""
    packs: int | None = Field(default=None, ge=1, le=100_000)
    """Most packs of a run; default: `tasks_per_core` for each core. Source: `mr.job.max.mappers`."""
    packing: Literal["single_level", "bi_level"] = "single_level"
    """`single_level`: work units are spread one by one, for the best balance. `bi_level`: units of one dataset are joined
    first. Source: `kafka.workunit.packer.type`."""
    retry_failed: Literal["always", "never", "onfull", "onpartial"] = "always"
    """Whether ranges of failed work units are read again by later runs where other units of the dataset were published:
    `always`, `never`, `onfull` and `onpartial` (only under that commit policy). Under policy `full` nothing is published
    beside a failed unit, so all of it is read again. Source: `workunit.retry.policy`."""
    limit: LimitSpec = Field(default_factory=LimitSpec)
    """Bounds on what each work unit reads; default: none."""
    merge_bytes: int = Field(default=64 << 20, ge=0)
    """Work units of one dataset in one pack are written to common files up to about this many bytes of input; 0: each has
    files of its own."""
    retries: RetrySpec = Field(default_factory=RetrySpec)
    """Retries of work units that failed for a passing reason (a lost connection); each begins again."""


class OutputSpec(SpecModel):
    """Where published data lies."""

    path: str = Field(min_length=1)
    """Root of the output: a local folder (relative to the project) or a URL. Staging lies below it, in `_gobblin`."""
    file_mode: Mode | None = None
    """Mode of published files, octal in quotes, e.g. `"0640"`. Default: as the writer's process makes them.
    Source: `writer.file.permissions`."""
    dir_mode: Mode | None = None
    """Mode of the folders of published files, e.g. `"0750"`; that of `path` itself stays.
    Source: `writer.dir.permissions`."""
    group: str | None = Field(default=None, min_length=1)
    """Group of published files and their folders, by name. Source: `writer.group.name`."""


class JobSpec(SpecModel):
    """One job: a source, what becomes of its rows, and where they are published."""

    job: Name
    """Name of the job: the key of its state. Renaming it starts from nothing."""
    description: str = ""
    source: ConstructSpec
    extract: ExtractSpec
    converters: tuple[ConverterSpec, ...] = ()
    """Applied in order, before the fork."""
    row_policies: tuple[RowPolicySpec, ...] = ()
    """Applied in order after the converters, before the fork; a row stops at the first that it breaks."""
    fork: ForkSpec = Field(default_factory=lambda: ForkSpec(branches=(BranchSpec(name="main"),)))
    """Default: one branch `main` that takes every row."""
    task_policies: tuple[TaskPolicySpec, ...] = ()
    """Judged on each branch that has none of its own."""
    writer: ConstructSpec = Field(default_factory=lambda: ConstructSpec(type="parquet"))
    """Writer of branches that have none of their own."""
    publisher: ConstructSpec | None = None
    """Publisher of branches that have none of their own: what a publication makes of their files. Default: `replace` where
    each run reads everything (`extract.is_full`), else `append`. The quarantine is always appended to.
    Source: `data.publisher.type`."""
    schema_contract: SchemaContract | None = None
    """`evolve`, `freeze`, `discard` or `fail`: what becomes of columns and types that differ from what was published.
    Default: no contract, rows are written as they come."""
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
        """Return how a branch is written."""
        return branch.writer or self.writer

    def task_policies_of(self, branch: BranchSpec) -> tuple[TaskPolicySpec, ...]:
        """Return what judges a branch; none is a list too."""
        return self.task_policies if branch.task_policies is None else branch.task_policies

    def publisher_of(self, branch: BranchSpec) -> ConstructSpec:
        """Return how a branch is published."""
        is_full = self.extract.reads_everything
        return branch.publisher or self.publisher or ConstructSpec(type="replace" if is_full else "append")

    def dataset_folder(self, branch: str, dataset_urn: str) -> str:
        """Return the folder of a branch's files of a dataset, relative to the output's root; the quarantine is a branch too.

        Source: `writer.file.path`, `writer.file.path.type`. Differs: a template, and never shared by branches.
        """
        return f"{self._folder_of_datasets(branch)}/{DatasetUrn(dataset_urn).path_segment}"

    def _folder_of_datasets(self, branch: str) -> str:
        paths = {one.name: one.path for one in self.fork.branches}
        return self._folder(branch, paths.get(branch, BranchSpec(name="main").path))

    def _folder(self, branch: str, path: str) -> str:
        outer = path.removesuffix("/{dataset}")
        return outer.format(namespace=self.extract.namespace, table=self.extract.table, branch=branch)

    @model_validator(mode="after")
    def _branches_share_no_folder(self) -> Self:
        # Not even one below another: a dataset of the outer one could be named as a folder of the inner one.
        paths = {
            **{branch.name: branch.path for branch in self.fork.branches},
            QUARANTINE_BRANCH: BranchSpec(name="main").path,
        }
        # Some file systems fold case. In this order a folder comes right before those that lie in it.
        folders = sorted((f"{self._folder(name, path)}/".casefold(), name) for name, path in paths.items())
        for (outer, one), (inner, other) in pairwise(folders):
            if inner.startswith(outer):
                there, here = (self._folder(name, paths[name]) for name in (one, other))
                raise ValueError(
                    f"fork.branches: the files of {other!r} (in {here}) would lie in the folder of {one!r} ({there}), at least "
                    "where case does not count; give each branch a path of its own"
                )
        return self

    @model_validator(mode="after")
    def _full_extracts_are_whole(self) -> Self:
        if self.extract.reads_everything and self.execution.max_work_units is not None:
            raise ValueError(
                "execution.max_work_units would publish the first part of a full extract again and again; leave it out, or "
                "choose another extract.type than snapshot_only (or extract.is_full: false)"
            )
        return self

    @model_validator(mode="after")
    def _limits_need_parts(self) -> Self:
        if self.execution.limit.ends_early and self.extract.reads_everything:
            raise ValueError(
                "execution.limit: rows, bytes and seconds end a work unit early, and a part of a snapshot would take the "
                "place of the whole; leave them out, or choose another extract.type than snapshot_only"
            )
        return self

    @property
    def keeps_parts(self) -> bool:
        """Whether a part of a work unit may be published."""
        return self.commit.policy == "partial" or self.execution.limit.ends_early

    @property
    def has_quarantine(self) -> bool:
        """Whether any row-level policy or converter quarantines."""
        branches = self.fork.branches
        policies = [*self.row_policies, *(policy for branch in branches for policy in branch.row_policies)]
        converters = [*self.converters, *(converter for branch in branches for converter in branch.converters)]
        return any(policy.on_violation is OnViolation.QUARANTINE for policy in policies) or any(
            converter.on_error is OnError.QUARANTINE for converter in converters
        )
