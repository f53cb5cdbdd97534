from __future__ import annotations

import os
import signal

import pytest

from gobblin_dagster.core.commit import CommitSequence, CommitStep
from gobblin_dagster.engine.commit.listener import CommitListener, FanOutListener, SilentListener, crash_at
from gobblin_dagster.testing.faults import run_in_child
from tests.unit.engine.commit.world import World


class Hearing(SilentListener):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def prepared(self, sequence: CommitSequence) -> None:
        self.heard.append("prepared")

    def step_done(self, sequence: CommitSequence, step: CommitStep, number: int) -> None:
        self.heard.append(f"step {number}")

    def committed(self, sequence: CommitSequence) -> None:
        self.heard.append("committed")


def _tell(listener: CommitListener, steps: int = 2) -> None:
    sequence = World().sequence()
    listener.prepared(sequence)
    for number in range(1, steps + 1):
        listener.step_done(sequence, sequence.steps[0], number)
    listener.committed(sequence)


def test_fan_out_tells_all() -> None:
    one, two = Hearing(), Hearing()
    _tell(FanOutListener(one, SilentListener(), two))
    assert one.heard == two.heard == ["prepared", "step 1", "step 2", "committed"]


@pytest.mark.parametrize(("at", "status"), [(2, -signal.SIGKILL), (3, 0)])
def test_crash_kills_the_process_after_that_many_steps(at: int, status: int) -> None:
    assert run_in_child(lambda: _tell(crash_at(at))) == status


def test_crash_strikes_once_and_hits_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, sign: killed.append((pid, sign)))
    _tell(crash_at(2), steps=4)
    assert killed == [(os.getpid(), signal.SIGKILL)]


def test_crash_counts_steps_of_all_datasets() -> None:
    def work() -> None:
        world = World()
        items = [(world.sequence(f"c{n}", urn=str(n)), world.epoch(str(n))) for n in range(3)]
        world.committer(listener=crash_at(3)).publish_all(items)

    assert run_in_child(work) == -signal.SIGKILL


def test_crash_before_the_first_step_is_refused() -> None:
    with pytest.raises(ValueError, match="counted from 1, got 0"):
        crash_at(0)
