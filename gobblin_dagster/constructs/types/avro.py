"""Avro schemas as Arrow types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

MAX_PARTS = 100_000
"""Most types in a schema, those that are named again counted each time: 30 short records that use each other twice
would become a billion columns."""
MAX_LEVELS = 300
"""Deepest nesting of a schema, in braces and brackets. Python's own bound depends on who calls, and libraries raise
it; libraries in C would then end the process."""
TOO_DEEP = "its types are nested too deep to be read"
_PRIMITIVES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: dict[str, pa.DataType] = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}


def uuids_as_texts(schema: Any, level: int = 0) -> Any:
    """Return a schema whose uuids are plain strings: Arrow has no type for fastavro's uuid objects.

    Raises RecursionError for one that is nested more than `MAX_LEVELS` deep, as fastavro does with deeper ones.
    """
    _require_shallow(level)
    if isinstance(schema, list):
        return [uuids_as_texts(one, level + 1) for one in schema]
    if isinstance(schema, dict):
        named = {key: value for key, value in schema.items() if not (key == "logicalType" and value == "uuid")}
        return {key: uuids_as_texts(value, level + 1) for key, value in named.items()}
    return schema


def _require_shallow(level: int) -> None:
    if level > MAX_LEVELS:
        raise RecursionError(TOO_DEEP)


def arrow_type_of_avro(schema: Any, named: Mapping[str, Any]) -> pa.DataType:
    """Return the Arrow type of an Avro schema; call `uuids_as_texts` first.

    Records become structs, enums strings; a union of null and one type becomes that type.

    Args:
        schema: result of `fastavro.parse_schema`.
        named: its named types by full name, as `parse_schema` collects them.

    Raises:
        ValueError: the schema has a union of several types, or a type that contains itself, Arrow has neither; or more
            than `MAX_PARTS` types.
        RecursionError: it is nested more than `MAX_LEVELS` deep, also by names.
    """
    return _Types(named).arrow(schema, (), 0)


class _Types:
    """Makes the Arrow types of one schema, and counts them."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._parts = 0

    def arrow(self, schema: Any, above: tuple[str, ...], level: int) -> pa.DataType:
        """Return the type of a schema inside the records `above`; raises as `arrow_type_of_avro`."""
        _require_shallow(level)
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise ValueError(f"it has more than {MAX_PARTS} types, those that it names again counted each time")
        if isinstance(schema, list):
            kinds = [kind for kind in schema if kind != "null"]
            if len(kinds) != 1:
                raise ValueError(f"a union of {len(kinds)} types has no column type: {str(schema)[:200]}")
            return self.arrow(kinds[0], above, level + 1)
        if isinstance(schema, str):
            return _PRIMITIVES[schema] if schema in _PRIMITIVES else self.arrow(self._named[schema], above, level + 1)
        if schema.get("logicalType") in _LOGICAL:
            return _LOGICAL[schema["logicalType"]]
        if schema.get("logicalType") == "decimal":
            return pa.decimal128(schema["precision"], schema.get("scale", 0))
        return self._complex(schema, above, level + 1)

    def _complex(self, schema: Mapping[str, Any], above: tuple[str, ...], level: int) -> pa.DataType:
        """Return the type of a schema in braces without a logical type."""
        found: pa.DataType
        match schema["type"]:
            case "record":
                name = schema["name"]
                if name in above:
                    raise ValueError(f"the record {name!r} contains itself")
                found = pa.struct(
                    [(one["name"], self.arrow(one["type"], (*above, name), level)) for one in schema["fields"]]
                )
            case "enum":
                found = pa.string()
            case "fixed":
                found = pa.binary(schema["size"])
            case "array":
                found = pa.list_(self.arrow(schema["items"], above, level))
            case "map":
                found = pa.map_(pa.string(), self.arrow(schema["values"], above, level))
            case inner:
                found = self.arrow(inner, above, level)
        return found
