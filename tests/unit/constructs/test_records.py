"""Output that users' code prints goes to standard error, also from several threads."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack

import pytest

from gobblin_dagster.constructs.records import prints_aside


def test_prints_come_back_to_standard_output_whichever_thread_ends_first(capsys: pytest.CaptureFixture[str]) -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    def other() -> None:
        with prints_aside():
            has_begun.set()
            may_end.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert has_begun.wait(60)
    with ExitStack() as stack:
        stack.enter_context(prints_aside())
        may_end.set()
        thread.join()
        sys.stdout.write("of the user\n")
    sys.stdout.write("of the command\n")
    assert capsys.readouterr() == ("of the command\n", "of the user\n")
