"""The tree of errors, grouped by what the caller can do about them.

    GobblinDagsterError
    ├── SpecError               fix the declaration (exit code 2)
    │   ├── InvalidSpecError        every fault of a file at once, with line numbers
    │   ├── UsageError              a command was called wrongly
    │   ├── InvalidUrnError         a dataset.urn that cannot be a folder name or partition key
    │   ├── WatermarkTypeError      a watermark of an unknown or unexpected type
    │   ├── WorkingStateError       a work unit's new state cannot follow its present one
    │   ├── InvalidFlowError        a flow that was posted has the wrong shape
    │   ├── FlowCompileError        a flow cannot be made into jobs
    │   ├── FlowNotFoundError       no such flow, or no such execution of it
    │   ├── FlowExistsError         a flow of this group and name exists
    │   └── FlowChangedError        another change of the flow, or of its execution, came first
    ├── TransientError          retry helps
    │   ├── SparkLostError          Spark lost tasks
    │   ├── TaskLostError           processes that ran work units without Spark died again and again
    │   ├── WorkerLostError         the warm worker ended under a command
    │   └── QuotaExceededError      a user or a flow group has as many executions as it may have
    ├── TerminalError           retry does not help until something is repaired
    │   ├── SourceError             a source cannot be listed
    │   ├── StartpointError         a dataset has no position for a startpoint
    │   ├── ExtractError            a record or file cannot be read
    │   ├── ConvertError            a converter, fork or writer refused a batch
    │   ├── ForkBranchMismatchError the fork operator returned a wrong number of flags
    │   ├── CopyNotSupportedError   several branches take a value that cannot be copied
    │   ├── StorageError            a file system refused an operation
    │   ├── StoreVersionError       the state store belongs to a newer version
    │   ├── CorruptRecordError      a stored record does not match its digest or format
    │   ├── StepRefusedError        a commit step would change files that may not be ours
    │   ├── StagedFileLostError     a staged file of a commit sequence is gone or damaged
    │   ├── EnvironmentFaultError   Java, a port or a package is missing
    │   ├── WorkerDiedError         a work unit killed its Python worker
    │   └── OutOfMemoryError        a step of a work unit got no more memory
    ├── DataQualityError        a task-level policy of type FAIL failed
    ├── CommitConflictError     another run changed the dataset: plan again
    │   ├── DatasetBusyError        another run holds the dataset's lease
    │   ├── StaleEpochError         our lease was taken over
    │   ├── WatermarkMovedError     the compare-and-swap on the watermark's version failed
    │   ├── UnfinishedSequenceError a stored sequence must be recovered first
    │   ├── SequenceChangedError    another run or a person ended our sequence
    │   ├── GroupHeldBackError      another dataset of the run failed, and all are published together
    │   └── RangeOverlapError       a range would be committed twice
    ├── CommitStateUnknownError look before retrying
    └── QuarantinedError        a dataset or sequence waits for a person

An error takes its facts as keyword arguments and keeps them as attributes. It survives pickling, because Spark and
Dagster send it between processes. Retry policies look at the type, never at the text. `code` names the section in
`docs/errors.md`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from gobblin_dagster.core.secrets import hidden


def _rebuild(cls: type[GobblinDagsterError], facts: dict[str, Any]) -> GobblinDagsterError:
    """Make the error again in another process."""
    return cls(**facts)


@dataclass(eq=False, kw_only=True)
class GobblinDagsterError(Exception):
    """Root of all errors raised on purpose; subclasses are dataclasses whose fields are the facts."""

    code: ClassVar[str] = "error"
    remedy: ClassVar[str] = ""
    advice: ClassVar[str] = ""
    """What to do, for errors whose message says only what happened. It is no part of the message: it is shown where
    nobody sees `docs/errors.md`, such as on Dagster's pages."""

    def __init_subclass__(cls, **settings: Any) -> None:
        # Set in the class itself, so that `dataclass` writes none that shows secrets.
        super().__init_subclass__(**settings)
        cls.__repr__ = GobblinDagsterError.__repr__  # type: ignore[method-assign]  # it is a method of the same type

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={value!r}" for name, value in self.facts().items())
        return hidden(f"{type(self).__name__}({facts})")

    def message(self) -> str:
        """Return what failed and where, what was expected, and what was found; `remedy` follows it in `str(error)`."""
        return type(self).__doc__ or self.code

    def __str__(self) -> str:
        remedy = self.remedy.format(**self.facts())
        return hidden(f"{self.message()} {remedy}".strip())

    def facts(self) -> dict[str, Any]:
        """Return the fields by name, for logs and for `--output json`."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.facts()))


@dataclass(eq=False, kw_only=True)
class SpecError(GobblinDagsterError):
    """A declaration is wrong and must be changed."""

    code: ClassVar[str] = "spec"


_LONGEST_PLACE = 300
_LONGEST_PROBLEM, _LONGEST_END = 4000, 1000
"""Characters of a problem that is printed whole, and of the end of one that is not, which says what to do."""


@dataclass(frozen=True, slots=True)
class SpecFault:
    """One fault of a spec file: its place and what is wrong."""

    path: str
    """Dotted path inside the document, e.g. `fork.branches[1].writer.type`."""
    problem: str
    """What is wrong: what was expected and what was found."""
    line: int | None = None
    """Line in the file, counted from 1; None if the document did not come from a file."""
    file: str = ""
    """The included file that holds the fault; empty if it is the job file itself."""

    def text(self, file: str) -> str:
        """Return the fault as one line for people; `file` is the name of the job file."""
        where = self.file or file
        place = f"{where}:{self.line}" if self.line is not None else where
        return f"{place}: {self.path or 'document'}: {self.problem}"

    def __post_init__(self) -> None:
        """Shorten a place, or a value in the problem, that somebody wrote with a million characters."""
        if len(self.path) > _LONGEST_PLACE:
            object.__setattr__(self, "path", f"{self.path[:_LONGEST_PLACE]}…")
        if len(self.problem) > _LONGEST_PROBLEM:
            # Hidden first: the end of a value that is cut would not be known any more.
            problem = hidden(self.problem)
            object.__setattr__(self, "problem", f"{problem[: _LONGEST_PROBLEM // 2]}…{problem[-_LONGEST_END:]}")


@dataclass(eq=False, kw_only=True)
class InvalidSpecError(SpecError):
    """A spec file has faults; the message lists all of them."""

    code: ClassVar[str] = "spec-invalid"
    file: str
    faults: tuple[SpecFault, ...]

    def message(self) -> str:
        lines = [f"{self.file} has {len(self.faults)} fault{'s' if len(self.faults) != 1 else ''}:"]
        lines += [f"  {fault.text(self.file)}" for fault in self.faults]
        return "\n".join(lines)


@dataclass(eq=False, kw_only=True)
class UsageError(SpecError):
    """A command or function was called in a way that cannot work."""

    code: ClassVar[str] = "usage"
    problem: str
    hint: str = ""

    def message(self) -> str:
        return f"{self.problem} {self.hint}".strip()


@dataclass(eq=False, kw_only=True)
class InvalidUrnError(SpecError):
    """A dataset.urn cannot be used as a partition key or folder name."""

    code: ClassVar[str] = "urn-invalid"
    remedy: ClassVar[str] = (
        "Use shorter, printable text; '/', spaces and unicode are fine (each such byte counts three times)."
    )
    urn: str
    problem: str

    def message(self) -> str:
        return f"dataset.urn {self.urn[:80]!r} {self.problem}."


@dataclass(eq=False, kw_only=True)
class WatermarkTypeError(SpecError):
    """A watermark has an unknown type, or another type than its dataset."""

    code: ClassVar[str] = "watermark-type"
    expected: str
    got: str
    problem: str = ""
    """What is wrong with a user-defined type; empty if the type is only unexpected."""

    def message(self) -> str:
        if self.problem:
            return f"The watermark type {self.got!r} {self.problem}."
        return f"Watermark of type {self.got!r} where {self.expected} was expected."


@dataclass(eq=False, kw_only=True)
class WorkingStateError(SpecError):
    """A work unit's new state cannot follow its present one."""

    code: ClassVar[str] = "working-state"
    before: str
    after: str
    legal: tuple[str, ...]

    def message(self) -> str:
        legal = " or ".join(self.legal) or "nothing: it is the last one"
        return f"A work unit that is {self.before} cannot become {self.after}; what may follow is {legal}."


