"""Which types hold all values of others."""

from __future__ import annotations

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.types.wider import common_type, is_wider, widenings
from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.traits import PublisherTraits, traits_of


@pytest.mark.parametrize(
    ("wide", "narrow", "is_so"),
    [
        (pa.int64(), pa.int8(), True),
        (pa.int8(), pa.int8(), False),
        (pa.int32(), pa.int64(), False),
        (pa.int64(), pa.uint64(), False),
        (pa.float64(), pa.float32(), True),
        (pa.timestamp("us", "UTC"), pa.timestamp("s", "UTC"), True),
        (pa.timestamp("us", "UTC"), pa.timestamp("s"), False),
        (pa.decimal128(12, 2), pa.decimal128(12, 3), False),
        (pa.decimal128(12, 3), pa.decimal128(12, 2), False),
        (pa.decimal128(20, 1), pa.int64(), True),
        (pa.decimal128(19, 1), pa.int64(), False),
        (pa.decimal128(38, 18), pa.uint64(), True),
        (pa.int64(), pa.decimal128(5, 0), False),
        (pa.string(), pa.null(), True),
        (pa.float64(), pa.uint32(), True),
        (pa.float32(), pa.int8(), False),
        (pa.float64(), pa.uint64(), False),
        (pa.timestamp("us"), pa.date32(), True),
        (pa.timestamp("ns"), pa.date32(), False),
        (pa.timestamp("us", "UTC"), pa.date32(), False),
        (pa.decimal256(50, 2), pa.decimal128(38, 1), True),
        (pa.struct({"b": pa.int8(), "a": pa.int64()}), pa.struct({"a": pa.int8()}), True),
        (pa.struct({"a": pa.int64()}), pa.struct({"a": pa.int8(), "b": pa.int8()}), False),
        (pa.list_(pa.int64()), pa.list_(pa.int32()), True),
        (pa.list_(pa.int64()), pa.large_list(pa.int32()), False),
        (pa.map_(pa.string(), pa.struct({"a": pa.int8()})), pa.map_(pa.string(), pa.struct({})), True),
        (pa.struct([("a", pa.int8()), ("a", pa.int64())]), pa.struct({"a": pa.int8()}), False),
        (pa.string(), pa.int64(), False),
    ],
    ids=str,
)
def test_wider_means_every_value_fits(wide: pa.DataType, narrow: pa.DataType, is_so: bool) -> None:
    assert is_wider(wide, narrow) is is_so


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        (pa.decimal128(10, 2), pa.decimal128(8, 4), pa.decimal128(12, 4)),
        (pa.decimal128(9, 4), pa.int32(), pa.decimal128(14, 4)),
        (pa.decimal128(38, 2), pa.decimal128(38, 3), None),
        (pa.decimal256(38, 2), pa.decimal128(38, 3), pa.decimal256(39, 3)),
        (pa.decimal128(5, 1), pa.float64(), None),
        (pa.int32(), pa.float32(), pa.float64()),
        (pa.uint16(), pa.int8(), pa.int32()),
        (pa.uint64(), pa.int8(), None),
        (
            pa.list_(pa.struct({"a": pa.int8()})),
            pa.list_(pa.struct({"b": pa.int8()})),
            pa.list_(pa.struct({"a": pa.int8(), "b": pa.int8()})),
        ),
        (pa.struct({"a": pa.int8()}), pa.struct({"a": pa.string()}), None),
        (pa.struct({"a": pa.int8()}), pa.list_(pa.int8()), None),
        (pa.list_(pa.int8(), 2), pa.list_(pa.int16(), 2), None),
    ],
    ids=str,
)
def test_common_type_holds_the_values_of_both(one: pa.DataType, other: pa.DataType, common: pa.DataType | None) -> None:
    assert common_type(one, other) == common
    if common is not None:
        assert all(kind == common or is_wider(common, kind) for kind in (one, other))


@pytest.mark.parametrize(
    ("wide", "narrow", "kinds"),
    [
        (pa.int64(), pa.int8(), []),
        (pa.decimal128(9, 1), pa.decimal128(8, 1), []),
        (pa.string(), pa.null(), []),
        (pa.map_(pa.string(), pa.float64()), pa.map_(pa.string(), pa.int8()), ["int_to_float"]),
        (
            pa.struct({"a": pa.list_(pa.decimal128(9, 1)), "b": pa.int8()}),
            pa.struct({"a": pa.list_(pa.int8())}),
            ["int_to_decimal", "new_fields"],
        ),
    ],
    ids=str,
)
def test_kinds_of_wider_types_are_found_at_any_depth(wide: pa.DataType, narrow: pa.DataType, kinds: list[str]) -> None:
    assert sorted(widenings(wide, narrow)) == kinds


def test_unknown_kind_of_wider_types_is_named() -> None:
    class Mine:
        widens = ("int_to_text",)

    with pytest.raises(UsageError, match="`widens` names int_to_text"):
        traits_of(Mine(), PublisherTraits)
