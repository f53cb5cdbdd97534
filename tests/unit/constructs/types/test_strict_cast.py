from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

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
        (pa.array([[1, None]]), pa.list_(pa.field("item", pa.int8(), nullable=False))),
        (pa.array([{"x": 1}, {"x": None}]), pa.struct([pa.field("x", pa.int8(), nullable=False)])),
        (pa.array([Decimal("5534011782386129315.8675")]), pa.decimal128(38, 36)),
        (pa.array([Decimal("5534011782386129315.8675")]), pa.decimal256(38, 36)),
        *((pa.array(["1", text]), pa.decimal128(38, 0)) for text in ("1" + "0" * 39, str(2**128), "9" * 38 + "e1")),
        *((pa.array([text]), pa.decimal128(38, 38)) for text in ("574387", "1e14", "1e-90", "1" * 30 + ".0")),
    ],
    ids=[
        *("seven is no boolean", "rounded", "overflow", "infinite", "inside a list", "inside a struct"),
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
