"""IdentityForkOperator: give every row to every branch."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.spec.job import SpecModel


class IdentityForkOperator:
    """Give every row to every branch.

    Source: gobblin-core `IdentityForkOperator`. Differs: copies nothing, because Arrow batches are immutable.
    """

    class Options(SpecModel):
        """`type: identity` has no options."""

    def __init__(self, options: Options, context: ConstructContext, *, branches: Sequence[str]) -> None:
        self._flags = (True,) * len(branches)

    def fork_schema(self, schema: pa.Schema) -> Sequence[bool]:
        return self._flags

    def fork_batch(self, batch: pa.RecordBatch) -> Sequence[bool | pa.BooleanArray]:
        return self._flags
