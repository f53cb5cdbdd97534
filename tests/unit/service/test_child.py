"""A program beside the service: started again when it ends, ended with the service."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gobblin_dagster.service import child
from gobblin_dagster.service.child import Child

WAITS = [sys.executable, "-S", "-c", "import sys; print('begun', flush=True); sys.stdin.read()"]


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_program_that_was_killed_is_started_again_and_ends_with_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(child, "FIRST_WAIT_S", 0.01)
    printed = tmp_path / "logs" / "program.log"
    kept = Child("the program", WAITS, tmp_path, printed)
    kept.start()
    until(lambda: printed.exists() and printed.read_text() == "begun\n")
    first = kept.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    until(lambda: printed.read_text() == "begun\nbegun\n")
    second = kept.pid
    assert second not in (None, first)
    assert "the program ended (code -9) and is started again" in caplog.text
    kept.stop()
    assert kept.pid is None
    assert not is_alive(second or 0)


def test_program_that_cannot_be_started_is_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(child, "FIRST_WAIT_S", 0.01)
    kept = Child("the program", [str(tmp_path / "missing")], tmp_path, tmp_path / "log")
    kept.start()
    until(lambda: caplog.text.count("No such file") > 1)
    kept.stop()


def test_program_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "END_WAIT_S", 0.2)
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('begun', flush=True); time.sleep(99)"
    )
    printed = tmp_path / "log"
    kept = Child("the program", [sys.executable, "-S", "-c", deaf], tmp_path, printed)
    kept.start()
    until(lambda: printed.exists() and printed.read_text() == "begun\n")
    pid = kept.pid
    kept.stop()
    assert not is_alive(pid or 0)


def test_program_that_ends_again_and_again_is_told_until_it_runs_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "FIRST_WAIT_S", 0.01)
    printed = tmp_path / "program.log"
    kept = Child("the program", WAITS, tmp_path, printed)
    assert (kept.name, kept.problem) == ("the program", "")
    kept.start()
    until(lambda: printed.exists() and printed.read_text() == "begun\n")
    assert kept.problem == ""
    os.kill(kept.pid or 0, signal.SIGKILL)
    until(lambda: printed.read_text() == "begun\nbegun\n")
    assert kept.problem == f"ended 1 time, last with code -9; see {printed}"
    monkeypatch.setattr(child, "SOUND_S", 0.0)
    assert kept.problem == ""
    kept.stop()
