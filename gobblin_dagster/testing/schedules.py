"""Schedules: runs the example once per fault point and action, and tells what a user would have lost.

Each family starts from nothing, lets run A meet a fault, checks the disk as it lies, lets later runs recover and go on
with new data, checks again, and replays to see that nothing changes. Families yield one schedule after the other, so that
a search for a planted bug stops at the first that shows it. They are deterministic; what is sampled takes a seed.
"""

from __future__ import annotations

import errno
import functools
import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.engine.commit.steps import RenameFileStep
from gobblin_dagster.storage import LocalStorage
from gobblin_dagster.testing.checkers import Harm, Seen, Violation, check_instant, check_recovered, tree_digest
from gobblin_dagster.testing.example import FIRST_BATCH, JOB, SECOND_BATCH, Example
from gobblin_dagster.testing.faults import (
    CRASHED,
    Action,
    Fault,
    FaultPoints,
    crash_after,
    crash_before,
    fail_with,
    freeze_while,
    lose_answer,
    run_in_child,
)
from gobblin_dagster.testing.power import PowerLossStorage, losses, save_image

KILLS: dict[str, Action] = {"crash before": crash_before, "crash after": crash_after}
ERRORS: dict[str, Action] = {
    "EIO": fail_with(errno.EIO),
    "ENOSPC": fail_with(errno.ENOSPC),
    "answer lost": lose_answer,
}
LATER = 1
MUCH_LATER = 2
"""Hours at which recovering and replaying runs start: all leases of earlier hours have expired."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """One way that things went, and what it broke."""

    name: str
    violations: tuple[Violation, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What many schedules did to the records."""

    schedules: int
    broken: tuple[Schedule, ...] = field(default=())

    @classmethod
    def of(cls, schedules: Iterable[Schedule]) -> Report:
        """Run all schedules."""
        done = list(schedules)
        return cls(len(done), tuple(schedule for schedule in done if schedule.violations))

    def count(self, harm: Harm) -> int:
        """Return how many schedules did that harm."""
        return sum(any(violation.harm is harm for violation in schedule.violations) for schedule in self.broken)

    def __str__(self) -> str:
        harms = ", ".join(f"{self.count(harm)} {harm}" for harm in Harm)
        examples = "".join(f"\n  {s.name}: {v.harm}: {v.detail}" for s in self.broken[:5] for v in s.violations[:2])
        return f"{self.schedules} schedules: {harms}{examples}"


def trace_of(example: Example) -> list[str]:
    """Return the names of all fault points of an undisturbed run A."""
    example.reset()
    points = FaultPoints()
    _run_a(example, points)
    return points.trace


def instants(example: Example) -> Iterator[Schedule]:
    """Check at every instant of two undisturbed runs, as a reader who polls all the time does."""
    example.reset()
    found: list[Schedule] = []
    seen = Seen()

    def watch(number: int, name: str) -> None:
        nonlocal seen
        violations, seen = check_instant(example, seen)
        found.append(Schedule(f"instant {number} {name}", tuple(violations)))

    for runner, ends, hour in (("A", FIRST_BATCH, 0), ("B", SECOND_BATCH, LATER)):
        example.run(runner, ends, hour=hour, points=FaultPoints(watch=watch))
    yield from found
    yield Schedule("end", tuple(check_recovered(example, SECOND_BATCH, seen)))


def kills(example: Example) -> Iterator[Schedule]:
    """Kill run A before and after each call."""
    for number, name in enumerate(trace_of(example), 1):
        for what, action in KILLS.items():
            example.reset()
            _kill(example, "A", number, action)
            yield recovered(example, f"{what} {number} {name}")


def errors(example: Example) -> Iterator[Schedule]:
    """Let each call of run A fail, and let each be done with its answer lost."""
    for number, name in enumerate(trace_of(example), 1):
        for what, action in ERRORS.items():
            example.reset()
            _run_a(example, FaultPoints(Fault(number, action)))
            yield recovered(example, f"{what} {number} {name}")


def freezes(example: Example) -> Iterator[Schedule]:
    """Freeze run A before each call until its lease is over and run B has done all; then let A go on."""
    for number, name in enumerate(trace_of(example), 1):
        example.reset()
        freeze = freeze_while(functools.partial(example.run, "B", SECOND_BATCH, hour=LATER))
        _run_a(example, FaultPoints(Fault(number, freeze)))
        yield recovered(example, f"freeze {number} {name}", runner="C", hour=MUCH_LATER)


def frozen_pairs(example: Example, *, seed: int, samples: int) -> Iterator[Schedule]:
    """Freeze run A somewhere, let run B come to a call of its own and die there, let A go on, recover with C."""
    rng = random.Random(seed)  # noqa: S311  # a schedule, not a secret
    length = len(trace_of(example))
    for _ in range(samples):
        first, second = rng.randint(1, length), rng.randint(1, length)
        what, action = rng.choice(list(KILLS.items()))
        example.reset()
        other = functools.partial(_kill, example, "B", second, action, hour=LATER)
        _run_a(example, FaultPoints(Fault(first, freeze_while(other))))
        yield recovered(example, f"freeze {first} while B: {what} {second}", runner="C", hour=MUCH_LATER)


