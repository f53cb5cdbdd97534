"""Processes that end by `end_process`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BEGIN = "import atexit, sys, threading, time; from gobblin_dagster.cli.ending import end_process; "


def ended(tmp_path: Path, body: str) -> tuple[int, str]:
    """Return exit code and output of a program, whose output is a pipe."""
    program = [sys.executable, "-c", BEGIN + body]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout


def test_handlers_run_and_files_are_written_but_nothing_is_taken_apart(tmp_path: Path) -> None:
    body = """
class Kept:
    def __del__(self):
        print("taken apart")
kept = Kept()
kept.cycle = kept
atexit.register(print, "handler")
rows = open("rows.txt", "w")
rows.write("one row")
raw = open("raw.bin", "wb")
raw.write(b"bytes")
threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
print("said")
end_process(4)
"""
    assert ended(tmp_path, body) == (4, "said\nhandler\n")
    assert (tmp_path / "rows.txt").read_text() == "one row"
    assert (tmp_path / "raw.bin").read_bytes() == b"bytes"


def test_thread_that_works_is_waited_for(tmp_path: Path) -> None:
    body = "threading.Timer(0.1, print, ['worked']).start(); end_process(0)"
    assert ended(tmp_path, body) == (0, "worked\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_output_that_cannot_be_written_is_told_as_python_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    program = [sys.executable, "-c", BEGIN + "print('lost'); end_process(0)"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 120
    assert "No space left on device" in done.stderr
