"""The child process of a `JobMonitor`: none is left behind, whenever it is told to end."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gobblin_dagster.service.executors.messages import StopOrder
from gobblin_dagster.service.executors.worker_process import WorkerProcess
from gobblin_dagster.service.model import JobKey

KEY = JobKey("g", "n", 1, "job", 1, 1)


def test_worker_that_is_being_started_is_killed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starting, killing = threading.Event(), threading.Event()
    started: list[subprocess.Popen[str]] = []
    start = subprocess.Popen

    def slow_start(*args: object, **kwargs: object) -> subprocess.Popen[str]:
        starting.set()
        killing.wait(0.2)
        started.append(start(*args, **kwargs))  # type: ignore[call-overload]  # passed on as it is
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", slow_start)
    worker = WorkerProcess([sys.executable, "-c", "import sys; sys.stdin.read()"], tmp_path, tmp_path / "log")
    sender = threading.Thread(target=worker.send, args=(StopOrder(KEY),))
    sender.start()
    starting.wait()
    worker.kill()
    killing.set()
    sender.join()
    assert started[0].wait(timeout=60) == -9
