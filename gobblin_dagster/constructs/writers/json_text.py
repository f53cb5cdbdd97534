"""Rows as JSON text, by the same rules for every schema; any JSON reader can read each line."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from gobblin_dagster.constructs.sql.literal import sql_text
from gobblin_dagster.constructs.sql.select import SqlSelect
from gobblin_dagster.constructs.types.arrow import is_binary, is_list, levels_of
from gobblin_dagster.constructs.types.columns import convert_error
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import ConvertError

_FIRST, _LAST = "0001-01-01", "9999-12-31"
"""First and last day that ISO 8601 writes with four digits of the year."""
MAX_LISTS = 12
"""Most lists or maps inside each other: each one doubles DuckDB's memory; measured, 14 take 0.3 GB, 16 over 2 GB."""
MAX_LEVELS = 30
"""Most lists, maps and structs inside each other; 30 structs take a second to prepare, 50 take four."""
_BYTES_AT_ONCE = 8 << 20
"""Bytes of rows that are converted together: DuckDB needs many times as much memory, and has little."""


class JsonRows:
    """Convert batches to JSON objects, one text per row, with keys in the order of the columns.

    Numbers and booleans become JSON's own. Decimals become text, so that no digit is lost; timestamps become ISO 8601
    text (in UTC with `Z` if they have a zone); binary becomes base64; NaN and infinities become text; maps become
    objects. Nested values follow the same rules.
    """

    def __init__(self, construct: str, context: ConstructContext) -> None:
        self._construct = construct
        self._context = context
        self._schema: pa.Schema | None = None
        self._select: SqlSelect | None = None

    def texts(self, batch: pa.RecordBatch) -> pa.StringArray:
        """Return one JSON object per row; raises ConvertError for a type or a value without a JSON form."""
        if batch.nbytes > _BYTES_AT_ONCE and batch.num_rows > 1:
            middle = batch.num_rows // 2
            halves = [batch.slice(0, middle), batch.slice(middle)]
            # If both halves count a shared part (a dictionary), cutting does not make them smaller.
            if sum(half.nbytes for half in halves) < 1.5 * batch.nbytes:
                return pa.concat_arrays([self.texts(half) for half in halves])
        if self._select is None or self._schema is None or not self._schema.equals(batch.schema):
            self._schema = batch.schema
            record = f"{self._object(batch.schema)}::VARCHAR AS record"
            self._select = SqlSelect(record, self._construct, self._context, shown="rows as JSON")
        self._require_text(batch)
        # Columns are named by position, because names may differ in case only, which SQL ignores.
        positional = pa.RecordBatch.from_arrays(batch.columns, names=[f"c{at}" for at in range(batch.num_columns)])
        try:
            return self._select.run(positional).column(0)
        except ConvertError as error:
            raise self._with_column(error, positional) from error

    def _with_column(self, error: ConvertError, positional: pa.RecordBatch) -> ConvertError:
        """Return an error of DuckDB that names the column: its text names none, or the position."""
        if error.is_of_memory or not error.is_of_rows or self._schema is None:
            return error
        for at, field in enumerate(self._schema):
            select = SqlSelect(
                f"to_json({_value(f'c{at}', field.type, 0)})::VARCHAR AS record", self._construct, self._context, ""
            )
            try:
                select.run(positional.select([at]))
            except ConvertError as failed:
                reason = failed.problem.removeprefix("'': ").rpartition("; columns: ")[0]
                return replace(error, problem=f"column {field.name!r} ({field.type}) as JSON: {reason}")
        return error

    def _require_text(self, batch: pa.RecordBatch) -> None:
        """Raise ConvertError for text that is not UTF-8: DuckDB would return an empty text for the whole object."""
        for field, values in zip(batch.schema, batch.columns, strict=True):
            try:
                values.validate(full=True)
            except pa.ArrowInvalid as error:
                raise convert_error(f"column {field.name!r}: {error}", self._construct, self._context) from error

    def _object(self, schema: pa.Schema) -> str:
        for field in schema:
            lists, levels = levels_of([field.type], a_struct=0) - 1, levels_of([field.type]) - 1
            if lists > MAX_LISTS or levels > MAX_LEVELS:
                problem = (
                    f"column {field.name!r}: {lists} list(s) inside each other in {levels} levels; JSON is written "
                    "with at most "
                    f"{MAX_LISTS} lists and {MAX_LEVELS} levels"
                )
                raise convert_error(problem, self._construct, self._context)
        pairs = []
        for at, field in enumerate(schema):
            try:
                value = _value(f"c{at}", field.type, 0)
            except ValueError as error:
                raise convert_error(f"column {field.name!r}: {error}", self._construct, self._context) from error
            pairs.append(f"{sql_text(field.name)}, {value}")
        return f"json_object({', '.join(pairs)})"


