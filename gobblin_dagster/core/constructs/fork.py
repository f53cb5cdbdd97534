"""Fork operators choose the rows of each branch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa


class ForkOperator(Protocol):
    """Chooses the rows of each branch. A row may go to several branches, or to none.

    Made with `cls(options, context, branches=[names in the order of the job file])`, in a Spark task, once per work
    unit. `gobblin check` and `gobblin plan` also make one on the driver.

    Source: gobblin-api `ForkOperator`. Differs: returns flags for a whole batch at once.
    """

    def fork_schema(self, schema: pa.Schema) -> Sequence[bool]:
        """Return one flag per branch, in their order: False leaves the branch out for this work unit.

        Called once, before `fork_batch`, with the schema after the converters before the fork. The engine raises
        ForkBranchMismatchError if the number of flags is not the number of branches.

        Raises:
            ConvertError: a column that the operator needs is missing or has a wrong type.
        """

    def fork_batch(self, batch: pa.RecordBatch) -> Sequence[bool | pa.BooleanArray]:
        """Return one flag per branch, in their order: True takes all rows, False none, a mask those that are true.

        Called once for each batch; after a ConvertError also with parts of it, to find the row. Shape: a mask is as
        long as the batch; null counts as false. The engine raises ForkBranchMismatchError if the number of flags is
        not the number of branches.

        Raises:
            ConvertError: a value cannot be judged; the work unit fails.
        """
