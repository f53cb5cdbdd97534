from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.types.strict_cast import strict_cast

POINT = pa.struct([("x", pa.int8())])


@pytest.mark.parametrize(
    ("values", "target", "expected"),
    [
        (pa.array([1, 0, None]), pa.bool_(), [True, False, None]),
        (pa.array([1, None]), pa.decimal128(5, 2), ["1.00", None]),
        (pa.array([[1], None, []]), pa.list_(pa.int8()), [[1], None, []]),
        (pa.array([{"x": 1, "y": 2}, None]), POINT, [{"x": 1}, None]),
        (pa.array([{"y": 2}]), POINT, [{"x": None}]),
    ],
    ids=["boolean", "decimal", "list", "struct", "missing field"],
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
    ],
    ids=["seven is no boolean", "rounded", "overflow", "infinite", "inside a list", "inside a struct"],
)
def test_values_that_would_become_others_are_refused(values: pa.Array, target: pa.DataType) -> None:
    with pytest.raises(pa.ArrowInvalid):
        strict_cast(values, target)
