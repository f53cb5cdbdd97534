"""DatasetState: the progress of one dataset, moved only by the commit transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from gobblin_dagster.core.serial import AnyRanges
from gobblin_dagster.core.watermark import Watermark


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts of everything ever published for a dataset."""

    rows_read: int = 0
    rows_filtered: int = 0
    rows_rejected: int = 0
    rows_untaken: int = 0
    rows_quarantined: int = 0
    branch_rows: Mapping[str, int] = field(default_factory=dict)
    """Rows written, by branch."""
    files: int = 0
    bytes_written: int = 0

    def plus(self, other: Totals) -> Totals:
        """Return the sums."""
        names = {*self.branch_rows, *other.branch_rows}
        return Totals(
            rows_read=self.rows_read + other.rows_read,
            rows_filtered=self.rows_filtered + other.rows_filtered,
            rows_rejected=self.rows_rejected + other.rows_rejected,
            rows_untaken=self.rows_untaken + other.rows_untaken,
            rows_quarantined=self.rows_quarantined + other.rows_quarantined,
            branch_rows={n: self.branch_rows.get(n, 0) + other.branch_rows.get(n, 0) for n in sorted(names)},
            files=self.files + other.files,
            bytes_written=self.bytes_written + other.bytes_written,
        )


@dataclass(frozen=True, slots=True)
class DatasetState:
    """What was published of one dataset of one job.

    Source: gobblin-runtime `JobState.DatasetState`. Differs: holds committed ranges, never the states of single tasks; a
    dataset that is not planned keeps its state untouched.
    """

    job: str
    dataset_urn: str
    version: int
    """Grows by one with each commit; the compare-and-swap of the commit reads it."""
    committed: AnyRanges
    snapshot: int
    """Number of the newest snapshot; grows with each commit that published files."""
    run_id: str
    """The run that moved it last."""
    updated_at: datetime
    totals: Totals = field(default_factory=Totals)
    schemas: Mapping[str, str] = field(default_factory=dict)
    """Last published Arrow schema by branch, as text."""
    failed_ranges: tuple[str, ...] = ()
    """Ranges that the last commit left out because their work units failed, for people; `committed` is the truth."""

    @property
    def watermark(self) -> Watermark | None:
        """The next position to read."""
        return self.committed.watermark
