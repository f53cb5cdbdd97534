"""Publishing to a storage whose moves are copies."""

from __future__ import annotations

import itertools
import threading

import pytest

from gobblin_dagster.engine.commit import step_runner
from gobblin_dagster.storage import MemoryStorage
from tests.unit.engine.commit.world import World

THREADS = 3


class CopyingStorage(MemoryStorage):
    """Lets the first move through; of the others, so many must be under way at the same moment as there are threads."""

    def __init__(self) -> None:
        super().__init__()
        self.is_move_atomic = False
        self._numbers = itertools.count()
        self._together = threading.Barrier(THREADS)

    def move(self, source: str, target: str) -> None:
        if next(self._numbers):
            self._together.wait(timeout=120)
        super().move(source, target)


def test_copies_are_made_side_by_side_from_the_second_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_runner, "SLOW_STEP_S", 0)
    world = World(CopyingStorage())
    units = [world.unit(number=number, low=number, high=number + 1) for number in range(1 + 2 * THREADS)]
    sequence = world.sequence(units=units)
    assert world.committer(parallelism=THREADS).publish_all([(sequence, world.epoch())]) == {"a": None}
    assert len(list(world.storage.walk_files("/lake/main"))) == 1 + 2 * THREADS
