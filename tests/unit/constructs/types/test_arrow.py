from __future__ import annotations

import pyarrow as pa
import pytest
from pydantic import TypeAdapter, ValidationError

from gobblin_dagster.constructs.types.arrow import TypeName, arrow_type, has_part, leaves, levels_of


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("int64", pa.int64()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("decimal(12,2)", pa.decimal128(12, 2)),
        ("decimal(38, 38)", pa.decimal128(38, 38)),
        ("decimal( 9 ,2 )", pa.decimal128(9, 2)),
    ],
)
def test_arrow_type_known_name_is_its_type(name: str, expected: pa.DataType) -> None:
    assert arrow_type(name) == expected


@pytest.mark.parametrize("name", ["integer", "decimal(39,0)", "decimal(4,5)", "decimal(0,0)", ""])
def test_arrow_type_unknown_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError, match=r"unknown column type .*; known: string, bool, int8"):
        arrow_type(name)


@pytest.mark.parametrize(
    ("given", "got"), [({"city": "string", "geo": {}}, r"keys and values \(city, geo\)"), (["string"], "a list")]
)
def test_nested_type_is_refused_with_a_way_to_read_it(given: object, got: str) -> None:
    with pytest.raises(ValidationError, match=f"expected the name of one type, .* got {got}.*`json_text`"):
        TypeAdapter(TypeName).validate_python(given)


def test_levels_are_counted_by_lists_and_structs() -> None:
    kind = pa.list_(pa.struct([("a", pa.int64()), ("b", pa.map_(pa.string(), pa.dictionary(pa.int8(), pa.string())))]))
    assert [
        levels_of([]),
        levels_of([pa.int64(), kind]),
        levels_of([kind], a_list=2),
        levels_of([kind], a_struct=0),
    ] == [0, 4, 6, 3]
    assert has_part(kind, pa.types.is_map)
    assert not has_part(kind, pa.types.is_binary)


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.int64(), [1, 2, 3], [[2, 3]]),
        (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None, [("c", 3)]], [["c"], [3]]),
        (pa.list_(pa.struct([("x", pa.int64())])), [[{"x": 1}], [{"x": 2}, None], None], [[2, None]]),
        (pa.struct([("at", pa.dictionary(pa.int8(), pa.float64()))]), [{"at": 1.0}, {"at": 2.0}, None], [[2.0]]),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_chunked", [False, True])
def test_leaves_of_a_part_are_its_own(
    kind: pa.DataType, values: list[object], expected: list[list[object]], is_chunked: bool
) -> None:
    part = pa.array(values, kind).slice(1)
    assert [one.to_pylist() for one in leaves(pa.chunked_array([part]) if is_chunked else part)] == expected