def _value(sql: str, kind: pa.DataType, depth: int) -> str:
    """Return the SQL that converts an expression of an Arrow type to a value for JSON; raises ValueError."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _value(sql, kind.value_type, depth)
    if pa.types.is_struct(kind):
        return _struct(sql, kind, depth)
    if is_list(kind):
        return _list(sql, kind.value_type, depth)
    if pa.types.is_map(kind):
        keys = f"list_transform(map_keys({sql}), lambda k{depth}: {_scalar(f'k{depth}', kind.key_type)}::VARCHAR)"
        values = (
            f"list_transform(map_values({sql}), lambda x{depth}: "
            f"to_json({_value(f'x{depth}', kind.item_type, depth + 1)}))"
        )
        return f"to_json(map({keys}, {values}))"
    if pa.types.is_nested(kind):
        raise ValueError(f"values of type {kind} have no JSON form")
    if pa.types.is_float16(kind):
        raise ValueError(f"values of type {kind} have no JSON form: use a float32")
    if kind == pa.duration("ns") or pa.types.is_interval(kind):
        raise ValueError(f"values of type {kind} have no JSON form: nanoseconds would be lost")
    return _scalar(sql, kind)


def _list(sql: str, kind: pa.DataType, depth: int) -> str:
    item = f"x{depth}"
    return f"to_json(list_transform({sql}, lambda {item}: to_json({_value(item, kind, depth + 1)})))"


def _struct(sql: str, kind: pa.DataType, depth: int) -> str:
    # Fields are taken by position, like columns.
    pairs = [
        f"{sql_text(field.name)}, {_value(f'struct_extract_at({sql}, {at})', field.type, depth)}"
        for at, field in enumerate((kind.field(at) for at in range(kind.num_fields)), start=1)
    ]
    return f"CASE WHEN {sql} IS NOT NULL THEN json_object({', '.join(pairs)}) END"


def _scalar(sql: str, kind: pa.DataType) -> str:
    if pa.types.is_floating(kind):
        # DuckDB writes NaN with the sign of its bits, `-nan`, which few readers know.
        text = f"CASE WHEN isnan({sql}) THEN 'nan' ELSE {sql}::VARCHAR END"
        return f"CASE WHEN isfinite({sql}) THEN to_json({sql}) ELSE to_json({text}) END"
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _time(sql, kind)
    if is_binary(kind):
        return f"base64({sql})"
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind):
        return sql
    if pa.types.is_decimal256(kind) or (pa.types.is_decimal(kind) and kind.scale < 0):
        raise ValueError(f"values of type {kind} have no JSON form: use a decimal128 with a scale of 0 or more")
    if pa.types.is_decimal(kind) and kind.precision == kind.scale:
        # DuckDB leaves out the zero before the point of such a type, without which a text is no number of JSON.
        return f"regexp_replace({sql}::VARCHAR, '^(-?)[.]', '\\10.')"
    return f"{sql}::VARCHAR"


def _time(sql: str, kind: pa.DataType) -> str:
    text = f"replace({sql}::VARCHAR, ' ', 'T')"
    text = f"replace({text}, '+00', 'Z')" if pa.types.is_timestamp(kind) and kind.tz else text
    is_iso = f"{sql} IS NULL OR {sql}::DATE BETWEEN DATE '{_FIRST}' AND DATE '{_LAST}'"
    return f"CASE WHEN {is_iso} THEN {text} ELSE error('a time before {_FIRST} or after {_LAST} has no JSON form') END"
