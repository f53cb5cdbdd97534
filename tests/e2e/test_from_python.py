"""docs/start/from-python.md: every block is run, in the order of the page, and shows what the page says."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "start" / "from-python.md"
BLOCK = re.compile(r"^```(python|yaml|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS: list[tuple[str, str]] = BLOCK.findall(PAGE.read_text(encoding="utf-8"))

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.slow]


CHANGING = {
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ": "INSTANT",
    r"\d{8}T\d{6}-[0-9a-f]{16}": "RUN",
    r"after [\d,.]+ s": "after SECONDS",
    r"(?<=18  )\d{3},\d{3}": "BYTES",
}
"""What is different in each run of the page; sizes of Parquet files depend on its version."""


def masked(text: str) -> list[list[str]]:
    """Return the words of each line, without what changes."""
    for pattern, word in CHANGING.items():
        text = re.sub(pattern, word, text)
    return [line.split() for line in text.splitlines()]


def shown(cell: str, names: dict[str, Any]) -> str:
    """Run a cell and return what a notebook shows: its last expression."""
    *statements, last = ast.parse(cell).body
    exec(compile(ast.Module(statements, []), str(PAGE), "exec"), names)
    if not isinstance(last, ast.Expr):
        exec(compile(ast.Module([last], []), str(PAGE), "exec"), names)
        return ""
    return repr(eval(compile(ast.Expression(last.value), str(PAGE), "eval"), names))


def test_page_is_true_from_its_first_block_to_its_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    names: dict[str, Any] = {"__name__": "__main__"}
    result, compared = "", 0
    try:
        for language, block in BLOCKS:
            if language == "text":
                assert masked(result) == masked(block)
                compared += 1
            elif file := re.match(r"# (demo/\S+)\n", block):
                Path(file[1]).write_text(block)
            else:
                result = shown(block, names)
    finally:
        names["project"].close()
    assert compared == 7