@dataclass(eq=False, kw_only=True)
class InvalidFlowError(SpecError):
    """A flow that was posted has the wrong shape; all faults are listed."""

    code: ClassVar[str] = "flow-invalid"
    faults: tuple[SpecFault, ...]

    def message(self) -> str:
        return "".join(f"ERROR :: {fault.path} :: {fault.problem}\n" for fault in self.faults)


@dataclass(eq=False, kw_only=True)
class FlowCompileError(SpecError):
    """A flow cannot be made into jobs; all reasons are listed."""

    code: ClassVar[str] = "flow-not-compiled"
    flow: str
    reasons: tuple[str, ...]
    is_without_way: bool = False
    """Whether only the topology is to blame: another one may have a way for the flow."""

    def message(self) -> str:
        return f"Flow {self.flow} cannot be compiled: {'; '.join(self.reasons)}."


@dataclass(eq=False, kw_only=True)
class FlowNotFoundError(SpecError):
    """There is no such flow, or no such execution of it."""

    code: ClassVar[str] = "flow-not-found"
    problem: str

    def message(self) -> str:
        return self.problem


@dataclass(eq=False, kw_only=True)
class FlowExistsError(SpecError):
    """A flow of this group and name exists already."""

    code: ClassVar[str] = "flow-exists"
    problem: str

    def message(self) -> str:
        return self.problem


