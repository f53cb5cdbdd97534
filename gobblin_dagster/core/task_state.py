"""TaskState: the result of one work unit, one small row. Nothing else returns from a Spark task to the driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar

from gobblin_dagster.core.errors import WorkingStateError
from gobblin_dagster.core.row_mark import RowMark
from gobblin_dagster.core.secrets import hidden
from gobblin_dagster.core.watermark.fields import AnyWatermark


class WorkingState(StrEnum):
    """State of a work unit within a run.

    Source: gobblin-api `WorkUnitState.WorkingState`.
    """

    PENDING = "pending"
    RUNNING = "running"
    SUCCESSFUL = "successful"
    """All rows are read and staged, not yet published."""
    COMMITTED = "committed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


LEGAL: Mapping[WorkingState, frozenset[WorkingState]] = MappingProxyType(
    {
        # Not begun: its task may be lost, or it has nothing to read.
        WorkingState.PENDING: frozenset(WorkingState) - {WorkingState.PENDING, WorkingState.COMMITTED},
        WorkingState.RUNNING: frozenset({WorkingState.SUCCESSFUL, WorkingState.FAILED, WorkingState.CANCELLED}),
        # Its dataset may fail, or the publication.
        WorkingState.SUCCESSFUL: frozenset({WorkingState.COMMITTED, WorkingState.FAILED}),
        # A retry runs it again; or the part before the failure is published.
        WorkingState.FAILED: frozenset({WorkingState.RUNNING, WorkingState.COMMITTED}),
        WorkingState.COMMITTED: frozenset(),
        WorkingState.CANCELLED: frozenset(),
        WorkingState.SKIPPED: frozenset(),
    }
)
"""Which states may follow each state within a run."""


def advance(before: WorkingState, after: WorkingState) -> WorkingState:
    """Return `after`, the new state of a work unit; raises WorkingStateError if it must not follow `before`.

    Source: gobblin-api `WorkUnitState.setWorkingState`. Differs: the original allows any state after any other.

    Example:
        >>> advance(WorkingState.RUNNING, WorkingState.FAILED).value
        'failed'
    """
    if after not in LEGAL[before]:
        raise WorkingStateError(before=before, after=after, legal=tuple(sorted(LEGAL[before])))
    return after


class PolicyResult(StrEnum):
    """Outcome of a task-level policy."""

    PASSED = "passed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A finished, synced file in staging, and the place where it will be published."""

    branch: str
    path: str
    """Absolute path in staging."""
    target: str
    """Path after publication, relative to the output root. Its name holds the commit id, so no target is used twice."""
    size_bytes: int
    sha256: str
    """Hex digest of the content."""
    rows: int
    """Rows in the file."""


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """Outcome of one task-level policy for one branch of one work unit."""

    policy: str
    branch: str
    result: PolicyResult
    enforced: bool
    """Whether a failed policy fails the work unit (type FAIL) or is only recorded (type OPTIONAL)."""
    detail: str
    """One line with what was expected and what was found."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", hidden(self.detail))


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """Why a work unit failed, as data."""

    code: str
    """Code of the error, a section in docs/errors.md; `unexpected` for exceptions that are not ours."""
    message: str
    """Text of the error, shortened."""
    branch: str | None = None
    """The branch that failed; None if the failure was before the fork."""
    transient: bool = False
    """Whether a retry may help (a TransientError)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", hidden(self.message))


@dataclass(frozen=True, slots=True)
class BranchCounts:
    """Rows and bytes of one branch of one work unit."""

    rows_in: int = 0
    """Rows that the fork gave to the branch."""
    rows_filtered: int = 0
    """Rows that the branch's converters removed (negative if they added rows)."""
    rows_rejected: int = 0
    """Rows that row-level policies of the branch dropped or quarantined."""
    rows_written: int = 0
    bytes_written: int = 0

    @classmethod
    def sum(cls, parts: Sequence[BranchCounts]) -> BranchCounts:
        """Return the sums over several parts of one branch."""
        return cls(**{each.name: sum(getattr(part, each.name) for part in parts) for each in fields(cls)})


