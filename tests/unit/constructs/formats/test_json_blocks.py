from __future__ import annotations

import io

import pytest

from gobblin_dagster.constructs.formats.base import FormatError
from gobblin_dagster.constructs.formats.json_blocks import blocks


def test_lines_stay_whole_whatever_the_size_of_a_block() -> None:
    text = b'\xef\xbb\xbf{"a": 1}\n\n  \n{"b": 22}\r\n{"c": 333}'
    for size in (4, 7, 100):
        lines = [line for block in blocks(io.BytesIO(text), size) for line in block]
        assert [line.strip() for line in lines] == [b'{"a": 1}', b'{"b": 22}', b'{"c": 333}']


def test_line_without_end_does_not_fill_the_memory() -> None:
    with pytest.raises(FormatError, match="a line is longer than"):
        list(blocks(io.BytesIO(b"[" * 1000), 10))
