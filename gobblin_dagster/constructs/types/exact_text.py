"""Convert texts to a type only if no value is altered: a number or date must be told by its text alone.

Integers, days and booleans must print back as they were written. Of fractions, only trailing zeros, a missing zero
beside the point and the form of the exponent may differ. Used for types that were inferred, which nobody declared.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_dagster.constructs.types.arrow import exact_cast

_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_NUMBER = re.compile(r"-?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_CODE = re.compile(r"-?\d+[eE]\d+", re.ASCII)
"""`12e4` may be a code; programs print numbers as `1.2e5` or `1e+05`."""
_ENOUGH_DIGITS = 17
"""So many digits tell every float of 64 bits from all others."""
_MINUS_ZERO = re.compile(r"-0*\.?0*", re.ASCII)
_NOT_FINITE = frozenset({"NaN", "nan", "inf", "-inf", "Inf", "-Inf", "Infinity", "-Infinity"})
_TIME = r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?"
_LOCAL_TIME, _INSTANT = f"{_TIME}$", rf"{_TIME}(Z|[+-]\d\d(:?\d\d)?)$"
_FIRST_DAY = date(1, 1, 1)
"""As a Python value: an Arrow scalar made here would import pandas into every plan."""


class MisfitError(ValueError):
    """A text is no value of the type, or would be altered."""

    def __init__(self, index: int, text: str) -> None:
        super().__init__(f"{text!r} at {index}")
        self.index = index
        """Position in the array, from 0."""
        self.text = text


def exact_values(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert texts to a boolean, integer, float, decimal, date or timestamp type; null stays null.

    Raises:
        MisfitError: for the first text that is no value of the type, or that the type would alter.

    Example:
        >>> exact_values(pa.array(["1.50", "2", None]), pa.float64()).to_pylist()
        [1.5, 2.0, None]
        >>> exact_values(pa.array(["12", "007"]), pa.int64())
        Traceback (most recent call last):
        gobblin_dagster.constructs.types.exact_text.MisfitError: '007' at 1
    """
    if pa.types.is_boolean(kind):
        return _booleans(texts)
    if pa.types.is_timestamp(kind):
        _require_all(texts, pc.match_substring_regex(texts, _LOCAL_TIME if kind.tz is None else _INSTANT))
    values = cast_texts(texts, kind)
    if pa.types.is_temporal(kind):
        days = values.cast(pa.date32()) if pa.types.is_date(kind) else pc.cast(values, pa.date32(), safe=False)
        _require_all(texts, pc.greater_equal(days, pa.scalar(_FIRST_DAY, pa.date32())))
    if not pa.types.is_timestamp(kind):
        _require_same(texts, values, _is_number(kind))
    return values


def cast_texts(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert texts as Arrow does, however they are written; raises MisfitError for the first that is no such value."""
    try:
        return exact_cast(texts, kind)
    except pa.ArrowInvalid:
        raise _first_misfit(texts, kind) from None


def _first_misfit(texts: pa.Array, kind: pa.DataType) -> MisfitError:
    """Return the error for the first text that Arrow does not cast; found by halving."""
    low, high = 0, len(texts)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            exact_cast(texts.slice(low, middle - low), kind)
        except pa.ArrowInvalid:
            high = middle
        else:
            low = middle
    return MisfitError(low, texts[low].as_py())


def _booleans(texts: pa.Array) -> pa.Array:
    is_true = pc.is_in(texts, value_set=pa.array(_TRUE))
    is_known = pc.or_(is_true, pc.is_in(texts, value_set=pa.array(_FALSE)))
    _require_all(texts, is_known)
    return pc.if_else(texts.is_valid(), is_true, pa.scalar(None, pa.bool_()))


def _require_all(texts: pa.Array, fits: pa.Array) -> None:
    """Raise MisfitError for the first text that does not fit; null fits."""
    at = pc.index(pc.or_(pc.fill_null(fits, fill_value=True), texts.is_null()), value=False).as_py()
    if at >= 0:
        raise MisfitError(at, texts[at].as_py())


def _is_number(kind: pa.DataType) -> Callable[[str], bool]:
    """Return a function: is the type's value of a text, which it prints differently, still the same number?"""
    if pa.types.is_floating(kind):
        return lambda text: text in _NOT_FINITE or (is_number(text) and _is_float(text))
    if pa.types.is_decimal(kind):
        return lambda text: is_number(text) and not _MINUS_ZERO.fullmatch(text)
    return lambda _: False


def _is_float(text: str) -> bool:
    """Return True if a float is this number, or if a program would print the float so with so many digits.

    `numpy.savetxt` writes 19 digits of a float; the last three only say how it was rounded.
    """
    value, number = float(text), Decimal(text)
    if Decimal(repr(value)) == number:
        return True
    digits = len(number.as_tuple().digits)
    return digits >= _ENOUGH_DIGITS and math.isfinite(value) and Decimal(f"{value:.{digits - 1}e}") == number


def is_number(text: str) -> bool:
    """Return True if a text is a decimal number, without leading zeros or plus, and not a code like `12e4`."""
    return _NUMBER.fullmatch(text) is not None and _CODE.fullmatch(text) is None


def _text(text: str) -> pa.Scalar:
    # Of a named type: finding out the type would import pandas.
    return pa.scalar(text, pa.string())


def _require_same(texts: pa.Array, values: pa.Array, is_same: Callable[[str], bool]) -> None:
    """Raise MisfitError for the first value that prints differently, unless `is_same` holds for its text."""
    printed = values.cast(pa.string())
    differs = pc.not_equal(printed, texts)
    if not pc.any(differs).as_py():
        return
    if pa.types.is_floating(values.type):
        # Many programs print `3.0`, Arrow prints `3`: compared here, because the loop below takes long.
        differs = pc.and_(differs, pc.not_equal(pc.binary_join_element_wise(printed, _text("0"), _text(".")), texts))
    for at in pc.indices_nonzero(pc.fill_null(differs, fill_value=False)).to_pylist():
        if not is_same(text := texts[at].as_py()):
            raise MisfitError(at, text)