@dataclass(frozen=True, slots=True)
class QueueStats:
    """How the queue between the fork and one branch was used, in batches.

    Source: gobblin-runtime `BoundedBlockingRecordQueue.QueueStats`. Differs: counts batches, and measures how long each
    side waited for the other.
    """

    capacity: int
    puts: int = 0
    gets: int = 0
    largest: int = 0
    """Highest number of batches in the queue."""
    fill_ratio: float = 0.0
    """Mean share of the capacity in use when a batch was put (0-1). Near 1, the branch is slower than the fork."""
    put_wait_s: float = 0.0
    """Seconds that the fork waited for room."""
    get_wait_s: float = 0.0
    """Seconds that the branch waited for a batch."""
    seconds: float = 0.0
    """Seconds from the first put to the end."""

    def plus(self, other: QueueStats) -> QueueStats:
        """Return the use of two queues that ran one after the other; the fill ratio is the mean over all batches."""
        puts = self.puts + other.puts
        filled = self.fill_ratio * self.puts + other.fill_ratio * other.puts
        return QueueStats(
            capacity=max(self.capacity, other.capacity),
            puts=puts,
            gets=self.gets + other.gets,
            largest=max(self.largest, other.largest),
            fill_ratio=round(filled / puts, 3) if puts else 0.0,
            put_wait_s=round(self.put_wait_s + other.put_wait_s, 3),
            get_wait_s=round(self.get_wait_s + other.get_wait_s, 3),
            seconds=round(self.seconds + other.seconds, 3),
        )

    @property
    def put_rate(self) -> float:
        """Batches put per second."""
        return self.puts / self.seconds if self.seconds else 0.0

    @property
    def get_rate(self) -> float:
        """Batches taken per second."""
        return self.gets / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class TaskState:
    """The result of one work unit.

    Invariants: `rows_read == rows_filtered + rows_rejected (before the fork) + rows_untaken + (rows that at least one
    branch took)`; per branch `rows_in == rows_filtered + rows_rejected + rows_written`.

    Source: gobblin-runtime `TaskState` and gobblin-api `WorkUnitState`. Differs: files and counts per branch are part
    of it, so the commit never lists a folder.
    """

    format_name: ClassVar[str] = "TaskState/1"

    work_unit_id: str
    dataset_urn: str
    state: WorkingState
    attempt: str
    """Unique id of the attempt that staged the files."""
    low: AnyWatermark
    expected_high: AnyWatermark
    actual_high: AnyWatermark
    """End, exclusive, of the rows that every branch has staged.

    It equals `expected_high` if everything was read, and `low` if nothing may be published. It lies between them if a
    limit ended the work unit early, or if reading failed and the part before the failure may be published
    (`is_part`)."""
    rows_read: int = 0
    bytes_read: int = 0
    rows_filtered: int = 0
    """Rows that converters before the fork removed (negative if they added rows)."""
    rows_rejected: Mapping[str, int] = field(default_factory=dict)
    """Rows that row-level policies and converters (`on_error`) dropped or quarantined, by name of policy or converter;
    the name is `branch.name` for those inside a branch."""
    rows_quarantined: int = 0
    """Rows written to the quarantine, before the fork and by all branches."""
    rows_untaken: int = 0
    """Rows that no branch of the fork took."""
    branches: Mapping[str, BranchCounts] = field(default_factory=dict)
    files: tuple[StagedFile, ...] = ()
    policies: tuple[PolicyOutcome, ...] = ()
    failures: tuple[TaskFailure, ...] = ()
    schemas: Mapping[str, str] = field(default_factory=dict)
    """Written Arrow schema by branch, as text `name: type` lines."""
    queues: Mapping[str, QueueStats] = field(default_factory=dict)
    """Use of the queues before the branches, by branch; empty if branches ran one after the other."""
    notes: tuple[str, ...] = ()
    """Sentences for people, also of a successful attempt: columns that are new, gone or changed."""
    seconds: float = 0.0
    """Wall time of the attempt."""
    extract_s: float = 0.0
    """Seconds of it in which the extractor read."""
    convert_s: float = 0.0
    """Seconds of it in converters and row policies before the fork. The rest went to fork, branches and files."""
    row_marks: Mapping[str, RowMark] = field(default_factory=dict)
    """Mark of the last row below `actual_high`, by component; empty if the source has no marks."""

    @property
    def rows_written(self) -> dict[str, int]:
        """Rows written, by branch."""
        return {name: counts.rows_written for name, counts in self.branches.items()}

    @property
    def is_part(self) -> bool:
        """Whether it failed after a first part, which may be published."""
        return self.state is WorkingState.FAILED and self.actual_high != self.low


@dataclass(frozen=True, slots=True)
class TaskSums:
    """Sums over the results of several work units, or of the parts of one; fields as in `TaskState`."""

    rows_read: int = 0
    bytes_read: int = 0
    rows_filtered: int = 0
    rows_rejected: Mapping[str, int] = field(default_factory=dict)
    rows_quarantined: int = 0
    rows_untaken: int = 0
    branches: Mapping[str, BranchCounts] = field(default_factory=dict)
    files: tuple[StagedFile, ...] = ()
    """All files, in the order of the results."""
    policies: tuple[PolicyOutcome, ...] = ()
    """All outcomes, in the order of the results."""
    notes: tuple[str, ...] = ()
    """Each note once."""
    seconds: float = 0.0
    extract_s: float = 0.0
    convert_s: float = 0.0

    @classmethod
    def of(cls, states: Sequence[TaskState]) -> TaskSums:
        """Sum the counts of several results."""
        return cls(
            rows_read=sum(state.rows_read for state in states),
            bytes_read=sum(state.bytes_read for state in states),
            rows_filtered=sum(state.rows_filtered for state in states),
            rows_rejected=added(state.rows_rejected for state in states),
            rows_quarantined=sum(state.rows_quarantined for state in states),
            rows_untaken=sum(state.rows_untaken for state in states),
            branches=_added_branches([state.branches for state in states]),
            files=tuple(file for state in states for file in state.files),
            policies=tuple(outcome for state in states for outcome in state.policies),
            notes=tuple(dict.fromkeys(note for state in states for note in state.notes)),
            seconds=sum(state.seconds for state in states),
            extract_s=sum(state.extract_s for state in states),
            convert_s=sum(state.convert_s for state in states),
        )

    @property
    def rows_written(self) -> dict[str, int]:
        """Rows written, by branch."""
        return {name: counts.rows_written for name, counts in self.branches.items()}


def _added_branches(states: Sequence[Mapping[str, BranchCounts]]) -> dict[str, BranchCounts]:
    names = dict.fromkeys(name for branches in states for name in branches)
    return {name: BranchCounts.sum([branches[name] for branches in states if name in branches]) for name in names}


def added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums by name; a name may be missing in some of the mappings.

    Example:
        >>> added([{"eu": 1}, {"us": 2, "eu": 3}])
        {'eu': 4, 'us': 2}
    """
    total: dict[str, int] = {}
    for one in counts:
        for name, count in one.items():
            total[name] = total.get(name, 0) + count
    return total
