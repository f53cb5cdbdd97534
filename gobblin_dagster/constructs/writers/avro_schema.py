"""Arrow columns as Avro: the schema, and values in the form that the encoder writes fastest."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from gobblin_dagster.constructs.types.strict_cast import strict_cast

_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class _Kind:
    """How values of an Arrow type are written."""

    avro: Any
    """Avro schema."""
    exact: pa.DataType
    """Type in Avro's unit; a cast to it raises if digits would be lost."""
    plain: pa.DataType
    """Same bits as `exact`, but numbers for times and dates, whose Python objects are slow to make."""


def _same(avro: Any, kind: pa.DataType) -> _Kind:
    return _Kind(avro, kind, kind)


_SIMPLE: dict[pa.DataType, _Kind] = {
    pa.null(): _same("null", pa.null()),
    pa.bool_(): _same("boolean", pa.bool_()),
    **{kind: _same("int", pa.int32()) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16())},
    **{kind: _same("long", pa.int64()) for kind in (pa.int64(), pa.uint32(), pa.uint64())},
    **{kind: _same("float", pa.float32()) for kind in (pa.float16(), pa.float32())},
    pa.float64(): _same("double", pa.float64()),
    **{kind: _same("string", pa.string()) for kind in (pa.string(), pa.large_string(), pa.string_view())},
    **{kind: _same("bytes", pa.binary()) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())},
    **{
        kind: _Kind({"type": "int", "logicalType": "date"}, pa.date32(), pa.int32())
        for kind in (pa.date32(), pa.date64())
    },
    **{
        kind: _Kind({"type": "int", "logicalType": "time-millis"}, pa.time32("ms"), pa.int32())
        for kind in (pa.time32("s"), pa.time32("ms"))
    },
    **{
        kind: _Kind({"type": "long", "logicalType": "time-micros"}, pa.time64("us"), pa.int64())
        for kind in (pa.time64("us"), pa.time64("ns"))
    },
}


class AvroColumns:
    """The Avro schema of rows, and the rows in the form for the encoder.

    Instants are `timestamp-micros`, times without a zone `local-timestamp-micros`; nanoseconds that do not fit are
    refused. Small and unsigned integers become `int` or `long`, decimals `decimal` on bytes, lists arrays, structs
    records. Maps and durations are refused; convert them to text with `to_json`.

    Raises:
        ValueError: (when made) Avro cannot hold a column; the message names it.
    """

    def __init__(self, schema: pa.Schema, record_name: str) -> None:
        fields = [(field, _named(field, field.name, record_name)) for field in schema]
        self.schema = {"type": "record", "name": record_name, "fields": [_entry(field, kind) for field, kind in fields]}
        self._exact = pa.schema([field.with_type(kind.exact) for field, kind in fields])
        self._plain = pa.schema([field.with_type(kind.plain) for field, kind in fields])

    def plain(self, table: pa.Table) -> pa.Table:
        """Return rows that can be encoded directly; raises ArrowInvalid for values that would lose digits."""
        columns = []
        for values, exact, plain in zip(table.columns, self._exact, self._plain, strict=True):
            if values.null_count and not plain.nullable:
                raise pa.ArrowInvalid(f"column {plain.name!r} has nulls, which its type does not allow")
            try:
                parts = [strict_cast(strict_cast(part, exact.type), plain.type) for part in values.chunks]
                columns.append(pa.chunked_array(parts, plain.type))
            except pa.ArrowInvalid as error:
                raise pa.ArrowInvalid(f"column {plain.name!r}: {error}") from error
        return pa.Table.from_arrays(columns, schema=self._plain)


def _named(field: pa.Field, column: str, above: str) -> _Kind:
    if not _AVRO_NAME.fullmatch(field.name):
        raise ValueError(f"column {column!r}: {field.name!r} is no name in Avro (letters, digits, _); use `rename`")
    return _kind(field.type, column, f"{above}_{field.name}")


def _entry(field: pa.Field, kind: _Kind) -> dict[str, Any]:
    return {"name": field.name, "type": _optional(field, kind)}


def _optional(field: pa.Field, kind: _Kind) -> Any:
    return ["null", kind.avro] if field.nullable and kind.avro != "null" else kind.avro


def _kind(kind: pa.DataType, column: str, path: str) -> _Kind:
    is_extension = isinstance(kind, pa.BaseExtensionType)  # classes of users have no hash
    if not is_extension and kind in _SIMPLE:
        return _SIMPLE[kind]
    if pa.types.is_dictionary(kind):
        return _kind(kind.value_type, column, path)
    if pa.types.is_timestamp(kind):
        logical = "timestamp-micros" if kind.tz else "local-timestamp-micros"
        return _Kind({"type": "long", "logicalType": logical}, pa.timestamp("us", kind.tz), pa.int64())
    if pa.types.is_decimal(kind):
        avro = {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        return _same(avro, kind)
    if pa.types.is_fixed_size_binary(kind):
        return _same({"type": "fixed", "name": path, "size": kind.byte_width}, kind)
    return _nested(kind, column, path)


def _nested(kind: pa.DataType, column: str, path: str) -> _Kind:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        field = kind.value_field
        item = _kind(field.type, column, f"{path}_item")
        avro = {"type": "array", "items": _optional(field, item)}
        return _Kind(avro, pa.list_(field.with_type(item.exact)), pa.list_(field.with_type(item.plain)))
    if pa.types.is_struct(kind):
        fields = [(field, _named(field, column, path)) for field in (kind.field(at) for at in range(kind.num_fields))]
        return _Kind(
            {"type": "record", "name": path, "fields": [_entry(field, inner) for field, inner in fields]},
            pa.struct([field.with_type(inner.exact) for field, inner in fields]),
            pa.struct([field.with_type(inner.plain) for field, inner in fields]),
        )
    raise ValueError(f"column {column!r}: Avro has no type for {kind}; convert it to text with `to_json`")
