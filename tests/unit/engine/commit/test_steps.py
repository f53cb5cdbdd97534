from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from gobblin_dagster.core.commit import CommitStep
from gobblin_dagster.core.errors import CorruptRecordError, StagedFileLostError, StepRefusedError, UsageError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.commit.steps import RenameFileStep, register_commit_step, step_from_json, step_to_json
from gobblin_dagster.storage import MemoryStorage

CONTENT = b"three rows"
STEP = RenameFileStep("/s/f", "/t/c1-f", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


def _storage(**files: bytes) -> MemoryStorage:
    """Hold files by the names `source` and `target`."""
    storage = MemoryStorage()
    for folder in ("/s", "/t"):
        storage.make_dirs(folder)
    for name, content in files.items():
        storage.put_if_absent({"source": STEP.source, "target": STEP.target}[name], content)
    return storage


def test_execute_moves_the_file() -> None:
    storage = _storage(source=CONTENT)
    assert not STEP.verify(storage)
    STEP.execute(storage)
    assert STEP.verify(storage)
    assert storage.size(STEP.source) is None


@pytest.mark.parametrize("files", [{"target": CONTENT}, {"target": CONTENT, "source": CONTENT}])
def test_execute_where_another_process_was_faster_does_nothing(files: Mapping[str, bytes]) -> None:
    storage = _storage(**files)
    STEP.execute(storage)
    assert storage.read(STEP.target) == CONTENT


@pytest.mark.parametrize("other", [b"short", b"three ROWS"], ids=["other size", "other bytes"])
@pytest.mark.parametrize("with_source", [True, False])
def test_execute_never_replaces_another_file(other: bytes, with_source: bool) -> None:
    storage = _storage(target=other, **({"source": CONTENT} if with_source else {}))
    with pytest.raises(StepRefusedError, match="holds other bytes"):
        STEP.execute(storage)
    assert storage.read(STEP.target) == other


def test_execute_without_source_and_target_reports_the_loss() -> None:
    with pytest.raises(StagedFileLostError, match="/s/f is gone, and /t/c1-f is not published"):
        STEP.execute(_storage())


def test_execute_refuses_a_source_of_another_size() -> None:
    with pytest.raises(StagedFileLostError, match="has 5 bytes that are not the 10"):
        STEP.execute(_storage(source=b"three"))


def test_source_that_vanishes_between_the_look_and_the_move_is_lost() -> None:
    class Racing(MemoryStorage):
        def move(self, source: str, target: str) -> None:
            self.delete(source)
            super().move(source, target)

    storage = Racing()
    storage.make_dirs("/t")
    storage.put_if_absent(STEP.source, CONTENT)
    with pytest.raises(StagedFileLostError):
        STEP.execute(storage)


def test_check_content_finds_a_source_damaged_without_change_of_size() -> None:
    STEP.check_content(_storage(source=CONTENT))
    with pytest.raises(StagedFileLostError):
        STEP.check_content(_storage(source=b"three ROWS"))


def test_verify_survives_a_target_that_vanishes_while_it_is_read() -> None:
    class Vanishing(MemoryStorage):
        def sha256(self, path: str) -> str:
            raise FileNotFoundError(path)

    storage = Vanishing()
    storage.put_if_absent(STEP.target, CONTENT)
    assert not STEP.verify(storage)


def test_step_survives_json() -> None:
    assert step_from_json(step_to_json(STEP)) == STEP
    assert STEP.describe() == "rename /s/f to /t/c1-f (10 bytes)"


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ("rename", "expected an object"),
        ({"type": "teleport", "version": 1}, "'teleport' version 1 is not registered"),
        ({**step_to_json(STEP), "version": 2}, "version 2 is not registered"),
        ({"type": "rename_file", "version": 1, "source": "/s"}, "target"),
        ({**step_to_json(STEP), "size_bytes": "ten"}, "invalid literal"),
    ],
)
def test_unreadable_step_is_refused(raw: Any, problem: str) -> None:
    with pytest.raises(CorruptRecordError, match=problem):
        step_from_json(raw)


@dataclass(frozen=True)
class MarkStep:
    """A step as a user's package may bring it: leaves a mark."""

    path: str
    type_name: ClassVar[str] = "test_mark"
    version: ClassVar[int] = 1

    def verify(self, storage: Storage) -> bool:
        return storage.size(self.path) is not None

    def execute(self, storage: Storage) -> None:
        storage.put_if_absent(self.path, b"done")

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> MarkStep:
        return cls(fields["path"])

    def describe(self) -> str:
        return f"mark {self.path}"


register_commit_step(MarkStep)


def test_registered_step_is_loaded() -> None:
    step: CommitStep = MarkStep("/lake/mark")
    assert step_from_json(step_to_json(step)) == step
    assert register_commit_step(MarkStep) is MarkStep


def test_second_class_of_a_name_is_refused() -> None:
    class Impostor(MarkStep):
        pass

    with pytest.raises(UsageError, match=r"'test_mark' version 1 is already registered by .*MarkStep"):
        register_commit_step(Impostor)


def test_class_without_loader_is_refused() -> None:
    class Unloadable:
        type_name: ClassVar[str] = "test_unloadable"
        version: ClassVar[int] = 1

        def verify(self, storage: Storage) -> bool:
            return True

        def execute(self, storage: Storage) -> None:
            return

        def to_json(self) -> dict[str, Any]:
            return {}

        def describe(self) -> str:
            return "nothing"

    with pytest.raises(UsageError, match="has no from_json"):
        register_commit_step(Unloadable)
