"""Converters between rows, JSON text, text and bytes."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import pyarrow as pa
from pydantic import Field

from gobblin_dagster.constructs.converters.each_row import ColumnsOnce, EachRowConverter, replaced, retyped
from gobblin_dagster.constructs.types.arrow import is_binary, is_text, no_rows
from gobblin_dagster.constructs.types.columns import convert_error, refuse_twice, refuse_twice_inside, require_columns
from gobblin_dagster.constructs.writers.json_text import JsonRows
from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.utils.text import shown
from gobblin_dagster.spec.job import SpecModel

Encoding: TypeAlias = Literal["utf-8", "latin-1", "base64", "hex"]
_TO_TEXT: dict[str, Callable[[bytes], str]] = {
    "utf-8": bytes.decode,
    "latin-1": lambda value: value.decode("latin-1"),
    "base64": lambda value: base64.b64encode(value).decode(),
    "hex": bytes.hex,
}
_TO_BYTES: dict[str, Callable[[str], bytes]] = {
    "utf-8": str.encode,
    "latin-1": lambda text: text.encode("latin-1"),
    "base64": lambda text: base64.b64decode(text, validate=True),
    "hex": bytes.fromhex,
}


class ToJsonConverter(EachRowConverter):
    """Write columns as one text column of JSON objects, after the columns that stay.

    Decimals, times and bytes become text in JSON, as in the `jsonl` writer.

    Shape: the columns that stay, then the text column `into` (`string`, never null); as many rows.

    Source: gobblin-avro-json `AvroToJsonStringConverter`, gobblin-core `JsonToStringConverter`.
    """

    class Options(SpecModel):
        """Options of `type: to_json`."""

        into: str = "json"
        """Name of the text column."""
        columns: tuple[str, ...] | None = Field(default=None, min_length=1)
        """Columns to write into the JSON, in this order; default: all."""

    def __init__(self, options: Options, context: ConstructContext) -> None:
        self._options = options
        self._name = "converter 'to_json'"
        self._context = context
        self._json = JsonRows(self._name, context)

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        require_columns(self._options.columns or (), schema, self._name, self._context)
        result = pa.schema([*self._kept(schema), pa.field(self._options.into, pa.string())])
        refuse_twice(result.names, self._name, self._context)
        kept = {field.name for field in self._kept(schema)}
        packed = [field for field in schema if field.name not in kept]
        refuse_twice_inside(pa.schema(packed), self._name, self._context)
        self._json.texts(no_rows(schema))
        return result

    def convert_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        kept = self._kept(batch.schema)
        texts = self._json.texts(batch.select(list(self._options.columns or batch.schema.names)))
        columns = [*(batch.column(field.name) for field in kept), texts]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*kept, pa.field(self._options.into, pa.string())]))

    def _kept(self, schema: pa.Schema) -> list[pa.Field]:
        packed = {*(self._options.columns or schema.names)}
        return [field for field in schema if field.name not in packed]


class EncodingOptions(SpecModel):
    """Options of `type: bytes_to_text` and `type: text_to_bytes`."""

    columns: ColumnsOnce = Field(min_length=1)
    """Names of the columns; null stays null."""
    encoding: Encoding = "utf-8"
    """`utf-8`, `latin-1`, `base64` or `hex`."""


class _EncodingConverter(EachRowConverter):
    """Base of both directions."""

    Options = EncodingOptions
    _name: str
    _wanted: str
    _target: pa.DataType
    _functions: dict[str, Callable[[Any], Any]]

    def __init__(self, options: EncodingOptions, context: ConstructContext) -> None:
        self._options = options
        self._context = context

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        require_columns(self._options.columns, schema, self._name, self._context)
        for name in self._options.columns:
            kind = schema.field(name).type
            if not (is_binary(kind) if self._wanted == "bytes" else is_text(kind)):
                raise convert_error(f"column {name!r}: expected {self._wanted}, got {kind}", self._name, self._context)
        return retyped(schema, dict.fromkeys(self._options.columns, self._target))

    def convert_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        convert = self._functions[self._options.encoding]
        converted = {
            name: [
                value if value is None else self._one(convert, name, value) for value in batch.column(name).to_pylist()
            ]
            for name in self._options.columns
        }
        return replaced(batch, {name: pa.array(values, self._target) for name, values in converted.items()})

    def _one(self, convert: Callable[[Any], Any], name: str, value: Any) -> Any:
        try:
            return convert(value)
        except (ValueError, binascii.Error) as error:
            problem = f"column {name!r}: expected {self._wanted} in {self._options.encoding}, got {shown(value)}"
            raise convert_error(problem, self._name, self._context) from error


class BytesToTextConverter(_EncodingConverter):
    """Decode bytes as text, or write them as base64 or hexadecimal text.

    Shape: all columns in their order, as many rows; decoded columns are `string`, null for null.

    Source: gobblin-core `ObjectToStringConverter`, `BytesToJsonConverter`. Differs: bytes that cannot be decoded are an
    error.
    """

    _name = "converter 'bytes_to_text'"
    _wanted = "bytes"
    _target = pa.string()
    _functions = _TO_TEXT


class TextToBytesConverter(_EncodingConverter):
    """Encode text as bytes, or decode it from base64 or hexadecimal.

    Shape: all columns in their order, as many rows; encoded columns are `binary`, null for null.

    Source: gobblin-core `StringToBytesConverter`.
    """

    _name = "converter 'text_to_bytes'"
    _wanted = "text"
    _target = pa.binary()
    _functions = _TO_BYTES
