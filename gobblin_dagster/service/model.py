"""Flows, their executions, and their statuses: the values that the service's rooms hand to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

from gobblin_dagster.core.utils.text import storable

NO_EXECUTION = -1
"""Gobblin's flowExecutionId of a scheduled flow that has not run yet."""


@dataclass(frozen=True, slots=True, order=True)
class FlowId:
    """Group and name: the key of a flow. Both are 1 to 128 characters of any kind."""

    group: str
    name: str

    def __str__(self) -> str:
        return f"{self.group}/{self.name}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a flow runs."""

    cron: str
    """Quartz cron, 6 or 7 fields."""
    run_immediately: bool = False
    """Whether the flow also runs once when it is added or updated."""


@dataclass(frozen=True, slots=True)
class FlowConfig:
    """What a user posts: which templates, with which values, when.

    Property values are kept as they came, byte for byte.

    Source: gobblin-service `FlowConfig.pdl`. Differs: Gobblin reads values as HOCON, which trims and drops some.
    """

    format_name: ClassVar[str] = "FlowConfig/1"

    id: FlowId
    template_uris: str
    properties: Mapping[str, str] = field(default_factory=dict)
    schedule: Schedule | None = None
    """None: the flow runs once."""
    owning_group: str | None = None
    explain: bool = False
    """Whether the flow is only compiled; nothing is stored."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Fields that the service does not know, kept for the client that sent them."""


class Change(StrEnum):
    """What made a new version of a flow."""

    CREATED = "created"
    UPDATED = "updated"
    UNSCHEDULED = "unscheduled"
    PAUSED = "paused"
    RESUMED = "resumed"
    ROLLED_BACK = "rolled_back"
    FINISHED = "finished"
    """A flow without a schedule has run: it leaves the catalog and stays in the history."""
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class FlowSpec:
    """One version of a flow, as the catalog keeps it.

    Source: gobblin-runtime `FlowSpec`. Differs: versions are kept, with who made them.
    """

    config: FlowConfig
    version: int
    """From 1; grows with each change, and goes on where a deleted flow stopped."""
    change: Change
    changed_at: datetime
    changed_by: str
    is_paused: bool = False
    managed_by: str = ""
    """The folder of flow files that this flow is applied from; empty: it is changed over REST."""
    number: int = 0
    """Position in the catalog's list of all changes; other nodes read the list to hear of changes."""

    @property
    def id(self) -> FlowId:
        return self.config.id

    @property
    def user(self) -> str:
        """For whom its executions run: `user.to.proxy`, as in Gobblin, or else who posted this version."""
        return self.config.properties.get("user.to.proxy") or self.changed_by

    @property
    def is_in_catalog(self) -> bool:
        """Whether the flow exists after this change."""
        return self.change not in (Change.DELETED, Change.FINISHED)


class ExecutionStatus(StrEnum):
    """Status of a flow's or a job's execution, in Gobblin's words and order.

    Source: gobblin-runtime `ExecutionStatus`, `KafkaJobStatusMonitor.ORDERED_EXECUTION_STATUSES`.
    """

    COMPILED = "COMPILED"
    PENDING = "PENDING"
    PENDING_RESUME = "PENDING_RESUME"
    PENDING_RETRY = "PENDING_RETRY"
    ORCHESTRATED = "ORCHESTRATED"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_final(self) -> bool:
        """Whether the execution is over."""
        return self in _FINAL

    @property
    def rank(self) -> int:
        """Position in the order in which statuses follow each other within one attempt."""
        return _ORDER[self]


_FINAL = frozenset({ExecutionStatus.COMPLETE, ExecutionStatus.FAILED, ExecutionStatus.CANCELLED})
_ORDER = {status: rank for rank, status in enumerate(ExecutionStatus)}


@dataclass(frozen=True, slots=True, order=True)
class ExecutionId:
    """One execution of a flow."""

    flow: FlowId
    number: int
    """Gobblin's flowExecutionId, epoch ms: the scheduled time, or the time at which a run was asked for."""

    def __str__(self) -> str:
        return f"{self.flow}/{self.number}"


