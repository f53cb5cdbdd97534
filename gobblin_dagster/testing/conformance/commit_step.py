"""Tests that every commit step must pass: it may be killed anywhere, and run again by another process."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier

import pytest

from gobblin_dagster.core.commit import CommitStep
from gobblin_dagster.core.errors import StorageError, TransientError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.traits import StepTraits, traits_of
from gobblin_dagster.engine.commit.steps import register_commit_step, step_from_json, step_to_json
from gobblin_dagster.storage import MemoryStorage
from gobblin_dagster.testing.conformance.base import Conformance, to_override
from gobblin_dagster.testing.faults import Action, Fault, FaultPoints, Halted, counted_storage, halt_after, halt_before


class CommitStepConformance(Conformance):
    """Tests of a commit step.

    Example:
        ::

            class TestMark(CommitStepConformance):
                def prepare(self, storage: Storage) -> CommitStep:
                    storage.make_dirs("/lake")
                    return MarkStep("/lake/mark")
    """

    protocol = "gobblin_dagster.core.commit.CommitStep"
    root: str = "/"
    """Folder below which the step changes files; of a storage on a disk, that of the test alone."""

    def new_storage(self) -> Storage:
        """Return an empty storage; override it for a step that needs a real one."""
        return MemoryStorage()

    @pytest.fixture
    def storage(self) -> Storage:
        """Return the storage of a test."""
        return self.new_storage()

    def prepare(self, storage: Storage) -> CommitStep:
        """Put what the step works on into an empty storage, and return the step, not done yet; to be overridden."""
        to_override(self, "a method `prepare`", "a step that is not done yet")

    def stored(self, step: CommitStep) -> CommitStep:
        """Return a step as another process reads it from the store."""
        register_commit_step(type(step))
        return step_from_json(json.loads(json.dumps(step_to_json(step))))

    def contents(self, storage: Storage) -> dict[str, bytes]:
        """Return what lies below `root`, by path."""
        return {path: storage.read(path) for path in storage.walk_files(self.root)}

    def test_step_is_verified_once_it_is_done(self, storage: Storage) -> None:
        """`verify` is False before `execute` and True after it."""
        step = self.prepare(storage)
        assert step.verify(storage) is False
        step.execute(storage)
        assert step.verify(storage) is True

    def test_step_may_be_done_again(self, storage: Storage) -> None:
        """`execute` of a step that is done changes nothing and raises nothing."""
        step = self.prepare(storage)
        step.execute(storage)
        before = self.contents(storage)
        step.execute(storage)
        assert self.contents(storage) == before
        assert step.verify(storage)

    def test_step_is_stored_whole(self, storage: Storage) -> None:
        """`to_json` holds all that the step needs: read back in another process it is equal, and does the same."""
        step = self.prepare(storage)
        read = self.stored(step)
        assert read == step
        assert read.describe() == step.describe()
        read.execute(storage)
        assert step.verify(storage)

    def test_looking_changes_nothing(self, storage: Storage) -> None:
        """`verify` and `describe` change nothing."""
        step = self.prepare(storage)
        before = self.contents(storage)
        step.verify(storage)
        step.describe()
        assert self.contents(storage) == before

    def test_description_is_one_line(self, storage: Storage) -> None:
        """`describe` says in one line what the step does; plans and `gobblin commit show` print it."""
        described = self.prepare(storage).describe()
        assert described.strip()
        assert "\n" not in described

    def test_traits_are_values(self, storage: Storage) -> None:
        """Traits (`is_undoable`, `reads_staging`, `is_brief`, `output_paths`) are values of their types, no methods."""
        traits_of(self.prepare(storage), StepTraits)

    @pytest.mark.parametrize("end", [halt_before, halt_after], ids=["before", "after"])
    def test_step_that_was_killed_anywhere_is_finished(self, end: Action) -> None:
        """Killed at any operation on the storage, a step is finished by another process: `verify`, then `execute`."""
        for number in range(1, 1000):
            storage = self.new_storage()
            step = self.prepare(storage)
            points = FaultPoints(Fault(number, end))
            try:
                step.execute(counted_storage(storage, points))
            except Halted:
                pass
            else:
                assert number > 1 or not points.trace, "the fault at the first operation strikes"
                return
            read = self.stored(step)
            if not read.verify(storage):
                read.execute(storage)
            assert read.verify(storage), f"killed at operation {number}, {points.trace[-1]}"

    def test_two_processes_may_do_it_at_once(self, storage: Storage) -> None:
        """Two processes may execute a step at once: one may have to try later; the next call finds or does it."""
        step = self.prepare(storage)
        gate = Barrier(2)

        def execute(mine: CommitStep) -> None:
            gate.wait(timeout=120)
            with suppress(OSError, StorageError, TransientError):
                mine.execute(storage)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(execute, [step, self.stored(step)]))
        if not step.verify(storage):
            step.execute(storage)
        assert step.verify(storage)