@dataclass(eq=False, kw_only=True)
class FlowChangedError(SpecError):
    """The flow, or its execution, is no longer as the change assumes."""

    code: ClassVar[str] = "flow-changed"
    problem: str

    def message(self) -> str:
        return self.problem


@dataclass(eq=False, kw_only=True)
class TransientError(GobblinDagsterError):
    """Something outside was not ready; a retry may succeed."""

    code: ClassVar[str] = "transient"
    problem: str

    def message(self) -> str:
        return self.problem


@dataclass(eq=False, kw_only=True)
class SparkLostError(TransientError):
    """Spark lost tasks of a run, and lost them again when it retried them."""

    code: ClassVar[str] = "spark"
    remedy: ClassVar[str] = "Run again; {log} says more."
    log: str = "`.gobblin/spark.log` of the project"
    """Where Spark's log is, for people."""


@dataclass(eq=False, kw_only=True)
class TaskLostError(TransientError):
    """Processes that ran work units without Spark died, and died again when the work units were tried again."""

    code: ClassVar[str] = "task-lost"
    remedy: ClassVar[str] = "Run again; `.gobblin/spark.log` of the project says more."


@dataclass(eq=False, kw_only=True)
class WorkerLostError(TransientError):
    """The warm worker ended while it ran a command."""

    code: ClassVar[str] = "worker-lost"
    problem: str = ""
    pid: int
    log: str

    def message(self) -> str:
        return (
            f"The warm worker (process {self.pid}) ended while it ran this command. No row is lost or doubled: each "
            "dataset is published as a whole or not yet. Run again: what was begun is finished or undone, and the rest "
            f"is read. `gobblin plan` shows what is left; {self.log} may say why the worker ended."
        )


@dataclass(eq=False, kw_only=True)
class QuotaExceededError(TransientError):
    """A user or a flow group has as many executions as it may have, and the flow does not wait."""

    code: ClassVar[str] = "quota-exceeded"
    problem: str = ""
    whose: str
    """Whose quota it is."""
    executions: int
    """Executions that run or wait."""
    quota: int

    def message(self) -> str:
        return (
            f"{self.whose} has {self.executions} executions that run or wait, and a quota of {self.quota}; ask again "
            "later, or let the flow wait with `flow.whenFull: wait`."
        )


@dataclass(eq=False, kw_only=True)
class TerminalError(GobblinDagsterError):
    """A retry does not help until something is repaired."""

    code: ClassVar[str] = "terminal"


@dataclass(eq=False, kw_only=True)
class SourceError(TerminalError):
    """A source cannot be listed, or holds something that the job file does not allow."""

    code: ClassVar[str] = "source"
    advice: ClassVar[str] = (
        "Compare the `source` part of the job file with what exists; `gobblin plan` looks again and changes nothing."
    )
    job: str
    problem: str
    hint: str = ""

    def message(self) -> str:
        return f"Source of job {self.job!r}: {self.problem} {self.hint}".strip()


@dataclass(eq=False, kw_only=True)
class StartpointError(TerminalError):
    """A dataset has no position for its startpoint. The startpoint stays stored, and the dataset is not read."""

    code: ClassVar[str] = "startpoint"
    remedy: ClassVar[str] = "Set another one with `gobblin startpoint set`, or remove it."
    dataset_urn: str
    startpoint: str
    problem: str

    def message(self) -> str:
        return f"Startpoint {self.startpoint!r} of dataset {self.dataset_urn!r}: {self.problem}."


