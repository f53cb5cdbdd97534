"""RunRecord: the history of one run of one job, kept in the state store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

RECENT_RUNS = 5_000
"""Runs and sequences of a job that are looked through for one run, newest first."""


class DatasetOutcome(StrEnum):
    """What became of a dataset in a run."""

    COMMITTED = "committed"
    FAILED = "failed"
    IDLE = "idle"
    """Nothing new; its state was not touched."""
    BUSY = "busy"
    """Another run held its lease."""
    QUARANTINED = "quarantined"
    CANCELLED = "cancelled"

    @property
    def is_good(self) -> bool:
        """Whether nothing was left undone."""
        return self in (DatasetOutcome.COMMITTED, DatasetOutcome.IDLE)


class RunStatus(StrEnum):
    """How a run ended, or that it has not ended yet."""

    RUNNING = "running"
    """It began; a killed run stays so until the next one looks after what it left."""
    SUCCEEDED = "succeeded"
    PARTIAL = "partial"
    FAILED = "failed"
    BUSY = "busy"
    """Nothing failed and nothing was committed: other runs hold the datasets that have something new."""
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class DatasetRunRecord:
    """One dataset of one run."""

    outcome: DatasetOutcome
    low: str = ""
    high: str = ""
    rows: int = 0
    quarantined: int = 0
    error: str = ""
    failed_ranges: tuple[str, ...] = ()
    """Ranges of the work units that failed, as people read them."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of one job; `datasets` names only those that had work or trouble."""

    format_name: ClassVar[str] = "RunRecord/1"

    run_id: str
    job: str
    started_at: datetime
    status: RunStatus
    ended_at: datetime | None = None
    datasets: Mapping[str, DatasetRunRecord] = field(default_factory=dict)
