"""Tests that row-level and task-level policies must pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.registry import ConstructKind
from gobblin_dagster.core.constructs import (
    BatchObserver,
    BranchView,
    ConstructContext,
    RowLevelPolicy,
    TaskLevelPolicy,
)
from gobblin_dagster.core.errors import ConvertError
from gobblin_dagster.core.task_state import BranchCounts, StagedFile
from gobblin_dagster.testing.conformance.construct import ConstructConformance, inside_another, rows_of


class RowPolicyConformance(ConstructConformance):
    """Tests of a row-level policy.

    Example:
        ::

            class TestShort(RowPolicyConformance):
                spec = {"type": "my_parts:ShortPolicy", "column": "name", "letters": 3}
                rows = pa.record_batch({"name": ["abc", "abcd", None]})
                passes = [True, False, False]
    """

    protocol = "gobblin_dagster.core.constructs.RowLevelPolicy"
    kind = ConstructKind.ROW_POLICY
    rows: pa.RecordBatch
    """Rows to judge."""
    passes: Sequence[bool]
    """True for each row that passes."""
    unfit_rows: Sequence[pa.RecordBatch] = ()
    """Rows that cannot be judged: a column is missing, or of another type."""

    def judged(self, context: ConstructContext, rows: pa.RecordBatch) -> pa.Array:
        """Judge rows by a fresh object."""
        policy: RowLevelPolicy = self.make(context)
        return policy.check(rows)

    def test_flags_are_one_boolean_for_each_row(self, context: ConstructContext) -> None:
        """`check` returns a boolean Arrow array as long as the batch."""
        flags = self.judged(context, self.rows)
        assert isinstance(flags, pa.BooleanArray)
        assert len(flags) == self.rows.num_rows

    def test_rows_pass_as_expected(self, context: ConstructContext) -> None:
        """`check` is true for the rows that pass; null counts as false."""
        assert [bool(flag) for flag in self.judged(context, self.rows).to_pylist()] == list(self.passes)

    def test_no_rows_give_no_flags(self, context: ConstructContext) -> None:
        """`check` of an empty batch returns an empty array."""
        assert len(self.judged(context, self.rows.slice(0, 0))) == 0

    def test_rows_inside_a_larger_batch_are_judged_alone(self, context: ConstructContext) -> None:
        """Of a batch that is a slice of another batch, only its own rows are checked."""
        flags = self.judged(context, inside_another(self.rows))
        assert [bool(flag) for flag in flags.to_pylist()] == list(self.passes)

    def test_batches_are_judged_one_by_one(self, context: ConstructContext) -> None:
        """One object judges batch after batch, of any size."""
        policy: RowLevelPolicy = self.make(context)
        flags = [bool(policy.check(self.rows.slice(at, 1))[0].as_py()) for at in range(self.rows.num_rows)]
        assert flags == list(self.passes)

    def test_reason_is_one_line(self, context: ConstructContext) -> None:
        """`reason` says in one line what a rejected row violates."""
        policy: RowLevelPolicy = self.make(context)
        assert policy.reason().strip()
        assert "\n" not in policy.reason()

    def test_rows_that_cannot_be_judged_are_refused(self, context: ConstructContext) -> None:
        """`check` raises ConvertError for a column that is missing or of an unfit type."""
        for rows in self.unfit_rows:
            with pytest.raises(ConvertError):
                self.judged(context, rows)


@dataclass(frozen=True)
class BranchOutput:
    """The output of a branch of a work unit, for a task-level policy to check."""

    rows: pa.RecordBatch
    """The rows written; a policy that observes sees them one batch after the other, a row each."""
    file_bytes: Sequence[int] = (1000,)
    """Sizes of the files; the first holds all rows."""
    rows_expected: int | None = None
    """Number of rows that the source announced; None if it does not know."""
    previous_schema: str | None = None
    """As `name: type` lines; None the first time."""
    counts: BranchCounts | None = None
    """Default: all rows that came in were written."""

    def view(self) -> BranchView:
        """Return it as a policy gets it."""
        count = self.rows.num_rows
        files = [
            StagedFile(
                "main", f"/staging/{at}.parquet", f"table/main/{at}.parquet", size, "00" * 32, 0 if at else count
            )
            for at, size in enumerate(self.file_bytes)
        ]
        counts = self.counts or BranchCounts(rows_in=count, rows_written=count, bytes_written=sum(self.file_bytes))
        return BranchView("main", counts, count, self.rows_expected, self.rows.schema, self.previous_schema, files)


class TaskPolicyConformance(ConstructConformance):
    """Tests of a task-level policy.

    Example:
        ::

            class TestEnough(TaskPolicyConformance):
                spec = {"type": "my_parts:EnoughPolicy", "rows": 2}
                holds = [BranchOutput(pa.record_batch({"id": [1, 2]}))]
                breaks = [BranchOutput(pa.record_batch({"id": [1]}))]
    """

    protocol = "gobblin_dagster.core.constructs.TaskLevelPolicy"
    kind = ConstructKind.TASK_POLICY
    holds: Sequence[BranchOutput]
    """Outputs that keep the policy, at least one."""
    breaks: Sequence[BranchOutput]
    """Outputs that break it, at least one."""

    def judged(self, context: ConstructContext, output: BranchOutput) -> tuple[bool, str]:
        """Judge an output by a fresh object, after it has seen the rows if it observes."""
        policy: TaskLevelPolicy = self.make(context)
        if isinstance(policy, BatchObserver):
            for at in range(output.rows.num_rows):
                policy.observe(output.rows.slice(at, 1))
        return policy.evaluate(output.view())

    def test_output_that_keeps_it_passes(self, context: ConstructContext) -> None:
        """`evaluate` returns True for an output that keeps the policy."""
        assert self.holds
        assert [
            self.judged(context, output) for output in self.holds if self.judged(context, output)[0] is not True
        ] == []

    def test_output_that_breaks_it_fails(self, context: ConstructContext) -> None:
        """`evaluate` returns False for an output that breaks the policy; it does not raise."""
        assert self.breaks
        assert [
            self.judged(context, output) for output in self.breaks if self.judged(context, output)[0] is not False
        ] == []

    def test_detail_is_one_line(self, context: ConstructContext) -> None:
        """`evaluate` says in one line what was expected and what was got, whether it holds or not."""
        for output in (*self.holds, *self.breaks):
            _, detail = self.judged(context, output)
            assert detail.strip()
            assert "\n" not in detail

    def test_fresh_object_says_the_same_again(self, context: ConstructContext) -> None:
        """A fresh object judges the same output the same way: it has no memory outside of itself."""
        for output in (*self.holds, *self.breaks):
            assert self.judged(context, output) == self.judged(context, output)

    def test_observer_changes_no_rows(self, context: ConstructContext) -> None:
        """`observe` does not write into the batch: it is what was written."""
        for output in (*self.holds, *self.breaks):
            before = rows_of(output.rows)
            self.judged(context, output)
            assert rows_of(output.rows) == before
