"""JSON of files and people."""

from __future__ import annotations

import pytest

from gobblin_dagster.core.utils.json_text import parse_json


def test_json_is_parsed_from_text_and_bytes() -> None:
    assert parse_json('{"a": [1, null]}') == parse_json(b'{"a": [1, null]}') == {"a": [1, None]}


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"a":' * 100_000, b"\xff"], ids=lambda text: repr(text[:5]))
def test_what_is_no_json_or_nested_too_deep_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)
