"""Arrow types: their names in job files, and tests for kinds of types."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import AfterValidator, BeforeValidator

_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
}
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
"""A number as a text or as JSON: with a sign, leading zeros and an exponent, or without."""
MOST_DIGITS = {32: 9, 64: 18, 128: 38, 256: 76}
"""Digits that decimals hold, by their bits."""
_DIGITS_OF_64_BITS = 20
"""Digits of the largest whole number of 64 bits."""
_FLOAT_DIGITS, _FLOAT_TENS = 15, 22
"""All whole numbers of so many digits, and all powers of ten so far, are floats of 64 bits without rounding."""
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")


def arrow_type(name: str) -> pa.DataType:
    """Return the Arrow type of a name; raises ValueError.

    For example `int64`, `timestamp` (an instant), `timestamp_ntz` (a time of an unknown zone), `decimal(12, 2)`.
    """
    if name in _TYPES:
        return _TYPES[name]
    if (match := _DECIMAL.fullmatch(name)) and 1 <= int(match[1]) <= 38 and int(match[2]) <= int(match[1]):
        return pa.decimal128(int(match[1]), int(match[2]))
    raise ValueError(f"unknown column type {name!r}; known: {', '.join(_TYPES)}, decimal(1-38, scale)")


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values: that of a dictionary's values, or the type itself."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def decoded(values: pa.Array) -> pa.Array:
    """Return the values of a column one by one, without a dictionary."""
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def is_text(kind: pa.DataType) -> bool:
    """Return True if values are text, dictionary-encoded or not."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_binary(kind: pa.DataType) -> bool:
    """Return True if values are bytes."""
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def is_list(kind: pa.DataType) -> bool:
    """Return True if values are lists, of variable or fixed length."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def has_part(kind: pa.DataType, is_wanted: Callable[[pa.DataType], bool]) -> bool:
    """Return True if `is_wanted` holds for a type or for a type inside it."""
    return any(is_wanted(part) for part in parts_of([kind]))


def parts_of(kinds: Iterable[pa.DataType]) -> Iterator[pa.DataType]:
    """Yield types and all types inside them."""
    return (part for part, _ in _parts(kinds))


def levels_of(kinds: Iterable[pa.DataType], *, a_list: int = 1, a_struct: int = 1) -> int:
    """Return the number of levels of the deepest type; a plain value has one.

    Args:
        kinds: types of columns.
        a_list: levels that a list or a map adds.
        a_struct: levels that a struct adds.
    """
    return max((1 + lists * a_list + structs * a_struct for _, (lists, structs) in _parts(kinds)), default=0)


def _parts(kinds: Iterable[pa.DataType]) -> Iterator[tuple[pa.DataType, tuple[int, int]]]:
    """Yield each type inside of types, with the number of lists and structs around it; without recursion."""
    waiting = [(kind, (0, 0)) for kind in kinds]
    while waiting:
        kind, (lists, structs) = waiting.pop()
        yield kind, (lists, structs)
        if pa.types.is_dictionary(kind):
            waiting.append((kind.value_type, (lists, structs)))
        elif pa.types.is_map(kind):
            waiting += [(kind.key_type, (lists + 1, structs)), (kind.item_type, (lists + 1, structs))]
        else:
            around = (lists + 1, structs) if is_list(kind) else (lists, structs + 1)
            waiting += [(kind.field(at).type, around) for at in range(kind.num_fields)]


def used(values: pa.DictionaryArray) -> pa.Array:
    """Return the values of a dictionary that rows refer to: it may have those of rows that were left out."""
    return values.dictionary.take(values.indices.unique().drop_null())


def leaves(values: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    """Yield the plain values inside a column, at any depth: those of its own rows, if it is a part of a larger one."""
    if isinstance(values, pa.ChunkedArray):
        for chunk in values.chunks:
            yield from leaves(chunk)
    elif pa.types.is_dictionary(values.type):
        yield from leaves(used(values))
    elif pa.types.is_struct(values.type):
        for inner in values.flatten():
            yield from leaves(inner)
    elif is_list(values.type):
        yield from leaves(pc.list_flatten(values))
    elif pa.types.is_map(values.type):
        own = pa.concat_arrays([values])  # `keys` and `items` are those of the larger one
        yield from (*leaves(own.keys), *leaves(own.items))
    else:
        yield values


def holds_infinite(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Return True if there is an infinite number of a type inside a column, at any depth."""
    if not has_part(values.type, kind.equals):
        return False
    return any(pc.any(pc.is_inf(part)).as_py() for part in leaves(values) if part.type == kind)


