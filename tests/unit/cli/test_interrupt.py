from __future__ import annotations

import os
import signal
import sys

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
