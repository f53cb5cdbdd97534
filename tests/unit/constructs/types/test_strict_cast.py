from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, time
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from gobblin_dagster.constructs.types.strict_cast import strict_cast

ID = UUID("41424344-4546-4748-4142-434445464748")
"""Its bytes are letters."""
POINT = pa.struct([("x", pa.int8())])


@pytest.mark.parametrize(
    ("values", "target", "expected"),
    [
        (pa.array([1, 0, None]), pa.bool_(), [True, False, None]),
        (pa.array([1, None]), pa.decimal128(5, 2), ["1.00", None]),
        (pa.array(["1." + "0" * 60, None, "+1e2", "-.5"]), pa.decimal128(5, 2), ["1.00", None, "100.00", "-0.50"]),
        (pa.array([[1], None, []]), pa.list_(pa.int8()), [[1], None, []]),
        (pa.array([{"x": 1, "y": 2}, None]), POINT, [{"x": 1}, None]),
        (pa.array([{"y": 2}]), POINT, [{"x": None}]),
        (pa.array([ID.bytes, None], pa.uuid()), pa.string(), [str(ID), None]),
    ],
    ids=["boolean", "decimal", "text", "list", "struct", "missing field", "id"],
)
def test_values_that_fit_are_cast(values: pa.Array, target: pa.DataType, expected: list[Any]) -> None:
    done = strict_cast(values, target)
    assert done.type == target
    assert [
        str(one) if pa.types.is_decimal(target) and one is not None else one for one in done.to_pylist()
    ] == expected


@pytest.mark.parametrize(
    ("values", "target"),
    [
        (pa.array([7]), pa.bool_()),
        (pa.array([1.5]), pa.int64()),
        (pa.array([300]), pa.int8()),
        (pa.array([1e300]), pa.float32()),
        (pa.array([[300]]), pa.list_(pa.int8())),
        (pa.array([{"x": 300}]), POINT),
        (pa.array(["-1", "0xFF"]), pa.int8()),
        (pa.array([2**62]).view(pa.timestamp("s")), pa.date32()),
        (pa.array([2**62]).view(pa.timestamp("ms")), pa.date64()),
        (pa.array([86_400], pa.int32()), pa.time32("s")),
        (pa.array([[1, None]]), pa.list_(pa.field("item", pa.int8(), nullable=False))),
        (pa.array([{"x": 1}, {"x": None}]), pa.struct([pa.field("x", pa.int8(), nullable=False)])),
        (pa.array([Decimal("5534011782386129315.8675")]), pa.decimal128(38, 36)),
        (pa.array([Decimal("5534011782386129315.8675")]), pa.decimal256(38, 36)),
        *((pa.array(["1", text]), pa.decimal128(38, 0)) for text in ("1" + "0" * 39, str(2**128), "9" * 38 + "e1")),
        *((pa.array([text]), pa.decimal128(38, 38)) for text in ("574387", "1e14", "1e-90", "1" * 30 + ".0")),
    ],
    ids=[
        *("seven is no boolean", "rounded", "overflow", "infinite", "inside a list", "inside a struct"),
        *("hexadecimal", "far day", "far day of milliseconds", "24 o'clock"),
        *("no item", "no field", "digits behind the point", "the same with 256 bits"),
        *("39 zeros", "2 to the 128th", "exponent", "no room", "no room for an exponent", "tiny", "long"),
    ],
)
def test_values_that_would_become_others_are_refused(values: pa.Array, target: pa.DataType) -> None:
    with pytest.raises(pa.ArrowInvalid):
        strict_cast(values, target)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([[None], None, [None, None], [None]], pa.list_(pa.null())),
        pa.array([[[None]], None, [[], [None]], [None]], pa.large_list(pa.list_(pa.null()))),
        pa.array([{"x": None, "y": 1}, None, {"x": None, "y": 2}], pa.struct([("x", pa.null()), ("y", pa.int64())])),
    ],
    ids=["list", "list of lists", "struct"],
)
def test_parts_of_nulls_only_are_cast_from_any_row_on(values: pa.Array) -> None:
    for first in range(len(values)):
        part = values.slice(first)
        done = strict_cast(part, values.type)
        done.validate(full=True)
        assert done.to_pylist() == part.to_pylist()


def test_null_struct_has_no_fields_that_need_a_value() -> None:
    kind = pa.struct([pa.field("x", pa.int8(), nullable=False)])
    assert strict_cast(pa.array([{"x": 1}, None]), kind).to_pylist() == [{"x": 1}, None]


