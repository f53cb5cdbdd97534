"""Records of one document are cut out exactly, whatever the size of a block, and nothing else is taken for one."""

from __future__ import annotations

import io
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobblin_dagster.constructs.formats.base import FormatError
from gobblin_dagster.constructs.formats.json_records import records

SIZES = (64, 100, 1 << 20)


def cut(text: bytes, path: str = "", size: int = 64) -> list[Any]:
    return [json.loads(record) for block in records(io.BytesIO(text), size, path) for record in block]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('ab"\\[]{}:,\n é'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('a"\\[é', max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.dictionaries(st.text("ab", min_size=1), VALUES, max_size=3), max_size=4),
    VALUES,
    st.sampled_from([None, 2]),
)
def test_records_are_those_of_the_document(rows: list[dict[str, Any]], other: Any, indent: int | None) -> None:
    whole = json.dumps(rows, indent=indent).encode()
    below = json.dumps({"x": other, "data": {"y": other, "items": rows, "z": other}}, indent=indent).encode()
    for size in (256, 1 << 20):
        assert cut(whole, size=size) == rows
        assert cut(b"\xef\xbb\xbf" + below, "data.items", size) == rows


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("text", "path", "rows"),
    [
        (b"", "", []),
        (b"  \n", "", []),
        (b" [ ] \n", "", []),
        (b'{"items": null}', "items", []),
        (b'{"a": "]}", "items": [{"b": "\\"}]"}], "n": -1.5e3}', "items", [{"b": '"}]'}]),
        (b'{"a": 1}', ".", [{"a": 1}]),
        (b'[{"a":\n{"b":\r\n[1]}}]', "", [{"a": {"b": [1]}}]),
    ],
)
def test_document_has_its_records(text: bytes, path: str, rows: list[Any], size: int) -> None:
    assert cut(text, path, size) == rows


def test_null_may_stand_at_the_border_of_a_block() -> None:
    text = b'{"items": null}'
    assert [cut(text, "items", size) for size in range(1, len(text))] == [[]] * (len(text) - 1)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("text", "path", "row", "problem"),
    [
        (b'[{"a": 1}, {"a": 2', "", 2, "ends in the middle of a value; was its upload interrupted"),
        (b'[{"a": 1}', "", 2, "expected a comma or the end of the list, got the end of the file"),
        (b'[{"a": 1}, ', "", 2, "expected an object, got the end of the file; was"),
        (b'{"items": [{"a": 1}]', "items", 2, "expected a comma or the end of the object at the top"),
        (b'[{"a": 1} {"a": 2}]', "", 2, "expected a comma or the end of the list, got '{"),
        (b'[{"a": 1}, 2]', "", 2, "expected an object, got '2]'"),
        (b'[{"a": "x\ny"}]', "", 1, "a line break inside of the text"),
        (b'[{"a": "x\ry"}]', "", 1, "a line break inside of the text"),
        (b'[{"a": "x\\\ry"}]', "", 1, "a line break inside of the text"),
        (b'{"a": nul}', "a", 1, "expected a list at 'a', got 'nul'"),
        (rb'{"\ud800": []}', "a", None, r"but the field\(s\) \"\\ud800\""),
        (b'[{"a": 1}] x', "", 2, "got 'x' behind its end"),
        (b'{"a": 1}\n{"a": 2}', ".", 2, "behind its end. Several objects, one a line, are `format: jsonl`"),
        (b'{"data": 1, "rows": [{"a": 1}], "of": []}', "", 1, "Set `records` to the path of the list: .* rows, of"),
        (b'{"data": {"a": 1, "b": 2}}', "data.items", None, "no field 'items' at 'data', but the field.s. a, b"),
        (b'{"items": [], "items": []}', "items", 1, "'items' at the top was specified twice"),
        (b'{"data": []}', "data.items", 1, "expected an object with 'items' at 'data', got '"),
        (b'"text"', "", 1, "expected a list at the top"),
        (b"[{}]", ".", 1, "expected an object at the top"),
        (b"PAR1xxxx", "", 1, "got Parquet"),
        ("[{}]".encode("utf-16"), "", 1, r"got a text in UTF-16 \(JSON is read in UTF-8\)"),
        (b'{"a" 1}', "a", 1, "expected a colon behind the field 'a'"),
    ],
)
def test_document_that_is_none_is_told_with_the_number_of_the_record(
    text: bytes, path: str, row: int | None, problem: str, size: int
) -> None:
    with pytest.raises(FormatError, match=problem) as caught:
        cut(text, path, size)
    assert caught.value.row == row


def test_memory_does_not_grow_with_the_document() -> None:
    record = b'{"id": 1, "name": "' + b"x" * 80 + b'"},\n'
    text = b'{"skipped": [' + record * 2000 + b'{}], "items": [' + record * 2000 + b"{}]}"
    stream = io.BytesIO(text)
    tracemalloc.start()
    try:
        assert sum(len(block) for block in records(stream, 1 << 12, "items")) == 2001
        assert tracemalloc.get_traced_memory()[1] < 1 << 16
    finally:
        tracemalloc.stop()


def test_record_without_end_does_not_fill_the_memory() -> None:
    with pytest.raises(FormatError, match="a value is longer than 160 bytes"):
        list(records(io.BytesIO(b'[{"a": "' + b"x" * 10_000), 10, ""))
