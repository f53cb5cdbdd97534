"""Strike a piece of work at each of its operations, each time in a process of its own."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.project import Project
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state import StateStore
from gobblin_dagster.testing.faults import (
    CRASHED,
    Action,
    Fault,
    FaultPoints,
    counted_storage,
    counted_store,
    crash_after,
    crash_before,
    fail_with,
    is_look,
    lose_answer,
    run_in_child,
)

KILL, EIO, ANSWER_LOST = "kill", "EIO", "answer lost"
FAULTS = (KILL, EIO, ANSWER_LOST)
_ACTIONS: dict[str, Action] = {KILL: crash_after, EIO: fail_with(errno.EIO), ANSWER_LOST: lose_answer}
_EVERY_CALL = 1_000_000

Work = Callable[[Project], object]


def copies_of(template: Path) -> tuple[Path, Callable[[], None]]:
    """Return a folder to work in, and what brings it back to how the template is now."""
    root = template.with_name(f"copy-of-{template.name}")

    def restore() -> None:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(template, root)

    return root, restore


class FaultyProject(Project):
    """A project whose storage and store pass fault points."""

    points = FaultPoints()

    def storage(self, job: JobSpec) -> Storage:
        return counted_storage(super().storage(job), self.points)

    def open_store(self) -> StateStore:
        return counted_store(super().open_store(), self.points)


@contextmanager
def counted(points: FaultPoints) -> Iterator[None]:
    """Make the stores and storages of all projects fault points."""
    open_store, storage = Project.open_store, Project.storage

    def counted_open(self: Project) -> StateStore:
        return counted_store(open_store(self), points)

    def counted_files(self: Project, job: JobSpec) -> Storage:
        return counted_storage(storage(self, job), points)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Project, "open_store", counted_open)
        patch.setattr(Project, "storage", counted_files)
        yield


def strike_each_operation(
    opened: Callable[[], Project], work: Work, fault: str = KILL, *, kind: str = ""
) -> Iterator[int]:
    """Strike one operation after the other; yield the number of each, and 0 once there was none left to strike.

    Kills and lost answers strike before the first operation and after each that changes something: those that only look
    leave nothing else on disk. An error of the disk strikes each. With a `kind` such as `store.`, only operations whose
    names begin with it are struck.
    """
    if fault == KILL:
        yield strike(opened, 1, crash_before, work)
    number = 0
    while number := strike(opened, number + 1, _ACTIONS[fault], work, skips_looks=fault != EIO, kind=kind):
        yield number
    yield 0


def strike(
    opened: Callable[[], Project],
    number: int,
    action: Action,
    work: Work,
    *,
    skips_looks: bool = False,
    kind: str = "",
) -> int:
    """Do work in a child and let a fault strike its operation `number`, or the first later one that is no look.

    Returns:
        The number of the operation struck, 0 if there were not so many.
    """
    reader, writer = os.pipe()

    def act(name: str, call: Callable[[], Any]) -> Any:
        if struck or (skips_looks and is_look(name)) or not name.startswith(kind):
            return call()
        struck.append(name)
        os.write(writer, str(len(points.trace)).encode())
        return action(name, call)

    struck: list[str] = []
    points = FaultPoints(Fault(number, act, calls=_EVERY_CALL))

    def faulty() -> None:
        with counted(points), suppress(GobblinDagsterError, OSError):
            work(opened())

    status = run_in_child(faulty)
    os.close(writer)
    found = int(os.read(reader, 16) or 0)
    os.close(reader)
    assert status in {0, CRASHED}
    return found
