from __future__ import annotations

import pytest

from gobblin_dagster.core.utils.text import count, first_line, printable


@pytest.mark.parametrize(
    ("error", "line"),
    [(ValueError("\n one\ntwo"), "one"), (ValueError(), "ValueError"), (ValueError("x" * 301), "x" * 300)],
    ids=["several lines", "none", "long"],
)
def test_first_line_is_never_empty_and_never_long(error: Exception, line: str) -> None:
    assert first_line(error) == line


def test_count_names_one_and_many() -> None:
    assert [count(number, "file") for number in (0, 1, 2000)] == ["0 files", "1 file", "2,000 files"]
    assert count(2, "entry", "entries") == "2 entries"


def test_what_a_terminal_would_obey_is_shown_as_text() -> None:
    assert printable("größe") == "größe"
    assert printable("a\x1b[2J\n") == "a\\x1b[2J\\n"
