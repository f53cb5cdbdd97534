"""Types as text and back."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobblin_dagster.constructs.types.schema_text import any_type_from_text, schema_text, type_from_text, type_texts


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.binary(), pa.bool_(),
        pa.date32(), pa.time64("us"), pa.timestamp("us"), pa.timestamp("ns", "Europe/Berlin"), pa.decimal128(38, 5),
        pa.decimal256(50, 2), pa.duration("ms"), pa.null(), pa.decimal32(9, 2), pa.decimal64(18, 0), pa.binary(16),
    ],
    ids=str,
)  # fmt: skip
def test_plain_types_survive_their_text(kind: pa.DataType) -> None:
    assert type_from_text(str(kind)) == kind
    assert type_from_text(f"{kind} not null") == kind


def _plain_types() -> st.SearchStrategy[pa.DataType]:
    units, zones = st.sampled_from(["s", "ms", "us", "ns"]), st.sampled_from([None, "UTC", "Europe/Berlin", "+01:00"])
    digits = {pa.decimal32: 9, pa.decimal64: 18, pa.decimal128: 38, pa.decimal256: 76}
    return st.one_of(
        st.sampled_from(
            [
                *(pa.bool_(), pa.null(), pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us")),
                *(pa.time64("ns"), pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view()),
                *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
                *(pa.float16(), pa.float32(), pa.float64(), pa.binary_view()),
            ]
        ),
        st.integers(1, 99).map(pa.binary),
        st.builds(pa.timestamp, units, zones),
        units.map(pa.duration),
        *(st.builds(make, st.integers(1, most), st.integers(-9, 9)) for make, most in digits.items()),
    )


def _nested(kinds: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    names = st.text("ab _é", min_size=1, max_size=3)
    fields = st.builds(
        lambda name, kind, free: pa.field(name, kind, free or pa.types.is_null(kind)), names, kinds, st.booleans()
    )
    return st.one_of(
        fields.map(pa.list_),
        fields.map(pa.large_list),
        st.builds(pa.map_, kinds.filter(lambda kind: not pa.types.is_null(kind)), kinds),  # no key is null
        st.lists(fields, max_size=3).map(pa.struct),
    )


@settings(max_examples=80)
@given(st.recursive(_plain_types(), _nested, max_leaves=5))
def test_each_type_that_writers_hold_survives_its_text(kind: pa.DataType) -> None:
    (text,) = type_texts(schema_text(pa.schema({"v": kind}))).values()
    found = any_type_from_text(text)
    assert found is not None
    assert type_texts(schema_text(pa.schema({"v": found}))) == {"v": text}
    if not pa.types.is_nested(kind):
        assert type_from_text(text) == (kind if not str(kind).endswith("_view") else type_from_text(str(kind)[:-5]))


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