@dataclass(eq=False, kw_only=True)
class ExtractError(TerminalError):
    """A file or record of a work unit cannot be read."""

    code: ClassVar[str] = "extract"
    advice: ClassVar[str] = "Mend or replace it, or take it away, and run again: what was not committed is read again."
    dataset_urn: str
    file: str
    problem: str
    row: int | None = None

    def message(self) -> str:
        row = f", row {self.row}" if self.row is not None else ""
        return f"Dataset {self.dataset_urn!r}, file {self.file}{row}: {self.problem}"


@dataclass(eq=False, kw_only=True)
class ConvertError(TerminalError):
    """A converter, policy, fork operator or writer cannot process a batch."""

    code: ClassVar[str] = "convert"
    advice: ClassVar[str] = (
        "Change the options of the construct, or reject such rows with a row policy before it, and run again."
    )
    dataset_urn: str
    construct: str
    problem: str
    branch: str | None = None
    file: str | None = None
    is_of_rows: bool = True
    """Whether the batch may pass without some row. If False (a time limit), nobody searches for it: each try may take
    as long."""
    is_of_memory: bool = False
    """Whether it took too much memory. Each try may take seconds, so the search for the row ends after a while."""

    def message(self) -> str:
        branch = f", branch {self.branch!r}" if self.branch else ""
        file = f", file {self.file}" if self.file else ""
        return f"Dataset {self.dataset_urn!r}{branch}{file}, {self.construct}: {self.problem}"


@dataclass(eq=False, kw_only=True)
class ForkBranchMismatchError(TerminalError):
    """A fork operator did not return one flag per branch."""

    code: ClassVar[str] = "fork-branch-mismatch"
    remedy: ClassVar[str] = "Return one flag per branch."
    what: str
    flags: int
    branches: int

    def message(self) -> str:
        return f"The fork operator returned {self.flags} {self.what} flags for {self.branches} branches."


@dataclass(eq=False, kw_only=True)
class CopyNotSupportedError(TerminalError):
    """A value cannot be copied, but several branches take its row, or a record-wise construct works on it."""

    code: ClassVar[str] = "copy-not-supported"
    remedy: ClassVar[str] = "Give the type's Python values `__deepcopy__`, or let one branch alone take the row."
    column: str
    type: str
    problem: str
    row: int | None = None

    def message(self) -> str:
        row = f", row {self.row}" if self.row is not None else ""
        return f"Column {self.column!r}{row}: expected values that can be copied, got {self.type} ({self.problem})."


@dataclass(eq=False, kw_only=True)
class StorageError(TerminalError):
    """A file system refused an operation."""

    code: ClassVar[str] = "storage"
    advice: ClassVar[str] = (
        "Free space or grant the permission, and run again: nothing is lost, nothing is published twice."
    )
    operation: str
    path: str
    problem: str
    dataset_urn: str | None = None

    @classmethod
    def of(cls, error: OSError, operation: str, path: str, dataset_urn: str | None = None) -> Self:
        """Return an error of the system as this one; `path` counts if the system names none."""
        where, problem = str(error.filename or path), error.strerror or str(error)
        return cls(operation=operation, path=where, problem=problem, dataset_urn=dataset_urn)

    def message(self) -> str:
        dataset = f"Dataset {self.dataset_urn!r}: " if self.dataset_urn else ""
        return f"{dataset}cannot {self.operation} {self.path}: {self.problem}."


@dataclass(eq=False, kw_only=True)
class StoreVersionError(TerminalError):
    """The state store was written by a newer version of this package."""

    code: ClassVar[str] = "store-version"
    remedy: ClassVar[str] = "Upgrade gobblin-dagster, or point `state:` at another store. Nothing was changed."
    store: str
    found: str
    known: str

    def message(self) -> str:
        return f"State store {self.store} has version {self.found}; this program knows up to {self.known}."


@dataclass(eq=False, kw_only=True)
class CorruptRecordError(TerminalError):
    """A stored record is unreadable or does not match its digest."""

    code: ClassVar[str] = "record-corrupt"
    what: str
    problem: str

    def message(self) -> str:
        return f"{self.what} cannot be read: {self.problem}."


@dataclass(eq=False, kw_only=True)
class StepRefusedError(TerminalError):
    """A commit step would leave the job's output or change a file that may not be ours; its sequence is quarantined."""

    code: ClassVar[str] = "step-refused"
    step: str
    problem: str

    def message(self) -> str:
        return f"Commit step refused, nothing was touched: {self.step}: {self.problem}."


