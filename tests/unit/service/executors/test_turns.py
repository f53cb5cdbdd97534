"""The thread of executors and dispatchers."""

from __future__ import annotations

import threading

from gobblin_dagster.service.executors.turns import Turns


def test_turns_follow_when_they_are_called_and_none_begins_after_the_end() -> None:
    began: list[int] = []
    one, two = threading.Event(), threading.Event()

    def turn() -> float:
        began.append(len(began))
        (one if len(began) == 1 else two).set()
        return 3600

    turns = Turns("t", turn)
    turns.start()
    assert one.wait(60)
    turns.wake()
    assert two.wait(60), "nobody waits for an hour after a call"
    assert not turns.wait(0)
    turns.end()
    turns.join()
    assert (began, turns.is_ending, turns.wait(0)) == ([0, 1], True, True)


def test_turns_that_were_never_started_can_be_joined() -> None:
    turns = Turns("t", lambda: 0)
    turns.end()
    turns.join()
