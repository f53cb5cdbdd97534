"""Types as text and back."""

from __future__ import annotations

import pyarrow as pa
import pytest

from gobblin_dagster.constructs.types.schema_text import any_type_from_text, type_from_text


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.binary(), pa.bool_(),
        pa.date32(), pa.time64("us"), pa.timestamp("us"), pa.timestamp("ns", "Europe/Berlin"), pa.decimal128(38, 5),
        pa.decimal256(50, 2), pa.duration("ms"), pa.null(),
    ],
    ids=str,
)  # fmt: skip
def test_plain_types_survive_their_text(kind: pa.DataType) -> None:
    assert type_from_text(str(kind)) == kind
    assert type_from_text(f"{kind} not null") == kind


def test_types_made_of_types_are_not_read_back() -> None:
    assert type_from_text(str(pa.list_(pa.int64()))) is None
    assert type_from_text(str(pa.struct([("a", pa.int64())]))) is None


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.list_(pa.int8())),
        pa.large_list(pa.field("element", pa.string(), nullable=False)),
        pa.map_(pa.string(), pa.struct({"at": pa.timestamp("us", "UTC"), "n": pa.decimal128(9, 2)})),
        pa.struct([pa.field("a b", pa.int64(), nullable=False), pa.field("b", pa.list_(pa.struct({"c": pa.bool_()})))]),
        pa.struct([]),
        pa.int64(),
    ],
    ids=str,
)
def test_nested_types_survive_their_text(kind: pa.DataType) -> None:
    assert any_type_from_text(str(kind)) == kind
    assert any_type_from_text(f"{kind} not null") == kind


@pytest.mark.parametrize(
    "kind",
    [
        pa.struct({"a: b": pa.int64()}),
        pa.struct({"a, b": pa.int64()}),
        pa.dictionary(pa.int8(), pa.string()),
        pa.list_(pa.int8(), 3),
        pa.list_(pa.dictionary(pa.int8(), pa.string())),
    ],
    ids=str,
)
def test_types_whose_text_could_be_another_are_not_read_back(kind: pa.DataType) -> None:
    assert any_type_from_text(str(kind)) is None
