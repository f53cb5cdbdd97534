"""What plan, run and commit return: plain values that the command line and Dagster print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Literal

from gobblin_dagster.core.commit import CommitFacts, CommitReport, CommitSequence
from gobblin_dagster.core.errors import SourceError
from gobblin_dagster.core.exit_codes import ExitCode
from gobblin_dagster.core.run_record import DatasetOutcome, RunStatus
from gobblin_dagster.core.serial import AnyRanges, AnyWatermark
from gobblin_dagster.core.startpoint import Startpoint
from gobblin_dagster.core.work_unit import WorkUnit


@dataclass(frozen=True, slots=True)
class DatasetPlan:
    """What a run would do for one dataset."""

    dataset_urn: str
    commit_id: str
    """Names the files of the publication to come; 128 random bits."""
    version_read: int
    """Version of the state that the plan was made from; the commit refuses any other."""
    low: AnyWatermark | None
    """Next position to read; None where the dataset has neither state nor data."""
    expected_high: AnyWatermark | None
    work_units: tuple[WorkUnit, ...] = ()
    notes: tuple[str, ...] = ()
    """What people should know: late files, vanished files."""
    problem: str = ""
    """Why the dataset cannot be planned; it fails alone."""
    code: str = SourceError.code
    """That of `problem`."""
    quarantined: bool = False
    """Whether `problem` is a quarantined commit sequence that waits for a person."""
    previous_schemas: Mapping[str, str] = field(default_factory=dict)
    startpoint: Startpoint | None = None
    """The one in force, which the commit consumes."""
    begin: AnyRanges | None = None
    """What counts as read under the startpoint; None where that is what was committed."""
    expired: Startpoint | None = None
    """A startpoint that is not applied any more: the run deletes it, be there anything to commit or not."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """Ids of what is read, by name (`DatasetOffer.origin`); the commit keeps them."""

    @property
    def is_moving(self) -> bool:
        """Whether a run would commit anything: what it reads, or that it begins elsewhere."""
        return not self.problem and (self.has_work or self.begin is not None)

    @property
    def has_work(self) -> bool:
        """Whether anything is to be read."""
        return bool(self.work_units)

    @property
    def files(self) -> int | None:
        """Input files; None where the source has none."""
        return _total(unit.files for unit in self.work_units)

    @property
    def rows(self) -> int | None:
        """Expected rows; None where the source does not know."""
        return _total(unit.rows for unit in self.work_units)

    @property
    def size_bytes(self) -> int | None:
        """Expected bytes; None where the source does not know."""
        return _total(unit.size_bytes for unit in self.work_units)

    @property
    def cost_ms(self) -> int | None:
        """Expected milliseconds of all work units; None where no dataset of the plan has a history."""
        return _total(unit.cost_ms for unit in self.work_units)


def _total(parts: object) -> int | None:
    values = list(parts)  # type: ignore[call-overload]  # a generator of int | None
    return None if any(value is None for value in values) else sum(values)


@dataclass(frozen=True, slots=True)
class Leftover:
    """A stored commit sequence that the next run recovers first, or that waits for a person."""

    sequence_id: str
    dataset_urn: str
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What a run would do: data, printable and comparable; `run` executes exactly this object."""

    job: str
    run_id: str
    datasets: tuple[DatasetPlan, ...]
    packs: tuple[tuple[str, ...], ...] = ()
    """Work unit ids by pack; a Spark task runs one pack."""
    leftovers: tuple[Leftover, ...] = ()
    branches: tuple[str, ...] = ()
    """Branches that each dataset is published to, the quarantine included where a policy uses it."""
    scope: Literal["dataset", "job"] = "dataset"
    """Whether each dataset is published on its own, or all of the run together."""
    commit_steps: tuple[str, ...] = ()
    """What will be committed per dataset, in order, for people."""

    @property
    def has_work(self) -> bool:
        """Whether a run would read anything."""
        return any(dataset.has_work for dataset in self.datasets)

    @property
    def pack_weights(self) -> tuple[int, ...]:
        """Expected cost of each pack, as `WorkUnit.weight` counts it: milliseconds where datasets have a history."""
        weights = {unit.id: unit.weight for dataset in self.datasets for unit in dataset.work_units}
        return tuple(sum(weights[unit_id] for unit_id in pack) for pack in self.packs)

    @property
    def skew(self) -> float | None:
        """Weight of the heaviest pack as a multiple of the mean; 1.0 is even. None without packs."""
        weights = self.pack_weights
        return max(weights) * len(weights) / sum(weights) if weights else None

    @property
    def has_changes(self) -> bool:
        """Whether a run would change anything: new data, a startpoint to honour, or a sequence to finish."""
        return self.is_moving or bool(self.leftovers)

    @property
    def is_moving(self) -> bool:
        """Whether a run would commit anything of its own."""
        return any(dataset.is_moving for dataset in self.datasets)


