"""NotNullRowPolicy: pass rows with values in the named columns."""

from __future__ import annotations

import functools

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from gobblin_dagster.constructs.types.arrow import decoded
from gobblin_dagster.constructs.types.columns import require_columns
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.spec.job import SpecModel


class NotNullRowPolicy:
    """Pass the rows without null in the named columns. An empty text and NaN are values.

    Source: gobblin-core `AvroHeaderGuidPolicy` and similar ones (a field exists and is not null), for any column.
    """

    class Options(SpecModel):
        """Options of `type: not_null`."""

        columns: tuple[str, ...] = Field(min_length=1)
        """Names of the columns that must not be null; each must exist."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._columns = options.columns
        self._context = context

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        require_columns(self._columns, batch.schema, "row policy 'not_null'", self._context)
        return functools.reduce(pc.and_, (_has_value(batch.column(name)) for name in self._columns))

    def reason(self) -> str:
        return f"null in {' or '.join(self._columns)}"


def _has_value(values: pa.Array) -> pa.BooleanArray:
    # A dictionary may have null among its values.
    return pc.is_valid(decoded(values))