@dataclass(eq=False, kw_only=True)
class StagedFileLostError(TerminalError):
    """A staged file is missing or damaged, and its target is not there: its sequence can only be undone."""

    code: ClassVar[str] = "staged-file-lost"
    remedy: ClassVar[str] = "The watermark did not move; run again to read the range again."
    path: str
    target: str
    problem: str

    def message(self) -> str:
        return f"Staged file {self.path} {self.problem}, and {self.target} is not published."


@dataclass(eq=False, kw_only=True)
class EnvironmentFaultError(TerminalError):
    """The machine lacks something: Java, a free port, a package."""

    code: ClassVar[str] = "environment"
    problem: str
    hint: str

    def message(self) -> str:
        return f"{self.problem} {self.hint}"


@dataclass(eq=False, kw_only=True)
class WorkerDiedError(TerminalError):
    """The Python worker of a work unit died twice: once with other work units, once with this one alone."""

    code: ClassVar[str] = "worker-died"
    advice: ClassVar[str] = (
        "After signal 9, lower `execution.block_bytes` or give the machine more memory; after signal 11, look at the "
        "file that the work unit reads."
    )
    dataset_urn: str
    work_unit: str
    exit_code: int
    said: str = ""
    """Last line that the worker wrote to standard error; empty if none."""

    def message(self) -> str:
        how = f"signal {-self.exit_code}" if self.exit_code < 0 else f"exit code {self.exit_code}"
        why = f"It said: {self.said}" if self.said else "Out of memory and native crashes end this way."
        return (
            f"Dataset {self.dataset_urn!r}, work unit {self.work_unit}: its Python worker died ({how}), "
            f"also when run alone. {why}"
        )


@dataclass(eq=False, kw_only=True)
class OutOfMemoryError(TerminalError):
    """A step of a work unit asked for memory and got none."""

    code: ClassVar[str] = "out-of-memory"
    remedy: ClassVar[str] = (
        "Let a batch hold less (`execution.block_bytes`; `fetch_rows` of the source `query`), or raise that limit."
    )
    dataset_urn: str
    step: str
    problem: str
    limit: str

    def message(self) -> str:
        dataset = f"Dataset {self.dataset_urn!r}, " if self.dataset_urn else ""
        why = f" ({self.problem})" if self.problem else ""
        return f"{dataset}{self.step}: there was not enough memory{why}. {self.limit}"


@dataclass(eq=False, kw_only=True)
class DataQualityError(GobblinDagsterError):
    """A policy of type FAIL did not hold."""

    code: ClassVar[str] = "data-quality"
    advice: ClassVar[str] = (
        "Look at the input. If it is right, change the policy, or set `enforce: false` to only record its outcome."
    )
    dataset_urn: str
    branch: str
    policy: str
    problem: str

    def message(self) -> str:
        return f"Dataset {self.dataset_urn!r}, branch {self.branch!r}: policy {self.policy!r} failed: {self.problem}"


@dataclass(eq=False, kw_only=True)
class CommitConflictError(GobblinDagsterError):
    """Another run or person changed the dataset after it was planned; plan again."""

    code: ClassVar[str] = "commit-conflict"
    remedy: ClassVar[str] = "Run again: what this run prepared is finished or undone, and all else is read again."
    dataset_urn: str


@dataclass(eq=False, kw_only=True)
class DatasetBusyError(CommitConflictError):
    """Another run holds the dataset's lease."""

    code: ClassVar[str] = "dataset-busy"
    remedy: ClassVar[str] = "Wait for that run to end, then run again."
    holder: str
    until: str

    def message(self) -> str:
        return f"Dataset {self.dataset_urn!r} is held by {self.holder} until {self.until}."


@dataclass(eq=False, kw_only=True)
class StaleEpochError(CommitConflictError):
    """Another run has taken over our lease on the dataset."""

    code: ClassVar[str] = "epoch-stale"
    ours: int
    current: int
    """0 if it is not known."""
    holder: str = ""
    """Who took it over, if it still holds it."""
    clock_gap: str = ""
    """About how far the holder's clock is from the clock here: `1 day, 0:00:00 ahead of`; empty if no gap is seen."""

    def message(self) -> str:
        who = self.holder or "another run"
        why = "This machine slept for longer than `lease_ttl_s`, or the clocks of the two machines differ"
        if self.clock_gap:
            why = f"The clock of that machine is about {self.clock_gap} the clock here: set both"
        now = f", the current one is {self.current}" if self.current else ""
        return (
            f"Dataset {self.dataset_urn!r}: {who} took it over while this run worked on it (our epoch {self.ours} is "
            f"over{now}). {why}."
        )


