"""A type checker refuses each wrong call of the public face, and none of the right ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parents[2]
CALLS = Path(__file__).with_name("wrong_calls.py")
IGNORE = re.compile(r"  # type: ignore\[([\w-]+)\]$", re.MULTILINE)


@pytest.mark.slow
def test_each_wrong_call_is_refused_with_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = CALLS.read_text(encoding="utf-8")
    bare = tmp_path / "bare_calls.py"
    bare.write_text(IGNORE.sub("", text), encoding="utf-8")
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    printed, failed, _ = api.run(["--config-file", "pyproject.toml", str(bare)])
    assert not failed
    refused = {
        (int(line), code) for line, code in re.findall(r"bare_calls\.py:(\d+): error: .*\[([\w-]+)\]$", printed, re.M)
    }
    lines = enumerate(text.splitlines(), 1)
    expected = {(number, found[1]) for number, line in lines if (found := IGNORE.search(line))}
    assert len(expected) > 15
    assert refused == expected, printed