@dataclass(frozen=True, slots=True, order=True)
class JobKey:
    """One attempt of one job of one execution. A worker begins each key once."""

    group: str
    flow: str
    execution: int
    job: str
    generation: int
    attempt: int

    @classmethod
    def of(cls, execution: ExecutionId, job: str, generation: int, attempt: int) -> JobKey:
        """Return the key of an attempt."""
        return cls(execution.flow.group, execution.flow.name, execution.number, job, generation, attempt)

    @classmethod
    def read(cls, fields: Any) -> JobKey:
        """Return a key that came from elsewhere; raises TypeError or ValueError if no database can hold it."""
        key = cls(**fields)
        texts, numbers = (key.group, key.flow, key.job), (key.execution, key.generation, key.attempt)
        if not all(isinstance(text, str) and storable(text) == text and len(text) <= _LONGEST for text in texts):
            raise ValueError("group, flow and job are texts without NUL and halves of characters")
        if sum(len(text.encode()) for text in texts) > _MOST_BYTES:
            raise ValueError(f"group, flow and job have more than {_MOST_BYTES} bytes")
        if not all(type(number) is int and 0 <= number < most for number, most in zip(numbers, _MOST, strict=True)):
            raise ValueError("execution, generation and attempt are numbers")
        return key

    @property
    def execution_id(self) -> ExecutionId:
        """The execution that the job belongs to."""
        return ExecutionId(FlowId(self.group, self.flow), self.execution)

    def __str__(self) -> str:
        attempt = f"generation {self.generation}, attempt {self.attempt}"
        return f"{self.group}/{self.flow}/{self.execution} {self.job} ({attempt})"


_LONGEST = 1000
_MOST_BYTES = 2500
"""Bytes of all names of a key together: PostgreSQL indexes no row of more than 2,700."""
_MOST = (1 << 63, 1 << 31, 1 << 31)


class Trigger(StrEnum):
    """Why a flow runs."""

    SCHEDULE = "schedule"
    ONCE = "once"
    """The flow has no schedule."""
    RUN_NOW = "run_now"


@dataclass(frozen=True, slots=True)
class DagJob:
    """One job of a flow."""

    name: str
    """Names the job in its state store; the jobs of two flows never have one name."""
    executor: str
    """The executor that runs it."""
    body: str
    """The job file as JSON; references to environment variables are the executor's to replace."""
    parents: tuple[str, ...] = ()
    """Jobs that must be complete before this one starts."""
    max_attempts: int = 1
    start_within_s: int | None = None
    """Seconds from the moment at which the job could run to its start; None: it waits as long as it takes."""
    child: tuple[FlowId, int] | None = None
    """The flow that has the job, and its version, in the DAG of a flow of flows; None: the flow itself."""


class FailureOption(StrEnum):
    """What becomes of the jobs that have not started when one job did not complete.

    Source: gobblin-service `DagManager.FailureOption`.
    """

    FINISH_ALL_POSSIBLE = "FINISH_ALL_POSSIBLE"
    """Jobs go on that do not depend on it."""
    FINISH_RUNNING = "FINISH_RUNNING"
    """Jobs that were handed to an executor go to their end, with the attempts that they have left; no other starts."""


@dataclass(frozen=True, slots=True)
class TakenWay:
    """The way that the jobs of a routed flow take."""

    flow: FlowId
    route: str
    """What the flow says of its way (`service.compiler.kept_way.route_of`)."""
    jobs: frozenset[str]
    """Names of its jobs: each edge of the way has one."""


@dataclass(frozen=True, slots=True)
class Dag:
    """The jobs of a flow, each after its parents.

    Source: gobblin-service `Dag<JobExecutionPlan>`.
    """

    jobs: tuple[DagJob, ...]
    on_failure: FailureOption = FailureOption.FINISH_ALL_POSSIBLE
    ways: tuple[TakenWay, ...] = ()
    """Ways of routed children, if it is the DAG of a flow of flows."""

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for job in self.jobs:
            if not seen.issuperset(job.parents):
                raise ValueError(f"job {job.name!r} stands before one of its parents {job.parents}")
            if job.name in seen:
                raise ValueError(f"two jobs are named {job.name!r}")
            seen.add(job.name)


@dataclass(frozen=True, slots=True)
class JobReport:
    """What an executor says of a job's attempt."""

    execution: ExecutionId
    job: str
    generation: int
    attempt: int
    status: ExecutionStatus
    message: str = ""
    run_id: str = ""
    processed_count: int = 0
    low_watermark: str = ""
    high_watermark: str = ""
    may_retry: bool = True

    @classmethod
    def of(
        cls,
        key: JobKey,
        status: ExecutionStatus,
        message: str = "",
        run_id: str = "",
        processed_count: int = 0,
        low_watermark: str = "",
        high_watermark: str = "",
        may_retry: bool = True,
    ) -> JobReport:
        """Return the report about an attempt that is named by its key."""
        attempt = key.execution_id, key.job, key.generation, key.attempt
        return cls(*attempt, status, message, run_id, processed_count, low_watermark, high_watermark, may_retry)

    @property
    def key(self) -> JobKey:
        """The attempt that it is about."""
        return JobKey.of(self.execution, self.job, self.generation, self.attempt)