@dataclass(eq=False, kw_only=True)
class WatermarkMovedError(CommitConflictError):
    """The dataset's stored version is not the one that the plan was made from."""

    code: ClassVar[str] = "watermark-moved"
    expected: int
    found: int

    def message(self) -> str:
        return f"Dataset {self.dataset_urn!r}: planned from version {self.expected}, the store holds {self.found}."


@dataclass(eq=False, kw_only=True)
class UnfinishedSequenceError(CommitConflictError):
    """The dataset has a stored commit sequence that is not finished."""

    code: ClassVar[str] = "sequence-unfinished"
    remedy: ClassVar[str] = (
        "The next `gobblin run` finishes it first; or use `gobblin commit recover`. If it can never be finished, "
        "because its target is gone for good, `gobblin commit abandon {sequence_id}` gives it up."
    )
    sequence_id: str
    reason: str = ""
    """Why it could not be finished, if that was tried."""

    def message(self) -> str:
        why = f" It could not be finished: {self.reason}" if self.reason else ""
        return f"Dataset {self.dataset_urn!r} has the unfinished commit sequence {self.sequence_id}.{why}"


@dataclass(eq=False, kw_only=True)
class SequenceChangedError(CommitConflictError):
    """Another run, or a person, ended a commit sequence or put it aside before this run could go on with it."""

    code: ClassVar[str] = "sequence-changed"
    remedy: ClassVar[str] = (
        "`gobblin commit show {sequence_id}` says what became of it. Then run again: unless it waits for a person, "
        "what is not published is read again."
    )
    sequence_id: str
    expected: tuple[str, ...]
    """The states in which it could go on."""
    found: str

    def message(self) -> str:
        why = {"aborted": ": it was abandoned, or undone", "quarantined": ": it waits for a person"}.get(self.found, "")
        return (
            f"Dataset {self.dataset_urn!r}: commit sequence {self.sequence_id} was ended or put aside meanwhile by "
            f"another run or a person{why}; expected {' or '.join(self.expected)}, got {self.found}."
        )


@dataclass(eq=False, kw_only=True)
class GroupHeldBackError(CommitConflictError):
    """The datasets of the run are published together or not at all, and another one of them cannot be published."""

    code: ClassVar[str] = "group-held-back"
    remedy: ClassVar[str] = (
        "Repair the dataset that is named, then run again: what this run prepared is finished or undone, and all else "
        "is read again."
    )
    because: str
    """Which dataset failed, and why."""

    def message(self) -> str:
        because = self.because if self.because.endswith(".") else f"{self.because}."
        return f"Dataset {self.dataset_urn!r} was held back (commit.scope is job): {because}"


@dataclass(eq=False, kw_only=True)
class RangeOverlapError(CommitConflictError):
    """A watermark range would be committed a second time."""

    code: ClassVar[str] = "range-overlap"
    interval: str
    committed: str

    def message(self) -> str:
        return f"Dataset {self.dataset_urn!r}: range {self.interval} overlaps the committed {self.committed}."


@dataclass(eq=False, kw_only=True)
class CommitStateUnknownError(GobblinDagsterError):
    """The connection broke during a store transaction, so it is not known whether it was committed."""

    code: ClassVar[str] = "commit-state-unknown"
    remedy: ClassVar[str] = "Nothing is deleted. Run again: the next run looks the sequence up and goes on from there."
    dataset_urn: str
    sequence_id: str
    problem: str

    def message(self) -> str:
        where = f"Dataset {self.dataset_urn!r}, sequence {self.sequence_id}"
        return f"{where}: it is not known whether it was committed: {self.problem}."


@dataclass(eq=False, kw_only=True)
class QuarantinedError(GobblinDagsterError):
    """A dataset waits for a person because its stored sequence can be neither finished nor undone safely."""

    code: ClassVar[str] = "quarantined"
    remedy: ClassVar[str] = (
        "See `gobblin commit show {sequence_id}`; other datasets go on, unless `commit.scope` is job."
    )
    dataset_urn: str
    sequence_id: str
    reason: str

    def message(self) -> str:
        return f"Dataset {self.dataset_urn!r} is quarantined: {self.reason.removesuffix('.')}."


def advice_of(code: str) -> str:
    """Return the advice of the error with a code; empty if it has none, or if no error has the code.

    Example:
        >>> advice_of("extract")
        'Mend or replace it, or take it away, and run again: what was not committed is read again.'
    """
    found = [GobblinDagsterError]
    for cls in found:
        if cls.code == code:
            return cls.advice
        found += cls.__subclasses__()
    return ""