def exact_cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return plain values in another type; raise ArrowInvalid also where Arrow's cast changes them without a word.

    pyarrow (26.0.1) lets decimals wrap around that have too many digits, of texts too, rounds floats to decimals, makes
    of some decimals another float than the nearest, and reads `0xFF` as -1.

    Example:
        >>> exact_cast(pa.array([Decimal("0.35")]), pa.float64())[0].as_py()
        0.35
    """
    values = decoded(values)
    given = values.type
    if given.equals(kind):
        return values
    if is_text(given):
        return _of_texts(values.cast(pa.string()), kind)
    if pa.types.is_decimal(given):
        return _of_decimals(values, kind)
    if pa.types.is_decimal(kind) and pa.types.is_integer(given):
        return _of_decimals(values.cast(pa.decimal128(_DIGITS_OF_64_BITS, 0)), kind)
    if pa.types.is_decimal(kind) and pa.types.is_floating(given):
        return _of_texts(values.cast(pa.string()), kind)  # the shortest digits of a float
    done = values.cast(kind)
    is_short = pa.types.is_float16(kind) and pa.types.is_integer(given)
    if is_short and not done.cast(pa.float32()).cast(given).equals(values):
        raise pa.ArrowInvalid(f"a number has too many digits for {kind}")
    return done


def _of_texts(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(kind):
        return _decimals(texts, kind)
    done = texts.cast(kind)
    if pa.types.is_signed_integer(kind):
        letters = _letters(texts)
        is_hex = b"x" in letters or b"X" in letters
        if is_hex and pc.any(pc.and_not(pc.less(done, 0), pc.starts_with(texts, "-"))).as_py():
            raise pa.ArrowInvalid(f"a hexadecimal number is too large for {kind}")
    return done


def _letters(texts: pa.Array) -> bytes:
    """Return the bytes of all texts."""
    _, places, data = texts.buffers()
    if data is None or not len(texts):
        return b""
    first, last = np.frombuffer(places, np.int32)[[texts.offset, texts.offset + len(texts)]].tolist()
    letters: bytes = data.slice(first, last - first).to_pybytes()
    return letters


def _of_decimals(values: pa.Array, kind: pa.DataType) -> pa.Array:
    given = values.type
    if given.bit_width < 128:  # Arrow has few functions for them
        return _of_decimals(values.cast(pa.decimal128(given.precision, given.scale)), kind)
    if pa.types.is_decimal(kind):
        if kind.bit_width < 128:  # Arrow compares what is left of the digits
            return _decimals(values.cast(pa.string()), kind)
        room = kind.precision - kind.scale
        if room < given.precision - given.scale or kind.scale > given.scale:
            ends = pc.min_max(values).as_py().values()
            if any(number and number.adjusted() >= room for number in ends):
                raise pa.ArrowInvalid(f"a number has too many digits for {kind}")
    elif pa.types.is_floating(kind):
        if pa.types.is_float64(kind) and given.precision <= _FLOAT_DIGITS and 0 <= given.scale <= _FLOAT_TENS:
            # Both are floats without rounding, so what one divided by the other gives is the nearest float.
            digits = values.cast(pa.decimal128(given.precision, given.scale)).view(pa.decimal128(given.precision, 0))
            return pc.divide(digits.cast(kind), pa.scalar(10.0**given.scale, kind))
        return values.cast(pa.string()).cast(kind)
    return values.cast(kind)


def _decimals(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    most, letters = MOST_DIGITS[kind.bit_width], _letters(texts)
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if longest + kind.scale <= most and b"e" not in letters and b"E" not in letters:
        return texts.cast(kind)
    length, point = pc.utf8_length(texts), pc.find_substring(texts, ".")
    whole = pc.if_else(pc.less(point, 0), length, point)
    is_odd = pc.or_(pc.greater(length, most), pc.greater(whole, most - kind.scale))
    is_odd = pc.or_(is_odd, pc.match_substring(texts, "e", ignore_case=True))
    odd = pa.array([_usual(text, kind) for text in texts.filter(is_odd).to_pylist()], pa.string())
    return pc.replace_with_mask(texts, pc.fill_null(is_odd, fill_value=False), odd).cast(kind)


def _usual(text: str, kind: pa.DataType) -> str:
    """Return a number with as many digits behind its point as its type has; raise ArrowInvalid if it does not fit."""
    number = Decimal(text) if NUMBER.fullmatch(text) else None
    if number is None or not fits_decimal(number, kind):
        raise pa.ArrowInvalid(f"{text[:80]!r} is no number of type {kind}")
    return format(number, f".{max(kind.scale, 0)}f")


def fits_decimal(number: Decimal, kind: pa.DataType) -> bool:
    """Return whether a decimal type holds a finite number without rounding it.

    Example:
        >>> fits_decimal(Decimal("9.990"), pa.decimal128(3, 2)), fits_decimal(Decimal("9.999"), pa.decimal128(3, 2))
        (True, False)
    """
    if not number:
        return True
    context = Context(prec=len(number.as_tuple().digits), Emin=MIN_EMIN, Emax=MAX_EMAX)
    exponent = number.normalize(context).as_tuple().exponent
    return isinstance(exponent, int) and exponent >= -kind.scale and number.adjusted() < kind.precision - kind.scale


def misfit_decimal(values: pa.Array | pa.ChunkedArray) -> int | None:
    """Return the index of the first value with a decimal, at any depth, that has too many digits for its type.

    Arrow's readers of CSV and JSON count digits before they add those of the scale, so `decimal(5,2)` takes 99999.
    Parquet then holds another number.
    """
    if not has_part(values.type, pa.types.is_decimal) or _decimals_fit(values):
        return None
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _decimals_fit(values.slice(low, middle - low)) else (low, middle)
    return low


def _decimals_fit(values: pa.Array | pa.ChunkedArray) -> bool:
    try:
        for part in leaves(values):
            if pa.types.is_decimal(part.type):
                part.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def dates_as_texts(fields: Iterable[pa.Field]) -> list[pa.Field]:
    """Return fields with text instead of days, also inside lists and structs.

    Arrow reads days in JSON as numbers since 1970; most programs write them as text.
    """
    return with_parts(fields, lambda kind: pa.string() if pa.types.is_date(kind) else kind)


def with_parts(fields: Iterable[pa.Field], change: Callable[[pa.DataType], pa.DataType]) -> list[pa.Field]:
    """Return fields with other plain types, also inside structs, lists and maps.

    Example:
        >>> with_parts([pa.field("days", pa.list_(pa.date64()))], lambda kind: pa.date32())
        [pyarrow.Field<days: list<item: date32[day]>>]
    """
    return [field.with_type(_with_parts(field.type, change)) for field in fields]


def _with_parts(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct(with_parts(kind, change))
    if pa.types.is_map(kind):
        return pa.map_(*with_parts([kind.key_field, kind.item_field], change))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(*with_parts([kind.value_field], change), kind.list_size)
    if is_list(kind):
        make = pa.large_list if pa.types.is_large_list(kind) else pa.list_
        return make(*with_parts([kind.value_field], change))
    return change(kind)


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows; Arrow's other ways to make one do not know ids (UUID) and unions inside of lists."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)


def with_items(values: pa.Array, items: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return lists of the same lengths with other items, as the type `kind`: a list or a large list.

    Args:
        values: lists in any layout.
        items: one for each of `pc.list_flatten(values)`.
        kind: type of the result.
    """
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    is_large = pa.types.is_large_list(kind)
    make = pa.LargeListArray if is_large else pa.ListArray
    places = pa.array(offsets.astype(np.int64 if is_large else np.int32))
    return make.from_arrays(places, items, type=kind, mask=values.is_null())


def _known(name: str) -> str:
    arrow_type(name)
    return name


def _plain(name: object) -> object:
    """Refuse lists and mappings with a hint; pydantic would only say that it expected text."""
    if isinstance(name, list | dict):
        got = f"keys and values ({', '.join(map(str, name))[:80]})" if isinstance(name, dict) else "a list"
        raise ValueError(
            f"expected the name of one type, e.g. int64, got {got}. Read nested values as text (`string`, or whole "
            "rows "
            "by `format: text`), and convert the text with `json_text`"
        )
    return name


TypeName = Annotated[str, BeforeValidator(_plain), AfterValidator(_known)]
"""Option type: the name of a column type."""
