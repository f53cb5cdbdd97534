"""Results of plan, run and commit: plain values that the command line and Dagster print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Literal

from gobblin_dagster.core.commit import CommitFacts, CommitReport, CommitSequence, loaded_bytes
from gobblin_dagster.core.exit_codes import ExitCode
from gobblin_dagster.core.run_record import DatasetOutcome, RunStatus
from gobblin_dagster.core.startpoint import Startpoint
from gobblin_dagster.core.utils.table import Column, Table, mark
from gobblin_dagster.core.watermark.fields import AnyWatermark


@dataclass(frozen=True, slots=True)
class DatasetResult(CommitFacts):
    """The result of one dataset in a run."""

    dataset_urn: str
    outcome: DatasetOutcome
    actual_high: AnyWatermark | None = field(default=None, kw_only=True)
    """The dataset's watermark after the run."""
    files: int = field(default=0, kw_only=True)
    bytes_written: int = field(default=0, kw_only=True)
    """Bytes of the files, and of those whose rows a table or topic took in their place."""
    files_removed: int = field(default=0, kw_only=True)
    """Files of earlier publications that the new snapshot no longer holds."""
    snapshot: int = field(default=0, kw_only=True)
    sequence_id: str = field(default="", kw_only=True)
    startpoint: Startpoint | None = field(default=None, kw_only=True)
    """The startpoint that the commit consumed, the newest one if there were several; the first note tells of all."""

    @classmethod
    def of_commit(cls, sequence: CommitSequence) -> DatasetResult:
        """Return the result that a commit sequence stores."""
        report = sequence.report
        facts = _facts(report) | {"startpoint": report.startpoint}
        return cls(sequence.dataset_urn, DatasetOutcome.COMMITTED, **facts).committed_by(sequence)

    @property
    def problem(self) -> str:
        """Why something of the dataset failed, in one line; empty if nothing did."""
        return "; ".join(failure.message for failure in self.failures)

    @property
    def is_committed(self) -> bool:
        """True if the run committed the dataset."""
        return self.outcome is DatasetOutcome.COMMITTED

    def committed_by(self, sequence: CommitSequence) -> DatasetResult:
        """Return the result after the commit of a sequence."""
        return replace(
            self,
            outcome=DatasetOutcome.COMMITTED,
            actual_high=sequence.after.watermark,
            snapshot=sequence.after.snapshot,
            sequence_id=sequence.id,
            files=len(sequence.files),
            bytes_written=sum(file.size_bytes for file in sequence.files) + loaded_bytes(sequence.steps),
            files_removed=len(sequence.removed),
        )

    def to_report(self) -> CommitReport:
        """Return the report that the commit sequence stores: the facts, and the startpoint that it consumes."""
        return CommitReport(**_facts(self), startpoint=self.startpoint)


def _facts(holder: CommitFacts) -> dict[str, Any]:
    return {each.name: getattr(holder, each.name) for each in fields(CommitFacts)}


@dataclass(frozen=True, slots=True)
class DatasetCommit:
    """The commit of one dataset: a sequence to publish, or only the reason why there is none."""

    result: DatasetResult
    """The result after the sequence is committed; without a sequence, the result as it is."""
    sequence: CommitSequence | None = None


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """Everything that remains to be done after the Spark job has ended: small, never data.

    `JobRun.extract` returns it and `JobRun.publish` commits it in the same process: op `extract` hands it to the
    publishing IO manager beside the live `JobRun`, because the commit needs its store and leases.
    """

    job: str
    run_id: str
    started_at: datetime
    datasets: tuple[DatasetCommit, ...] = ()
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Audit:
    """Rows of one dataset counted again: in the source and in the published files."""

    dataset_urn: str
    source_rows: int
    published_rows: Mapping[str, int]
    """Rows in the files of the newest snapshot, by branch, including the quarantine."""
    expected_rows: Mapping[str, int]
    """Rows that should be there, by branch: the source's rows, less the rows that the commits recorded as filtered,
    rejected or taken by no branch."""

    @property
    def lost(self) -> int:
        """Number of rows missing in the worst branch."""
        return max([0, *(self.expected_rows[b] - rows for b, rows in self.published_rows.items())])

    @property
    def duplicated(self) -> int:
        """Number of rows too many in the worst branch."""
        return max([0, *(rows - self.expected_rows[b] for b, rows in self.published_rows.items())])


@dataclass(frozen=True, slots=True)
class RecoveredDataset:
    """A stored sequence that was finished, undone or set aside before planning."""

    sequence_id: str
    dataset_urn: str
    state: str
    """`committed`, `aborted`, `quarantined`, or `prepared` if finishing it failed and will be tried again."""
    steps_found_done: int = 0
    steps_redone: int = 0
    reason: str = ""
    """Why it is not committed; for a committed sequence, why there is no `audit`, or why it has no manifest."""
    audit: Audit | None = None
    is_busy: bool = False
    """True if nothing was tried, because another run holds its dataset, or a dataset of its group."""
    manifest: Literal["", "written", "missing"] = ""
    """Result of writing the manifest of a committed sequence that had none. `missing`: still none, so readers of
    manifests see an older snapshot. Empty: it had one."""


_RESULTS: tuple[Column[DatasetResult], ...] = (
    Column("dataset", "text", lambda one: one.dataset_urn),
    Column("outcome", "text", lambda one: one.outcome.value),
    Column("rows", "number", lambda one: one.rows_read),
    Column("quarantined", "number", lambda one: one.rows_quarantined or None),
    Column("watermark", "text", lambda one: mark(one.actual_high)),
    Column("snapshot", "number", lambda one: one.snapshot or None),
    Column("files", "number", lambda one: one.files or None),
    Column("bytes", "number", lambda one: one.bytes_written or None, is_shown=False),
    Column("problem", "text", lambda one: one.problem or None),
    Column("notes", "text", lambda one: " ".join(one.notes) or None),
)


@dataclass(frozen=True, slots=True, repr=False)
class RunResult(Table[DatasetResult]):
    """The end of one run of one job; shown as a table of its datasets, which it also iterates."""

    job: str
    run_id: str
    status: RunStatus
    started_at: datetime
    ended_at: datetime
    datasets: tuple[DatasetResult, ...] = ()
    recovered: tuple[RecoveredDataset, ...] = ()

    def with_outcome(self, *outcomes: DatasetOutcome) -> tuple[DatasetResult, ...]:
        """Return the datasets with one of these outcomes."""
        return tuple(dataset for dataset in self.datasets if dataset.outcome in outcomes)

    @property
    def exit_code(self) -> ExitCode:
        """Exit code of `gobblin run`."""
        return ExitCode.of_run(self.status)

    def _title(self) -> str:
        took = (self.ended_at - self.started_at).total_seconds()
        recovered = f", {len(self.recovered):,} recovered before" if self.recovered else ""
        return f"job {self.job}: {self.status.value} after {took:.1f} s, run {self.run_id}{recovered}"

    def _items(self) -> Sequence[DatasetResult]:
        return self.datasets

    def _columns(self) -> Sequence[Column[DatasetResult]]:
        return _RESULTS