def late_movers(example: Example) -> Iterator[Schedule]:
    """Let run A freeze before its moves, and wake and do them all before each call of the run that recovers after it."""
    first = trace_of(example).index("storage.make_dirs") + 1
    count = 1
    number = 0
    while number < count:
        number += 1
        example.reset()
        _kill(example, "A", first, crash_before)
        moves = _moves_of(example)
        watch = functools.partial(_move_at, number, moves)
        points = FaultPoints(watch=watch)
        with suppress(GobblinDagsterError, OSError):
            example.run("B", SECOND_BATCH, hour=LATER, points=points)
        count = len(points.trace)
        yield recovered(example, f"late moves at {number} {points.trace[number - 1]}", runner="C", hour=MUCH_LATER)


def power_losses(example: Example, *, seed: int, limit: int = 256) -> Iterator[Schedule]:
    """Cut the power before each call of run A, with every set of unsynced changes undone (or `limit` random sets)."""
    images = example.root.with_name(f"{example.root.name}-images")
    shutil.rmtree(images, ignore_errors=True)
    example.reset()
    storage = PowerLossStorage()
    rng = random.Random(seed)  # noqa: S311  # a schedule, not a secret
    names: list[str] = []

    def watch(number: int, name: str) -> None:
        for lost in losses(storage.unsynced, rng, limit):
            save_image(example.root, images / str(len(names)), lost)
            undone = ", ".join(f"{change.kind} {Path(change.path).name[-8:]}" for change in lost)
            names.append(f"power {number} {name} without [{undone}]")

    with suppress(GobblinDagsterError):
        example.run("A", FIRST_BATCH, points=FaultPoints(watch=watch), storage=storage, rebooted=True)
    watch(0, "end")
    for index, name in enumerate(names):
        shutil.rmtree(example.root)
        (images / str(index)).rename(example.root)
        yield recovered(example, name)
    shutil.rmtree(images)


def killed_pairs(example: Example, *, seed: int, samples: int) -> Iterator[Schedule]:
    """Kill run A somewhere, and the run that recovers after it somewhere too."""
    rng = random.Random(seed)  # noqa: S311  # a schedule, not a secret
    length = len(trace_of(example))
    for _ in range(samples):
        first, second = rng.randint(1, length), rng.randint(1, length)
        (one, kill_one), (two, kill_two) = rng.choices(list(KILLS.items()), k=2)
        example.reset()
        _kill(example, "A", first, kill_one)
        _kill(example, "A2", second, kill_two)
        yield recovered(example, f"{one} {first}, then {two} {second}")


def _moves_of(example: Example) -> list[tuple[str, str]]:
    """Return (source, target) of each step of the only prepared sequence."""
    store = example.open_store()
    try:
        (stored,) = store.load_sequences(JOB)
        steps = decode_sequence(stored).steps
    finally:
        store.close()
    return [(step.source, step.target) for step in steps if isinstance(step, RenameFileStep)]


def _move_at(at: int, moves: list[tuple[str, str]], number: int, name: str) -> None:
    for source, target in moves if number == at else ():
        with suppress(OSError):
            LocalStorage().move(source, target)


def _run_a(example: Example, points: FaultPoints) -> None:
    """Run A in this process, whatever becomes of it."""
    with suppress(GobblinDagsterError, OSError):
        example.run("A", FIRST_BATCH, points=points)


def _kill(example: Example, runner: str, number: int, action: Action, hour: int = 0) -> None:
    """Run in a child that dies at a call; a run with fewer calls ends well or with an error of its own."""
    points = FaultPoints(Fault(number, action))

    def work() -> None:
        if hour:  # another run is in the middle of its work in this process
            example.forget_connections()
        with suppress(GobblinDagsterError):
            example.run(runner, FIRST_BATCH, hour=hour, points=points)

    status = run_in_child(work)
    if status not in {0, CRASHED}:
        raise AssertionError(f"run {runner} ended with exit status {status}; its traceback is on standard error")


def recovered(
    example: Example, name: str, runner: str = "B", hour: int = LATER, storage: Storage | None = None
) -> Schedule:
    """Check the disk as it lies, let a run recover and read what is new, check, replay, compare."""
    return Schedule(name, tuple(_check_recover_replay(example, runner, hour, storage)))


def _check_recover_replay(example: Example, runner: str, hour: int, storage: Storage | None) -> Iterator[Violation]:
    violations, seen = check_instant(example)
    yield from violations
    steps: list[tuple[str, Callable[[], object]]] = [
        ("recovery", functools.partial(example.run, runner, SECOND_BATCH, hour=hour, storage=storage)),
        ("replay", functools.partial(example.run, "D", SECOND_BATCH, hour=hour + 1, storage=storage)),
    ]
    before = ""
    for what, run in steps:
        try:
            run()
        except (GobblinDagsterError, OSError) as error:
            yield Violation(Harm.STUCK, f"{what} failed: {error}")
            return
        yield from check_recovered(example, SECOND_BATCH, seen)
        after = tree_digest(example)
        if before and after != before:
            yield Violation(Harm.DUPLICATED, "a replay changed published bytes or state")
        before = after
