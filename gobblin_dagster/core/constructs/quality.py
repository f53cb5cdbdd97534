"""Quality policies check single rows, and the whole output of one branch of a work unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import pyarrow as pa

from gobblin_dagster.core.task_state import BranchCounts, StagedFile


class RowLevelPolicy(Protocol):
    """Checks single rows.

    Runs in a Spark task after the converters, before the fork or in one branch; one object per work unit (and branch).
    The job file says what happens to a rejected row: `on_violation: fail`, `drop` or `quarantine`.

    Source: gobblin-core `RowLevelPolicy`. Differs: dropped and quarantined rows are always counted and shown.
    """

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return true for each row that passes.

        Called once for each batch; after a ConvertError also with parts of it, to find the row.

        Shape: as long as the batch; null counts as false.

        Raises:
            ConvertError: a column is missing or has a wrong type, or a value cannot be judged; the work unit or branch
                fails.
        """

    def reason(self) -> str:
        """Return one line that says which rule a rejected row breaks; shown in errors and stored in the quarantine."""


@dataclass(frozen=True, slots=True)
class BranchView:
    """The output of one branch of one work unit: staged and complete, not yet published."""

    branch: str
    counts: BranchCounts
    rows_read: int
    """Rows that the extractor of the work unit yielded, before the fork."""
    rows_expected: int | None
    """Rows that the source expected (`WorkUnit.rows`); None if it did not know."""
    schema: pa.Schema
    """Schema that the branch wrote."""
    previous_schema: str | None
    """Schema last published for the branch, as `name: type` lines; None if nothing was published yet."""
    files: Sequence[StagedFile] = field(default_factory=tuple)
    """Staged files; empty if the branch wrote no rows, or shares its files with other work units."""


class TaskLevelPolicy(Protocol):
    """Checks the output of one branch of one work unit before it may be published.

    Runs in a Spark task, one object per work unit and branch. If the policy has type FAIL and does not hold, the work
    unit fails; with type OPTIONAL the outcome is only recorded.

    Source: gobblin-core `TaskLevelPolicy`.
    """

    def evaluate(self, view: BranchView) -> tuple[bool, str]:
        """Return whether the policy holds, and one line with what was expected and what was found.

        Called once, after the branch has closed its files; not called for a branch that failed before.
        """


@runtime_checkable
class BatchObserver(Protocol):
    """Optional addition to `TaskLevelPolicy`: it must see the rows, for example to count distinct keys."""

    def observe(self, batch: pa.RecordBatch) -> None:
        """Look at a batch that the branch has written; called once for each batch, before `evaluate`.

        Keep no reference to the batch: memory would grow with the input.

        Raises:
            ConvertError: a column is missing or has a wrong type; the branch fails.
        """
