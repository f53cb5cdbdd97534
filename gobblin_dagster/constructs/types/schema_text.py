"""Convert schemas to text and back; the state of a dataset stores published schemas as text."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

_NAMED: dict[str, pa.DataType] = {
    str(kind): kind
    for kind in (
        *(pa.null(), pa.bool_(), pa.string(), pa.large_string(), pa.string_view()),
        *(pa.binary(), pa.large_binary(), pa.binary_view(), pa.date32(), pa.date64()),
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64()),
        *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
        *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
    )
}
_TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns)(?:, tz=(.+))?\]")
_FIXED_BINARY = re.compile(r"fixed_size_binary\[(\d+)\]")
_DECIMALS = {"32": pa.decimal32, "64": pa.decimal64, "128": pa.decimal128, "256": pa.decimal256}
_DECIMAL = re.compile(r"decimal(32|64|128|256)\((\d+), (-?\d+)\)")
_NOT_NULL = " not null"
_DICTIONARY = re.compile(r"dictionary<values=([^<>=]+), indices=u?int\d+, ordered=[01]>")
_VIEW = re.compile(r"(?<=[ <_])(string|binary|list)_view(?=<|>|,| not null|$)", re.MULTILINE)
"""Columns that earlier versions published as such: see `plain.py`."""
_NAME_OF_ITEMS = re.compile(r"(?<=list<)[^<>:,]+(?=: )")
_NAME_IN_MAP = re.compile(r" \('[^<>]*?'\)(?=[,>]| not null| \(')")
"""Names of the parts of lists and maps: each library has others, pyarrow names them after the column. They are no part
of the type: types that differ in them are equal."""
_NESTED = re.compile(r"(struct|list|large_list|map)<(.*)>")
_LISTS = {"list": pa.list_, "large_list": pa.large_list}


def schema_text(schema: pa.Schema) -> str:
    """Return a schema as `name: type` lines, without metadata; this text is stored and compared."""
    return "\n".join(f"{field.name}: {field.type}{'' if field.nullable else _NOT_NULL}" for field in schema)


def type_texts(text: str) -> dict[str, str]:
    """Parse the result of `schema_text`; return the type's text by column name. Equal types have equal texts.

    Example:
        >>> type_texts("name: dictionary<values=string_view, indices=int8, ordered=0>")
        {'name': 'string'}
        >>> type_texts("tags: list<element: map<string, int8 ('tags')>>")
        {'tags': 'list<item: map<string, int8>>'}
    """
    plain = _VIEW.sub(r"\1", _DICTIONARY.sub(r"\1", text))
    plain = _NAME_IN_MAP.sub("", _NAME_OF_ITEMS.sub("item", plain))
    parts = (line.partition(": ") for line in plain.splitlines())
    return {name: kind for name, _, kind in parts}


def type_from_text(text: str) -> pa.DataType | None:
    """Return the type of a text from `type_texts`; None for lists, structs and other nested types.

    Example:
        >>> type_from_text("timestamp[us, tz=UTC]")
        TimestampType(timestamp[us, tz=UTC])
    """
    text = text.removesuffix(_NOT_NULL)
    if match := _TIMESTAMP.fullmatch(text):
        return pa.timestamp(match[1], match[2])
    if match := _DECIMAL.fullmatch(text):
        return _DECIMALS[match[1]](int(match[2]), int(match[3]))
    if match := _FIXED_BINARY.fullmatch(text):
        return pa.binary(int(match[1]))
    return _NAMED.get(text)


def any_type_from_text(text: str) -> pa.DataType | None:
    """Return the type of a text from `type_texts`, also of lists, maps and structs; None for types of no known text.

    Example:
        >>> any_type_from_text("list<element: struct<a: int64, b: map<string, bool>>>")
        ListType(list<element: struct<a: int64, b: map<string, bool>>>)
    """
    text = text.removesuffix(_NOT_NULL)
    try:
        found = _parsed(text)
    except ValueError:
        return None
    return found if str(found) == text else None  # names of fields may hold what separates fields


def _parsed(text: str) -> pa.DataType:
    """Return the type of a text; raises ValueError if it has no known form."""
    nested = _NESTED.fullmatch(text)
    if nested is None:
        if (kind := type_from_text(text)) is None:
            raise ValueError(text)
        return kind
    parts = list(_split(nested[2]))
    if nested[1] == "struct":
        return pa.struct([_field(part) for part in parts])
    if nested[1] == "map":
        key, value = parts
        return pa.map_(_parsed(key), _parsed(value))
    (item,) = parts
    return _LISTS[nested[1]](_field(item))


def _field(text: str) -> pa.Field:
    name, _, kind = text.partition(": ")
    return pa.field(name, _parsed(kind.removesuffix(_NOT_NULL)), nullable=not kind.endswith(_NOT_NULL))


def _split(text: str) -> Iterator[str]:
    """Yield the parts between the commas that are in no brackets."""
    depth = begin = 0
    for at, letter in enumerate(text):
        depth += (letter in "<([") - (letter in ">)]")
        if letter == "," and not depth:
            yield text[begin:at]
            begin = at + 2
    if text:
        yield text[begin:]
