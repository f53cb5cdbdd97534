"""Tests that every fork operator must pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from gobblin_dagster.constructs.registry import ConstructKind
from gobblin_dagster.core.constructs import ConstructContext, ForkOperator
from gobblin_dagster.testing.conformance.construct import ConstructConformance, inside_another


class ForkConformance(ConstructConformance):
    """Tests of a fork operator.

    Example:
        ::

            class TestByLength(ForkConformance):
                spec = {"type": "my_parts:ByLengthFork", "column": "name"}
                rows = pa.record_batch({"name": ["a", "abcd"]})
                takes = {"short": [True, False], "long": [False, True]}
    """

    protocol = "gobblin_dagster.core.constructs.ForkOperator"
    kind = ConstructKind.FORK
    rows: pa.RecordBatch
    """Rows to share out."""
    takes: Mapping[str, Sequence[bool]]
    """By branch, in the order of the job file: which of the rows it takes."""

    def operator(self, context: ConstructContext) -> ForkOperator:
        """Make a fresh object for the branches."""
        made: ForkOperator = self.make(context, branches=list(self.takes))
        return made

    def taken(self, operator: ForkOperator, rows: pa.RecordBatch) -> dict[str, list[bool]]:
        """Return which rows each branch takes, whatever form the flags have."""
        operator.fork_schema(rows.schema)
        flags = operator.fork_batch(rows)
        named = zip(self.takes, flags, strict=True)
        return {
            name: [flag] * rows.num_rows if isinstance(flag, bool) else [bool(one) for one in flag.to_pylist()]
            for name, flag in named
        }

    def test_schema_gives_one_flag_for_each_branch(self, context: ConstructContext) -> None:
        """`fork_schema` returns one bool for each branch: whether the branch exists for this schema."""
        flags = self.operator(context).fork_schema(self.rows.schema)
        assert [type(flag) for flag in flags] == [bool] * len(self.takes)

    def test_batch_gives_one_flag_for_each_branch(self, context: ConstructContext) -> None:
        """`fork_batch` returns for each branch a bool, or a boolean Arrow array as long as the batch."""
        operator = self.operator(context)
        operator.fork_schema(self.rows.schema)
        flags = operator.fork_batch(self.rows)
        assert len(flags) == len(self.takes)
        assert [flag for flag in flags if not isinstance(flag, bool | pa.BooleanArray)] == []
        assert {len(flag) for flag in flags if not isinstance(flag, bool)} <= {self.rows.num_rows}

    def test_rows_go_where_they_belong(self, context: ConstructContext) -> None:
        """Each branch takes the rows that the subclass says; null counts as false."""
        assert self.taken(self.operator(context), self.rows) == {
            name: list(flags) for name, flags in self.takes.items()
        }

    def test_no_rows_go_nowhere(self, context: ConstructContext) -> None:
        """An empty batch is shared out without an error."""
        found = self.taken(self.operator(context), self.rows.slice(0, 0))
        assert found == {name: [] for name in self.takes}

    def test_rows_inside_a_larger_batch_are_shared_out_alone(self, context: ConstructContext) -> None:
        """Of a batch that is a slice of another batch, only its own rows are forked."""
        plain = self.taken(self.operator(context), self.rows)
        assert self.taken(self.operator(context), inside_another(self.rows)) == plain

    def test_batches_may_be_cut_anywhere(self, context: ConstructContext) -> None:
        """The branches of a row do not depend on the batch that it comes in."""
        operator = self.operator(context)
        parts = [self.taken(operator, self.rows.slice(at, 1)) for at in range(self.rows.num_rows)]
        joined = {name: [flag for part in parts for flag in part[name]] for name in self.takes}
        assert joined == {name: list(flags) for name, flags in self.takes.items()}
