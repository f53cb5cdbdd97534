from __future__ import annotations

import ctypes
import os
import signal
import socket
import threading
from contextlib import closing
from typing import Any

import dagster as dg
import pytest

from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.core.utils.cut_off import cut_off_when_stopped, was_cut_off
from gobblin_dagster.engine.run.job_run import JobRun
from tests.unit.orchestration.world import World


@pytest.mark.parametrize("method", ["extract", "publish"])
def test_terminated_run_ends_while_a_library_waits_for_a_database(
    world: World, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    ours, theirs = socket.socketpair()
    answer = threading.Timer(5, theirs.send, [b"x"])

    def wait(*_: Any) -> None:
        signal.siginterrupt(signal.SIGTERM, False)  # waits go on after a signal, as those of libpq do
        cut_off_when_stopped(ours)
        threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGTERM]).start()
        ctypes.CDLL(None).recv(ours.fileno(), ctypes.create_string_buffer(1), 1, 0)
        raise ConnectionError("the database went away")

    monkeypatch.setattr(JobRun, method, wait)
    answer.start()
    with ours, theirs:
        ended = world.run_all()
        assert answer.is_alive(), "the run waited for the database"
        answer.cancel()
        answer.join()
    [failed] = [event.step_failure_data for event in ended.all_events if event.is_step_failure]
    assert failed.error is not None
    assert failed.error.cls_name == dg.DagsterExecutionInterruptedError.__name__
    with closing(world.binding.project.open_store()) as store:
        assert [run.status for run in store.load_runs("numbers")] == [RunStatus.INTERRUPTED]
    assert not was_cut_off(), "the next run of this process makes connections"
