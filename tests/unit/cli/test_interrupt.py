from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest
from rich.console import Console

from gobblin_dagster.cli.interrupt import stop_on_interrupt


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_interrupt_sets_the_event_and_the_second_stops(number: signal.Signals) -> None:
    former = signal.getsignal(number)
    with stop_on_interrupt(Console(file=sys.stderr, quiet=True)) as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is former


def test_nothing_that_a_signal_began_goes_on_after_the_block() -> None:
    """A connection that is cut off late would be one of the next command, in a process that stays."""
    for _ in range(20):
        with stop_on_interrupt(Console(file=sys.stderr, quiet=True)):
            pass
        assert "signals" not in {thread.name for thread in threading.enumerate()}


IN_THE_MIDST = """\
import io, os, signal, threading
from rich.console import Console
from gobblin_dagster.cli.interrupt import stop_on_interrupt

enter = threading.Condition.__enter__

def interrupted(condition):
    threading.Condition.__enter__ = enter
    held = enter(condition)
    os.kill(os.getpid(), signal.SIGINT)
    return held

with stop_on_interrupt(Console(file=io.StringIO())):
    threading.Condition.__enter__ = interrupted
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        print("stopped")
"""


def test_second_interrupt_does_not_wait_for_the_lock_that_the_first_one_holds() -> None:
    done = subprocess.run([sys.executable, "-c", IN_THE_MIDST], capture_output=True, text=True, check=False, timeout=20)
    assert (done.stdout, done.stderr) == ("stopped\n", "")


IN_C = """\
import ctypes, os, signal, socket, sys, threading, time
from rich.console import Console
from gobblin_dagster.cli.interrupt import stop_on_interrupt, waits_end_on_interrupt
from gobblin_dagster.core.utils.cut_off import cut_off_when_stopped

ours, theirs = socket.socketpair()
cut_off_when_stopped(ours)
stops = sys.argv[1] == "run"

def interrupt():
    for number in (signal.SIGINT, signal.SIGINT)[: 1 + stops]:
        time.sleep(0.7)
        os.kill(os.getpid(), number)

with stop_on_interrupt(Console(file=sys.stdout)) if stops else waits_end_on_interrupt():
    signal.siginterrupt(signal.SIGINT, False)  # waits go on after a signal, as those of libpq do
    threading.Thread(target=interrupt).start()
    try:
        ctypes.CDLL(None).recv(ours.fileno(), ctypes.create_string_buffer(1), 1, 0)
        time.sleep(5)
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.parametrize(("command", "said"), [("run", "Stopping: running work units end"), ("plan", "")])
def test_interrupt_ends_what_a_library_waits_for(command: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_C, command], capture_output=True, text=True, check=False, timeout=20
    )
    assert done.stdout.startswith(said), done.stdout
    assert done.stdout.endswith("interrupted\n"), done.stderr
