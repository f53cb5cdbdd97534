"""What pyarrow says of JSON that does not fit its columns, in plain words; and what it takes though it does not fit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa

from gobblin_dagster.constructs.types.arrow import (
    MOST_DIGITS,
    NUMBER,
    dates_as_texts,
    fits_decimal,
    has_part,
    holds_infinite,
    misfit_decimal,
    parts_of,
)
from gobblin_dagster.constructs.types.nesting import MAX_LEVELS
from gobblin_dagster.constructs.types.strict_cast import strict_cast
from gobblin_dagster.core.utils.text import first_line

_FIELD = re.compile(r"Column\(/(.*?)\)")
_OTHER_TYPE = re.compile(r"changed from ([a-z-]+) to ([a-z-]+)")
_LETTERS = bytes(ord("0") if chr(at) in "0123456789." else ord("e") if chr(at) in "eE" else 45 for at in range(256))
"""Translates digits and points to 0, exponents to e, and all others to a minus."""
_NOT_BLANK = re.compile(r"\S")
_TOO_LARGE: Mapping[pa.DataType, int] = {
    pa.float32(): int(3.4028235677973366e38),
    pa.float64(): (1 << 1024) - (1 << 970),
}
"""Smallest number that becomes infinite, by type."""
_LONGEST_NUMBER = 100
"""Characters of a number, and of its field, in a message."""
_INFINITE = re.compile(rb'("(?:[^"\\]|\\.)*+")|-(?=NaN\b)|\bInf\b')
_OFFSET = re.compile(r"[:T ]\d\d(?:\.\d+)?(?:Z|[+-]\d\d(?::?\d\d)?)$")
"""The end of a time with an offset, as pyarrow takes it."""
_MAY_BE_OFFSET = re.compile(rb'[:T ]\d\d(?:\.\d+)?(?:Z|[+-]\d\d(?::?\d\d)?)"|\\u00')
"""The same in JSON, which may write any of its letters as `\\u005a`."""
_GOES_ON = re.compile(rb'(?:\}|null)\s*,\s*"')
"""Behind the end of a record, or of a field in it."""


def json_problem(error: pa.ArrowException, within: str = "") -> str:
    """Return pyarrow's message without its row number, which counts from the block's beginning.

    Args:
        error: of `pyarrow.json`.
        within: name of the field around the record, which is ours and nothing to the user.

    Example:
        >>> json_problem(pa.ArrowInvalid("JSON parse error: Column(/v/a/b) changed from number to null in row 7"), "v")
        "field 'a.b' is of the type null, expected number"
        >>> json_problem(pa.ArrowInvalid("JSON parse error: Column(/v) changed from object to array in row 7"), "v")
        'it is of the type array, expected object'
    """
    text = first_line(error).removeprefix("JSON parse error: ").partition(" in row ")[0].rstrip(".")
    text = _FIELD.sub(lambda found: _place(found[1], within), text)
    return _OTHER_TYPE.sub(r"is of the type \2, expected \1", text)


def _place(path: str, within: str) -> str:
    """Return a field as shown to people; `it` for the record itself."""
    return "it" if path == within else f"field {path.removeprefix(f'{within}/').replace('/', '.')!r}"


def require_kept(table: pa.Table, text: bytes) -> pa.Table:
    """Return a table that pyarrow read from JSON objects; raise ArrowInvalid if a decimal or a time is another there.

    It takes a `misfit_decimal`, and (26.0.1) lets numbers wrap around that have an exponent, or more digits before
    their point than there is room for. Of a time with an offset, a column without a zone gets the time in UTC.
    """
    for name, column in zip(table.column_names, table.columns, strict=True):
        if (at := misfit_decimal(column)) is not None:
            raise pa.ArrowInvalid(f"Column({name}) {str(column[at])[:80]} has more digits than {column.type} holds")
    parts = {*parts_of(table.schema.types)}
    kinds = {kind for kind in parts if pa.types.is_decimal(kind)}
    may_wrap = bool(kinds) and _may_wrap(text, min(MOST_DIGITS[kind.bit_width] - kind.scale for kind in kinds))
    if may_wrap or (any(map(_is_wall_time, parts)) and _MAY_BE_OFFSET.search(text)):
        record = pa.struct(list(table.schema))
        for row in _objects(text):
            _require_fit(row, record, "")
    return table


def spelled(text: bytes) -> bytes:
    """Return JSON for Python's parser, which does not know the `Inf` and the `-NaN` that pyarrow reads.

    Example:
        >>> spelled(b'{"Inf": [-Inf, -NaN]}')
        b'{"Inf": [-Infinity, NaN]}'
    """
    if b"Inf" not in text and b"-NaN" not in text:
        return text
    return _INFINITE.sub(lambda found: found[1] or (b"" if found[0] == b"-" else b"Infinity"), text)


def first_unfit(value: Any, kind: pa.DataType, name: str, is_unfit: Callable[[Any, pa.DataType], bool]) -> str:
    """Return the first number that its type would not hold, with its path; empty if there is none."""
    if is_unfit(value, kind):
        return f"{name} is {value}"
    parts: list[str] = []
    if pa.types.is_struct(kind) and isinstance(value, dict):
        fields = {field.name: field.type for field in kind}
        known = ((key, one) for key, one in value.items() if key in fields)
        parts = [first_unfit(one, fields[key], f"{name}.{key}".lstrip("."), is_unfit) for key, one in known]
    elif pa.types.is_list(kind) and isinstance(value, list):
        parts = [first_unfit(one, kind.value_type, name, is_unfit) for one in value]
    return next(filter(None, parts), "")


def too_large(text: bytes, record: pa.StructType) -> str:
    """Return what is said of the first number in a JSON object that its float type does not hold; empty if all do.

    pyarrow makes them infinite. An `Infinity` that is written as such is meant, wherever else the word stands.

    Example:
        >>> too_large(b'{"x": 1.8e308, "name": "Info"}', pa.struct([("x", pa.float64())]))
        'x is 1.8e+308, which is too large for float64'
    """
    kinds = [kind for kind in _TOO_LARGE if has_part(record, kind.equals)]
    try:
        # Decimals keep what is too large for Python's floats apart from an `Infinity`.
        value = json.loads(spelled(text), parse_float=_number, parse_int=_number) if kinds else None
    except RecursionError:
        return f"values nested more than {MAX_LEVELS} levels deep"
    for kind in kinds:
        if large := first_unfit(value, record, "", partial(_is_too_large, float_type=kind)):
            shown = large.replace("E+", "e+")
            shown = shown if len(shown) <= _LONGEST_NUMBER else f"{shown[:_LONGEST_NUMBER]}…"
            return f"{shown}, which is too large for {'float32' if kind == pa.float32() else 'float64'}"
    return ""


def first_too_large(rows: pa.StructArray, texts: Callable[[], Iterable[bytes]]) -> str:
    """Return what `too_large` says of the first JSON object that has such a number; empty if none has.

    Args:
        rows: what pyarrow read.
        texts: returns the objects; it is called only if a number is infinite.
    """
    if not any(holds_infinite(rows, kind) for kind in _TOO_LARGE):
        return ""
    return next(filter(None, (too_large(text, rows.type) for text in texts())), "")


def _is_too_large(value: Any, kind: pa.DataType, float_type: pa.DataType) -> bool:
    limit = _TOO_LARGE[float_type]
    return kind == float_type and isinstance(value, Decimal) and not -limit < value < limit


def _number(digits: str) -> Decimal:
    """Return a number of JSON; 0 or an infinity if its exponent is beyond what `Decimal` takes."""
    try:
        return Decimal(digits)
    except InvalidOperation:
        return Decimal(0) if "-" in digits[1:] else Decimal("-Infinity" if digits[0] == "-" else "Infinity")


def require_end(block: bytes) -> None:
    """Raise ArrowInvalid if a record of `{"r": RECORD}` goes on after its end: it is another field of our object then.

    Args:
        block: such objects, each valid JSON.
    """
    if _GOES_ON.search(block) is None:
        return
    letters = np.frombuffer(block.replace(rb"\\", b"__").replace(rb"\"", b"__"), np.uint8)
    outside = np.cumsum(letters == ord('"'), dtype=np.uint8) % 2 == 0
    opens, closes, commas = (letters == ord(one) for one in "{},")
    places = np.flatnonzero((opens | closes | commas) & outside)
    depth = np.cumsum(opens[places], dtype=np.int64) - np.cumsum(closes[places], dtype=np.int64)
    if np.any(commas[places] & (depth == 1)):
        raise pa.ArrowInvalid("it goes on after its end")


def read_days(
    read: Callable[[pa.BooleanArray | None, pa.StructType], pa.StructArray],
    kind: pa.StructType,
    texts: Callable[[], Sequence[str | bytes | None]],
) -> pa.StructArray:
    """Return the records of JSON objects, whose days are texts or numbers since 1970, in each object in its own way.

    Args:
        read: reads the objects of a mask (None: all of them) as records of a type; raises ArrowInvalid if one does not
            fit.
        kind: type of the records.
        texts: returns the objects.

    Raises:
        ArrowInvalid: an object does not fit.
    """
    with_texts = pa.struct(dates_as_texts(kind))
    try:
        return read(None, kind)
    except pa.ArrowInvalid as error:
        if with_texts == kind:
            raise
        as_days = error
    try:
        return strict_cast(read(None, with_texts), kind)
    except pa.ArrowInvalid:
        mask = np.array([_is_with_text_day(text, kind) for text in texts()], np.bool_)
        if not mask.any():
            raise as_days from None
        if mask.all():
            raise
    parts = [read(pa.array(~mask), kind), strict_cast(read(pa.array(mask), with_texts), kind)]
    places = np.where(mask, len(parts[0]) - 1 + np.cumsum(mask), np.cumsum(~mask) - 1)
    return pa.concat_arrays(parts).take(pa.array(places))


def _is_with_text_day(text: str | bytes | None, kind: pa.StructType) -> bool:
    """Return whether a JSON object has a text for a day; False for text that is no JSON, which Arrow explains."""
    try:
        return text is not None and _has_text_day(json.loads(text), kind)
    except (ValueError, RecursionError):
        return False


def _has_text_day(value: Any, kind: pa.DataType) -> bool:
    if pa.types.is_date(kind):
        return isinstance(value, str)
    if pa.types.is_struct(kind):
        return isinstance(value, dict) and any(_has_text_day(value.get(field.name), field.type) for field in kind)
    items = value if pa.types.is_list(kind) and isinstance(value, list) else ()
    return any(_has_text_day(one, kind.value_type) for one in items)


def _may_wrap(text: bytes, room: int) -> bool:
    """Return whether there may be a number with an exponent, or with more whole digits than there is room for."""
    letters = text.translate(_LETTERS)  # a search for single patterns is ten times as fast as that for a number
    is_odd = b"0e0" in letters or b"0e-0" in letters or b"0" * (room + 1) in letters
    return is_odd and _wrapping(room).search(text) is not None


@lru_cache
def _wrapping(room: int) -> re.Pattern[bytes]:
    number = rf"[+-]?(?:(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)[eE][+-]?[0-9]++|[0-9]{{{room + 1},}}+(?:\.[0-9]*+)?)"
    return re.compile(rf'[\s:,\["]{number}[\s,\]}}"]'.encode())


def _objects(text: bytes) -> Iterator[Any]:
    decoder = json.JSONDecoder(parse_float=_number, parse_int=_number)
    given, at = spelled(text).decode(), 0
    while (begin := _NOT_BLANK.search(given, at)) is not None:
        row, at = decoder.raw_decode(given, begin.start())
        yield row


def _require_fit(value: Any, kind: pa.DataType, path: str) -> None:
    if isinstance(value, dict) and pa.types.is_struct(kind):
        for field in kind:
            _require_fit(value.get(field.name), field.type, f"{path}/{field.name}")
    elif isinstance(value, list) and pa.types.is_nested(kind) and not pa.types.is_struct(kind):
        for one in value:
            _require_fit(one, kind.field(0).type, f"{path}/[]")
    elif pa.types.is_decimal(kind) and isinstance(value, Decimal | str):
        is_number = isinstance(value, Decimal) or NUMBER.fullmatch(value)
        if is_number and not fits_decimal(Decimal(value), kind):
            raise pa.ArrowInvalid(f"Column({path}) {str(value)[:80]} has more digits than {kind} holds")
    elif _is_wall_time(kind) and isinstance(value, str) and _OFFSET.search(value):
        raise pa.ArrowInvalid(f"Column({path}) {value[:80]} has an offset, and {kind} has no zone; declare `timestamp`")


def _is_wall_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.tz is None
