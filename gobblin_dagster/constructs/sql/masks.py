"""Boolean expressions over Arrow batches."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from gobblin_dagster.constructs.sql.select import SqlSelect, shorten
from gobblin_dagster.constructs.types.columns import columns_text
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import ConvertError


class SqlMasks(SqlSelect):
    """Evaluate boolean expressions on batches, all in one query; null counts as false.

    Raises:
        ConvertError: (all methods) as `SqlSelect`; the message names the one expression that failed.
    """

    def __init__(self, expressions: Sequence[str], construct: str, context: ConstructContext) -> None:
        select_list = ", ".join(_mask(text, at) for at, text in enumerate(expressions))
        super().__init__(select_list, construct, context, shown="; ".join(expressions))
        self._expressions = tuple(expressions)
        self._checked: pa.Schema | None = None

    def check(self, schema: pa.Schema) -> None:
        """Refuse expressions that do not fit the schema or are not boolean; evaluates no row."""
        # Beside a column, an aggregate needs a GROUP BY and is refused, also where each batch has one row.
        beside = [f'"{name.replace(chr(34), 2 * chr(34))}"' for name in schema.names[:1]]
        for text in self._expressions:
            try:
                result = self._schema(", ".join([*beside, _mask(text, 0)]), text, schema)
            except ConvertError as error:
                if "GROUP BY clause" in error.problem:
                    raise self.error(f"{shorten(text)!r}: conditions must not aggregate") from error
                raise
            result = pa.schema(list(result)[len(beside) :])
            if len(result) != 1 or not pa.types.is_boolean(result.field(0).type):
                got = ", ".join(str(field.type) for field in result)
                raise self.error(f"{shorten(text)!r}: expected one boolean, got {got}; columns: {columns_text(schema)}")
        self._checked = schema

    def masks(self, batch: pa.RecordBatch) -> list[pa.BooleanArray]:
        """Return one mask per expression: one value per row of the batch, no nulls."""
        if self._checked is None or not self._checked.equals(batch.schema):
            self.check(batch.schema)
        try:
            result = self.run(batch)
        except ConvertError as error:
            if error.is_of_rows and len(self._expressions) > 1:
                for text in self._expressions:
                    self._result(_mask(text, 0), text, batch)
            raise
        if result.num_rows != batch.num_rows:
            raise self.error(
                f"{shorten(self._shown)!r}: expected one answer for each of {batch.num_rows} rows, got "
                f"{result.num_rows}; conditions must not aggregate"
            )
        return [column.fill_null(False) for column in result.columns]


def _mask(expression: str, position: int) -> str:
    return f"(\n{expression}\n) AS m{position}"
