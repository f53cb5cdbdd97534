"""RunRecord: the history of one run of one job, kept in the state store."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

RECENT_RUNS = 5_000
"""How many runs and sequences of a job a search for one run reads at most, newest first."""


class DatasetOutcome(StrEnum):
    """Result of one dataset in a run."""

    COMMITTED = "committed"
    FAILED = "failed"
    IDLE = "idle"
    """Nothing was new; the dataset's state was not changed."""
    BUSY = "busy"
    """Another run held the dataset's lease."""
    QUARANTINED = "quarantined"
    """A stored sequence of the dataset waits for a person."""
    CANCELLED = "cancelled"
    """The run was stopped before the dataset was committed."""

    @property
    def is_good(self) -> bool:
        """Whether everything new of the dataset was committed."""
        return self in (DatasetOutcome.COMMITTED, DatasetOutcome.IDLE)


class RunStatus(StrEnum):
    """How a run ended, or that it has not ended yet."""

    RUNNING = "running"
    """The run has begun. A killed run keeps this status until the next run recovers it."""
    SUCCEEDED = "succeeded"
    PARTIAL = "partial"
    FAILED = "failed"
    BUSY = "busy"
    """Nothing failed and nothing was committed: other runs hold all datasets with new data."""
    INTERRUPTED = "interrupted"
    """The run was stopped by a person or a signal."""


@dataclass(frozen=True, slots=True)
class DatasetRunRecord:
    """Result of one dataset in one run."""

    outcome: DatasetOutcome
    low: str = ""
    """Watermark that the run began from, as text; empty if there was none."""
    high: str = ""
    """Watermark that the run moved to, as text; empty if it did not move."""
    rows: int = 0
    """Rows read."""
    quarantined: int = 0
    """Rows quarantined."""
    error: str = ""
    """The first error, as text; empty without one."""
    failed_ranges: tuple[str, ...] = ()
    """Ranges of the failed work units, as text for people."""
    left: int | None = None
    """Positions that the run was to read and did not publish; None if the watermark is no number, or no watermark is
    known, and in records of older programs."""


def is_run(run_id: str, wanted: Collection[str]) -> bool:
    """Return whether a run id is among others, or that of a try of one of them: `.1`, `.2` and so on behind it.

    Example:
        >>> is_run("1f0c.2", {"1f0c"}), is_run("1f0c.2", {"1f0c.1"})
        (True, False)
    """
    run, dot, number = run_id.rpartition(".")
    return run_id in wanted or (bool(dot) and number.isdecimal() and run in wanted)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of one job; `datasets` holds only datasets that had work, failed, or were busy or quarantined."""

    format_name: ClassVar[str] = "RunRecord/1"

    run_id: str
    job: str
    started_at: datetime
    status: RunStatus
    ended_at: datetime | None = None
    datasets: Mapping[str, DatasetRunRecord] = field(default_factory=dict)
