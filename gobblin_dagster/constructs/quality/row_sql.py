"""SqlRowPolicy: pass rows for which a SQL expression is true."""

from __future__ import annotations

import pyarrow as pa
from pydantic import Field

from gobblin_dagster.constructs.sql.masks import SqlMasks
from gobblin_dagster.constructs.sql.syntax import SqlExpression
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.spec.job import SpecModel


class SqlRowPolicy:
    """Pass the rows for which `rule` is true; false and null are violations.

    Source: none; in Gobblin each rule needs a class.
    """

    class Options(SpecModel):
        """Options of `type: sql`."""

        rule: SqlExpression = Field(min_length=1)
        """Boolean expression that is true for good rows, e.g. `dep_time IS NOT NULL`."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._rule = " ".join(options.rule.split())
        self._masks = SqlMasks([options.rule], f"row policy {context.name or 'sql'!r}", context)

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        return self._masks.masks(batch)[0]

    def reason(self) -> str:
        return f"not true: {self._rule}"