@dataclass(frozen=True, slots=True)
class DatasetResult(CommitFacts):
    """What became of one dataset in a run."""

    dataset_urn: str
    outcome: DatasetOutcome
    actual_high: AnyWatermark | None = field(default=None, kw_only=True)
    """The dataset's watermark after the run."""
    files: int = field(default=0, kw_only=True)
    bytes_written: int = field(default=0, kw_only=True)
    files_removed: int = field(default=0, kw_only=True)
    """Files of earlier publications that the new snapshot no longer holds."""
    snapshot: int = field(default=0, kw_only=True)
    sequence_id: str = field(default="", kw_only=True)

    @classmethod
    def of_commit(cls, sequence: CommitSequence) -> DatasetResult:
        """Return the result that a commit sequence carries."""
        return cls(sequence.dataset_urn, DatasetOutcome.COMMITTED, **_facts(sequence.report)).committed_by(sequence)

    @property
    def is_committed(self) -> bool:
        """Whether the run moved the dataset."""
        return self.outcome is DatasetOutcome.COMMITTED

    def committed_by(self, sequence: CommitSequence) -> DatasetResult:
        """Return the result with what a commit sequence makes true."""
        return replace(
            self,
            outcome=DatasetOutcome.COMMITTED,
            actual_high=sequence.after.watermark,
            snapshot=sequence.after.snapshot,
            sequence_id=sequence.id,
            files=len(sequence.files),
            bytes_written=sum(file.size_bytes for file in sequence.files),
            files_removed=len(sequence.removed),
        )

    def to_report(self, startpoint: Startpoint | None = None) -> CommitReport:
        """Return what the commit sequence shall carry: the facts, and the startpoint that it consumes."""
        return CommitReport(**_facts(self), startpoint=startpoint)


def _facts(holder: CommitFacts) -> dict[str, Any]:
    return {each.name: getattr(holder, each.name) for each in fields(CommitFacts)}


@dataclass(frozen=True, slots=True)
class DatasetCommit:
    """What the commit is to do for one dataset: publish a sequence, or only report why there is none."""

    result: DatasetResult
    """What will be true once the sequence is committed, or is true already."""
    sequence: CommitSequence | None = None


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """All that is left to do once the Spark job has ended: small, never data.

    `JobRun.extract` returns it, `JobRun.publish` commits it, in one process: op `extract` hands it to the publishing IO
    manager beside the live `JobRun`, whose store and leases the commit needs.
    """

    job: str
    run_id: str
    started_at: datetime
    datasets: tuple[DatasetCommit, ...] = ()
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Audit:
    """Rows of the source counted anew, against the published files counted anew, of one dataset."""

    dataset_urn: str
    source_rows: int
    published_rows: Mapping[str, int]
    """Rows in the files of the newest snapshot, by branch, the quarantine included."""
    expected_rows: Mapping[str, int]
    """Rows that should be there: the source's, less those that the commits recorded as filtered, rejected or untaken."""

    @property
    def lost(self) -> int:
        """Rows missing, in the worst branch."""
        return max([0, *(self.expected_rows[b] - rows for b, rows in self.published_rows.items())])

    @property
    def duplicated(self) -> int:
        """Rows too many, in the worst branch."""
        return max([0, *(rows - self.expected_rows[b] for b, rows in self.published_rows.items())])


@dataclass(frozen=True, slots=True)
class RecoveredDataset:
    """A stored sequence that was finished (or undone, or set aside) before planning."""

    sequence_id: str
    dataset_urn: str
    state: str
    """`committed`, `aborted`, `quarantined`, or `prepared` where the redo failed and will be tried again."""
    steps_found_done: int = 0
    steps_redone: int = 0
    reason: str = ""
    """Why it is not committed; of a committed one, why there is no `audit`."""
    audit: Audit | None = None
    is_busy: bool = False
    """Whether nothing was tried, because another run holds its dataset, or one of its group."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """The end of one run of one job."""

    job: str
    run_id: str
    status: RunStatus
    started_at: datetime
    ended_at: datetime
    datasets: tuple[DatasetResult, ...] = ()
    recovered: tuple[RecoveredDataset, ...] = ()

    def with_outcome(self, *outcomes: DatasetOutcome) -> tuple[DatasetResult, ...]:
        """Return the datasets that ended so."""
        return tuple(dataset for dataset in self.datasets if dataset.outcome in outcomes)

    @property
    def exit_code(self) -> ExitCode:
        """What `gobblin run` ends with."""
        return ExitCode.of_run(self.status)
