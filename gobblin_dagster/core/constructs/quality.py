"""Quality policies: on single rows, and on what a branch of a work unit wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import pyarrow as pa

from gobblin_dagster.core.task_state import BranchCounts, StagedFile


class RowLevelPolicy(Protocol):
    """Judges rows.

    Source: gobblin-core `RowLevelPolicy`. Differs: dropped and quarantined rows are always counted and shown.
    """

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true for each row that passes; null counts as false."""

    def reason(self) -> str:
        """Say in one line what a rejected row violates."""


@dataclass(frozen=True, slots=True)
class BranchView:
    """What a task-level policy may look at: one branch of one work unit, whole but unpublished."""

    branch: str
    counts: BranchCounts
    rows_read: int
    rows_expected: int | None
    schema: pa.Schema
    previous_schema: str | None
    """Schema last published for the branch, as text; None the first time."""
    files: Sequence[StagedFile] = field(default_factory=tuple)


class TaskLevelPolicy(Protocol):
    """Judges the output of one branch before it may be published.

    Source: gobblin-core `TaskLevelPolicy`.
    """

    def evaluate(self, view: BranchView) -> tuple[bool, str]:
        """Return whether it holds, and one line with expected and got."""


@runtime_checkable
class BatchObserver(Protocol):
    """What a task-level policy also implements where it must see the rows: one object per branch and work unit."""

    def observe(self, batch: pa.RecordBatch) -> None:
        """Take note of a batch that was written; keep no batch. Raises ConvertError, which fails the branch."""