NUMBERS = [
    *(pa.type_for_alias(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.decimal32(9, 2), pa.decimal64(18, 4), pa.decimal128(5, 2), pa.decimal128(15, 7), pa.decimal128(38, 0)),
    *(pa.decimal128(38, 37), pa.decimal128(10, -3), pa.decimal256(76, 0), pa.decimal256(76, 38), pa.decimal256(76, 76)),
]


def _edges(kind: pa.DataType) -> pa.Array:
    """Return values at the edges of a type of numbers, and null."""
    if pa.types.is_integer(kind):
        low = 0 if pa.types.is_unsigned_integer(kind) else -(2 ** (kind.bit_width - 1))
        high = low + 2**kind.bit_width - 1
        powers = (2**bits + one for bits in (7, 8, 11, 15, 16, 24, 31, 32, 53, 63) for one in (-1, 0, 1))
        return pa.array([None, *(sign * one for sign in (1, -1) for one in powers if low <= sign * one <= high)], kind)
    if pa.types.is_floating(kind):
        numbers = np.array([0.1, 0.35, -7, 2**24 + 2, 65504, 2.0**53, -(2.0**63), 1e22, 3.5e38, 1e300])
        return pa.array(numbers.astype(kind.to_pandas_dtype(), copy=False))
    most = 10**kind.precision - 1
    digits = [most, -most, 35, -1, *(2**bits * 10 ** max(kind.scale, 0) for bits in (31, 63, 127))]
    with localcontext(prec=100):
        return pa.array([None, *(Decimal(one).scaleb(-kind.scale) for one in digits if abs(one) <= most)], kind)


def _number(value: Any) -> Fraction | float | None:
    if value is None or math.isinf(value):
        return None if value is None else float(value)
    return Fraction(float(value) if isinstance(value, np.floating) else value)


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("source", NUMBERS, ids=str)
def test_number_becomes_itself_or_the_nearest_float_or_is_refused(source: pa.DataType) -> None:
    edges, cast = _edges(source), 0
    for target in NUMBERS:
        nearest = target.to_pandas_dtype() if pa.types.is_floating(target) else None
        for at, given in enumerate(map(_number, edges.to_pylist())):
            try:
                done = strict_cast(edges.slice(at, 1), target)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                continue
            got, cast = _number(done[0].as_py()), cast + 1
            done.validate(full=True)
            expected = given
            if given is not None and nearest is not None:
                expected = _number(float(nearest(float(given))))
            if pa.types.is_floating(source) and got != expected and got is not None and expected is not None:
                # The shortest digits of a float.
                got, expected = (float(source.to_pandas_dtype()(float(one))) for one in (got, expected))
            assert got == expected, (edges[at], target, done[0])
    assert cast > len(NUMBERS)


@pytest.mark.parametrize(
    "outer",
    [
        lambda kind: pa.map_(pa.string(), kind),
        lambda kind: pa.list_(kind, 1),
        lambda kind: pa.list_(pa.map_(pa.string(), kind)),
        lambda kind: pa.struct({"x": pa.list_(kind, 1)}),
    ],
    ids=["map", "fixed list", "list of maps", "fixed list of a struct"],
)
def test_number_inside_is_cast_as_alone(outer: Callable[[pa.DataType], pa.DataType]) -> None:
    given = {"map": [("k", Decimal("0.35"))], "list": [Decimal("0.35")]}
    kind = outer(pa.decimal128(5, 2))
    value: Any = given["map"] if pa.types.is_map(kind) else given["list"]
    value = [given["map"]] if pa.types.is_list(kind) else {"x": value} if pa.types.is_struct(kind) else value
    rows = pa.array([value, None, value, value], kind).slice(1)
    for target in (pa.float64(), pa.decimal128(38, 37), pa.string()):
        done = strict_cast(rows, outer(target))
        done.validate(full=True)
        assert done.type == outer(target)
        assert str(done.to_pylist()).replace("Decimal('", "").count("0.35") == 2
        assert done[0].as_py() is None
    with pytest.raises(pa.ArrowInvalid):
        strict_cast(rows, outer(pa.decimal128(2, 1)))
    large = pa.array([[("k", 1e300)]], pa.map_(pa.string(), pa.float64()))
    with pytest.raises(pa.ArrowInvalid, match="too large"):
        strict_cast(large, pa.map_(pa.string(), pa.float32()))


def test_day_and_time_are_those_that_clocks_show_after_2037_too() -> None:
    times = pa.array(["2040-07-01 22:30:00", None]).cast(pa.timestamp("s")).cast(pa.timestamp("s", "Europe/Berlin"))
    assert strict_cast(times, pa.date32()).to_pylist() == [date(2040, 7, 2), None]
    assert strict_cast(times, pa.time32("s")).to_pylist() == [time(0, 30), None]
