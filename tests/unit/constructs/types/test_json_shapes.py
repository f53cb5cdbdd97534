from __future__ import annotations

from typing import Any

import pytest

from gobblin_dagster.constructs.types.json_shapes import (
    RecordShape,
    dump_exactly,
    load_exactly,
    shape_of_text,
    shape_text,
)


@pytest.mark.parametrize(
    ("values", "shape"),
    [
        ([1, None, -2], "int64"),
        ([1, 2.5], "float64"),
        ([(1 << 53) + 1], "int64"),
        ([(1 << 53) + 1, 2.5], "json"),
        ([1 << 63], "json"),
        ([True, False], "bool"),
        ([True, 1], "json"),
        (["x", 1], "json"),
        ([None], "string"),
        ([[]], ["string"]),
        ([[1], [None, 2.5]], ["float64"]),
        ([[1], ["x"]], "json"),
        ([[1], {"a": 1}], "json"),
        ([{}], "json"),
        ([{"a": 1}, {"b": {"c": "x"}}], {"a": "int64", "b": {"c": "string"}}),
        ([{"a": 1}, {"a": "x"}], "json"),
        ([[{"a": 1}, {"b": None}]], [{"a": "int64", "b": "string"}]),
    ],
    ids=str,
)
def test_shape_holds_every_value_of_the_sample(values: list[Any], shape: Any) -> None:
    for order in (values, values[::-1]):
        found = RecordShape()
        for value in order:
            found.look({"x": value})
        assert found.shapes() == {"x": shape}


def test_values_nested_too_deep_are_json() -> None:
    value: Any = 1
    for _ in range(40):
        value = [value]
    found = RecordShape()
    found.look({"x": value})
    assert found.shapes() == {"x": "json"}


def test_shape_comes_back_from_its_text() -> None:
    for shape in ("int64", "json", ["string"], {"a": "int64", "ü": ["bool"]}):
        assert shape_of_text(shape_text(shape)) == shape


def test_json_is_written_digit_by_digit_as_it_was() -> None:
    text = '{"a": 1.10, "b": [1e400, "ü", "0.5", "\\u0000"], "c": 12345678901234567890123}'
    assert dump_exactly(load_exactly(text)) == text


@pytest.mark.parametrize("text", ['{"a": NaN}', "[Infinity]", "-Infinity"])
def test_numbers_that_json_does_not_have_are_not_written_as_json(text: str) -> None:
    with pytest.raises(ValueError, match="NaN, Infinity or -Infinity, which is no value of JSON"):
        dump_exactly(load_exactly(text))
    assert dump_exactly(load_exactly(text), allow_nan=True) == text
