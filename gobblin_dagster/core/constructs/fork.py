"""Fork operators: they say which branch takes which rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa


class ForkOperator(Protocol):
    """Says which branch takes which rows.

    Source: gobblin-api `ForkOperator`. Differs: flags for a whole batch at once.
    """

    def fork_schema(self, schema: pa.Schema) -> Sequence[bool]:
        """Return one flag per branch: whether the branch exists at all for this schema."""

    def fork_batch(self, batch: pa.RecordBatch) -> Sequence[bool | pa.BooleanArray]:
        """Return one flag per branch: true (all rows), false (none) or a mask; raises ForkBranchMismatchError upstream."""
