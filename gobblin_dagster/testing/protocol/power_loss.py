"""Schedules of disk faults: power losses, torn writes, failed syncs."""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from gobblin_dagster.testing.faults import Action, Fault, FaultPoints, fail_with, halt_before, is_look, tear
from gobblin_dagster.testing.protocol.power_loss_schedules import PowerLossStorage, losses, save_image
from gobblin_dagster.testing.protocol.scenario import Example
from gobblin_dagster.testing.protocol.schedules import Schedule, recovered, run_a, trace_of

TORN: dict[str, Action] = {
    f"{what} after {part} of the bytes": tear(share, then)
    for part, share in (("none", 0.0), ("half", 0.5), ("all but one", 1.0))
    for what, then in (("crash", halt_before), ("ENOSPC", fail_with(errno.ENOSPC)))
}
WRITES = ("write", "put_if_absent")
SYNCS = ("finish", "sync_dir", "make_dirs", "make_all_dirs", "put_if_absent")
"""Calls of storages and sinks after which something must be durable."""


def torn_writes(example: Example) -> Iterator[Schedule]:
    """End each write of run A after part of its bytes: with the run, or with an error that it sees."""
    for number, name in enumerate(trace_of(example), 1):
        for what, action in TORN.items() if name.endswith(WRITES) else ():
            example.reset()
            run_a(example, FaultPoints(Fault(number, action)))
            yield recovered(example, f"{what} of {number} {name}")


def power_losses(example: Example, *, seed: int, limit: int = 256) -> Iterator[Schedule]:
    """Cut the power before each call of run A, with every set of unsynced changes undone (or `limit` random sets).

    After a call that only looks or syncs, no disk is left that could not be left before it.
    """
    example.reset()
    storage = PowerLossStorage()
    images = _Images(example, random.Random(seed), limit)  # noqa: S311  # a schedule, not a secret
    before = ""

    def watch(number: int, name: str) -> None:
        nonlocal before
        if not is_look(before):
            images.save(f"power {number} {name}", storage)
        before = name

    run_a(example, FaultPoints(watch=watch), storage)
    images.save("power 0 end", storage)
    yield from images.recovered()


def failed_syncs(example: Example, *, seed: int, limit: int = 4) -> Iterator[Schedule]:
    """Let each sync of run A fail, the run react to it, and then the power be lost with what was never synced."""
    rng = random.Random(seed)  # noqa: S311  # a schedule, not a secret
    for number, name in enumerate(trace_of(example), 1):
        if not name.endswith(SYNCS) or name.startswith("store."):
            continue
        example.reset()
        storage = PowerLossStorage()
        images = _Images(example, rng, limit)
        run_a(example, FaultPoints(Fault(number, fail_with(errno.EIO))), storage)
        images.save(f"failed sync {number} {name}, power", storage)
        yield from images.recovered()


class _Images:
    """Copies of an example's disk, each without a part of the unsynced changes."""

    def __init__(self, example: Example, rng: random.Random, limit: int) -> None:
        self._example = example
        self._rng = rng
        self._limit = limit
        self._folder = example.root.with_name(f"{example.root.name}-images")
        self._names: list[str] = []
        shutil.rmtree(self._folder, ignore_errors=True)

    def save(self, name: str, storage: PowerLossStorage) -> None:
        """Save an image for each set of changes that a power loss may undo now."""
        for lost in losses(storage.unsynced, self._rng, self._limit):
            try:
                save_image(self._example.root, self._folder / str(len(self._names)), lost)
            except OSError as error:  # of the test, which the run must not take for one of its own
                raise AssertionError(f"Cannot save the disk of {name}.") from error
            undone = ", ".join(f"{change.kind} {Path(change.path).name[-8:]}" for change in lost)
            self._names.append(f"{name} without [{undone}]")

    def recovered(self) -> Iterator[Schedule]:
        """Let a run recover on each of them."""
        for index, name in enumerate(self._names):
            shutil.rmtree(self._example.root)
            (self._folder / str(index)).rename(self._example.root)
            yield recovered(self._example, name)
        shutil.rmtree(self._folder)
