"""What plan, run and commit return: plain values that the command line and Dagster print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Literal

from gobblin_dagster.core.commit import CommitFacts, CommitReport, CommitSequence
from gobblin_dagster.core.exit_codes import ExitCode
from gobblin_dagster.core.run_record import DatasetOutcome, RunStatus
from gobblin_dagster.core.startpoint import Startpoint
from gobblin_dagster.core.watermark.fields import AnyWatermark


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
    """Rows that should be there: the source's, less those that the commits recorded as filtered, rejected or
    untaken."""

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
    """Why it is not committed; of a committed one, why there is no `audit`, or what became of its manifest."""
    audit: Audit | None = None
    is_busy: bool = False
    """Whether nothing was tried, because another run holds its dataset, or one of its group."""
    manifest: Literal["", "written", "missing"] = ""
    """What became of the manifest of a committed one that had none; where it is missing still, its readers see an older
    snapshot."""


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
