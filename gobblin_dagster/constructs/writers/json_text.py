"""Rows as JSON text, the same way for every schema; each line can be read by any JSON reader."""

from __future__ import annotations

import pyarrow as pa

from gobblin_dagster.constructs.arrow_types import is_binary
from gobblin_dagster.constructs.sql import SqlSelect, sql_text
from gobblin_dagster.core.constructs import ConstructContext


class JsonRows:
    """Turns batches into JSON objects, one text per row, keys in the order of the columns.

    Numbers and booleans are JSON's own. Decimals are text, so that no digit is lost; timestamps are ISO 8601 text (`Z`
    where they have a zone, which is then UTC); binary is base64; NaN and infinities are text. Nested values follow the
    same rules.
    """

    def __init__(self, construct: str, context: ConstructContext) -> None:
        self._construct = construct
        self._context = context
        self._schema: pa.Schema | None = None
        self._select: SqlSelect | None = None

    def texts(self, batch: pa.RecordBatch) -> pa.StringArray:
        """Return one JSON object per row; raises ConvertError for a type that has no JSON form."""
        if self._select is None or self._schema is None or not self._schema.equals(batch.schema):
            self._schema = batch.schema
            self._select = SqlSelect(f"{_object(batch.schema)}::VARCHAR AS record", self._construct, self._context)
        # Columns go by position: names may differ in case only, which SQL does not see.
        positional = pa.RecordBatch.from_arrays(batch.columns, names=[f"c{at}" for at in range(batch.num_columns)])
        return self._select.run(positional).column(0)


def _object(schema: pa.Schema) -> str:
    pairs = [f"{sql_text(field.name)}, {_value(f'c{at}', field.type, 0)}" for at, field in enumerate(schema)]
    return f"json_object({', '.join(pairs)})"


def _value(sql: str, kind: pa.DataType, depth: int) -> str:
    """Return the SQL that makes a JSON-ready value of an expression of an Arrow type."""
    if pa.types.is_dictionary(kind):
        return _value(sql, kind.value_type, depth)
    if pa.types.is_struct(kind):
        return _struct(sql, kind, depth)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        item = f"x{depth}"
        return f"to_json(list_transform({sql}, lambda {item}: to_json({_value(item, kind.value_type, depth + 1)})))"
    return _scalar(sql, kind)


def _struct(sql: str, kind: pa.DataType, depth: int) -> str:
    pairs = []
    for field in (kind.field(at) for at in range(kind.num_fields)):
        name = sql_text(field.name)
        pairs.append(f"{name}, {_value(f'struct_extract({sql}, {name})', field.type, depth)}")
    return f"CASE WHEN {sql} IS NOT NULL THEN json_object({', '.join(pairs)}) END"


def _scalar(sql: str, kind: pa.DataType) -> str:
    if pa.types.is_floating(kind):
        return f"CASE WHEN isfinite({sql}) THEN to_json({sql}) ELSE to_json({sql}::VARCHAR) END"
    if pa.types.is_timestamp(kind):
        text = f"replace({sql}::VARCHAR, ' ', 'T')"
        return f"replace({text}, '+00', 'Z')" if kind.tz else text
    if is_binary(kind):
        return f"base64({sql})"
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind) or pa.types.is_map(kind):
        return sql
    return f"{sql}::VARCHAR"
