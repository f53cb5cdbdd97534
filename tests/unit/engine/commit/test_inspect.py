"""Files and store show which steps of a sequence are done, not its record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gobblin_dagster.core.commit import CommitSequence
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.engine.commit.inspect import StepStatus, inspect_progress, inspect_steps
from gobblin_dagster.state.files.store import FileStateStore
from gobblin_dagster.storage import MemoryStorage
from gobblin_dagster.testing.conformance.state_store.values import JOB, START, URN, publish


@dataclass(frozen=True)
class Known:
    """A step that is done, not done, or unknown."""

    is_done: bool | None
    type_name: ClassVar[str] = "test_known"
    version: ClassVar[int] = 1

    def verify(self, storage: Storage) -> bool:
        if self.is_done is None:
            raise OSError("nobody answers")
        return self.is_done

    def execute(self, storage: Storage) -> None:
        raise AssertionError("who looks does nothing")

    def to_json(self) -> dict[str, Any]:
        return {}

    def describe(self) -> str:
        return f"step {self.is_done}"


def sequence(high: int) -> CommitSequence:
    ranges = CommittedRanges(LongWatermark, {"": ((0, high),)})
    return CommitSequence.to(DatasetState(JOB, URN, 1, ranges, 1, "run-1", START), commit_id="c", output_root="/lake")


def test_each_step_is_done_not_done_or_not_to_be_found_out() -> None:
    steps = (Known(True), Known(False), Known(None))
    found = list(inspect_steps(replace(sequence(10), steps=steps), MemoryStorage()))
    assert found == [StepStatus(f"step {is_done}", is_done) for is_done in (True, False, None)]


def test_watermark_and_manifest_are_looked_up_where_they_are() -> None:
    storage = MemoryStorage()
    store = FileStateStore("/state", storage)
    publish(store, "one")  # commits [0, 10)
    (reached,) = inspect_progress(sequence(10), store, storage)
    (missed,) = inspect_progress(sequence(11), store, storage)
    assert (reached.is_done, missed.is_done) == (True, False)
    assert "watermark" in reached.step
    _, manifest = inspect_progress(replace(sequence(10), removed=("/lake/old",)), store, storage)
    assert (manifest.is_done, "manifest" in manifest.step) == (False, True)
