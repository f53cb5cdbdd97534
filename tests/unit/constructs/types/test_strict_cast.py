from __future__ import annotations

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
        (pa.array([[1], None, []]), pa.list_(pa.int8()), [[1], None, []]),
        (pa.array([{"x": 1, "y": 2}, None]), POINT, [{"x": 1}, None]),
        (pa.array([{"y": 2}]), POINT, [{"x": None}]),
        (pa.array([ID.bytes, None], pa.uuid()), pa.string(), [str(ID), None]),
    ],
    ids=["boolean", "decimal", "list", "struct", "missing field", "id"],
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
    ],
    ids=[
        *("seven is no boolean", "rounded", "overflow", "infinite", "inside a list", "inside a struct"),
        *("no item", "no field"),
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
