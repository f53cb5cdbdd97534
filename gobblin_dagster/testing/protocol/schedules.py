"""Schedules: run the example once per fault point and action, and report what a user would have lost.

Each family starts from nothing, injects a fault into run A, checks the disk as it is, lets later runs recover and go on
with new data, checks again, and replays to see that nothing changes. Families yield one schedule after the other, so
that a search for a planted bug stops at the first that shows it. They are deterministic; sampled ones take a seed.
"""

from __future__ import annotations

import errno
import functools
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.core.watermark import CompositeWatermark
from gobblin_dagster.engine.commit.codec import decode_sequence
from gobblin_dagster.engine.commit.steps import RenameFileStep
from gobblin_dagster.testing import faults
from gobblin_dagster.testing.faults import (
    CRASHED,
    Action,
    Fault,
    FaultPoints,
    Halted,
    crash_after,
    crash_before,
    fail_with,
    freeze_while,
    halt_after,
    halt_before,
    is_look,
    lose_answer,
    run_in_child,
)
from gobblin_dagster.testing.protocol.harm import Harm, Violation
from gobblin_dagster.testing.protocol.invariants import Seen, check_instant, check_recovered, tree_digest
from gobblin_dagster.testing.protocol.scenario import FIRST_BATCH, JOB, SECOND_BATCH, Example

KILLS: dict[str, Action] = {"crash before": crash_before, "crash after": crash_after}
HALTS: dict[str, Action] = {"crash before": halt_before, "crash after": halt_after}
"""The same if a run is not a process of its own."""
ERRORS: dict[str, Action] = {
    "EIO": fail_with(errno.EIO),
    "ENOSPC": fail_with(errno.ENOSPC),
    "answer lost": lose_answer,
}
COMMITS = ("store.commit", "store.commit_all", "store.record")
"""Calls that move watermarks."""
NEAR = 7
"""Distance of two errors, in calls: what the run does about the first one begins in fewer."""
LATER = 1
MUCH_LATER = 2
"""Hours at which recovering and replaying runs start: all leases of earlier hours have expired."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """One schedule, and the invariants that it broke."""

    name: str
    violations: tuple[Violation, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The harm of many schedules."""

    schedules: int
    broken: tuple[Schedule, ...] = field(default=())

    @classmethod
    def of(cls, schedules: Iterable[Schedule]) -> Report:
        """Run all schedules."""
        done = list(schedules)
        return cls(len(done), tuple(schedule for schedule in done if schedule.violations))

    def count(self, harm: Harm) -> int:
        """Return the number of schedules that did that harm."""
        return sum(any(violation.harm is harm for violation in schedule.violations) for schedule in self.broken)

    def __str__(self) -> str:
        harms = ", ".join(f"{self.count(harm)} {harm}" for harm in Harm)
        examples = "".join(f"\n  {s.name}: {v.harm}: {v.detail}" for s in self.broken[:5] for v in s.violations[:2])
        return f"{self.schedules} schedules: {harms}{examples}"


def trace_of(example: Example) -> list[str]:
    """Return the names of all fault points of an undisturbed run A."""
    example.reset()
    points = FaultPoints()
    run_a(example, points)
    return points.trace


def instants(example: Example) -> Iterator[Schedule]:
    """Check at every call of two runs without faults, as a reader who polls all the time."""
    example.reset()
    found: list[Schedule] = []
    seen: Seen = {}

    def watch(number: int, name: str) -> None:
        nonlocal seen
        violations, seen = check_instant(example, seen)
        found.append(Schedule(f"instant {number} {name}", tuple(violations)))

    for runner, ends, hour in (("A", FIRST_BATCH, 0), ("B", SECOND_BATCH, LATER)):
        example.run(runner, ends, hour=hour, points=FaultPoints(watch=watch))
    yield from found
    yield Schedule("end", tuple(check_recovered(example, SECOND_BATCH, seen)))


def kills(example: Example) -> Iterator[Schedule]:
    """Kill run A before its first call and after each that changes something: no kill leaves another disk."""
    trace = trace_of(example)
    for number, action in faults.kills(trace):
        what = next(what for what, kill in KILLS.items() if kill is action)
        example.reset()
        kill(example, "A", number, what)
        yield recovered(example, f"{what} {number} {trace[number - 1]}")


def errors(example: Example) -> Iterator[Schedule]:
    """Let each call of run A fail, once before it is made and once with its answer lost."""
    for number, name in enumerate(trace_of(example), 1):
        for what, action in errors_of(name):
            example.reset()
            run_a(example, FaultPoints(Fault(number, action)))
            yield recovered(example, f"{what} {number} {name}")


def errors_of(name: str) -> Iterable[tuple[str, Action]]:
    """Return the errors that a call can end in: one that only looks fills no disk, and has no answer to be lost."""
    return ERRORS.items() if not is_look(name) else [("EIO", ERRORS["EIO"])]


def late_errors(example: Example) -> Iterator[Schedule]:
    """Let each call of run A after its COMMIT fail while the run lives, and each two that are near each other.

    The next run finds nothing new to publish.
    """
    trace = trace_of(example)
    committed = next(number for number, name in enumerate(trace, 1) if name in COMMITS)
    for number, name in enumerate(trace[committed:], committed + 1):
        for what, action in errors_of(name):
            example.reset()
            run_a(example, FaultPoints(Fault(number, action)))
            yield recovered(example, f"{what} {number} {name}, then an idle run", ends=FIRST_BATCH)
    for first in range(committed + 1, len(trace)):
        for second in range(first + 1, first + NEAR):
            example.reset()
            run_a(example, FaultPoints(Fault(first, ERRORS["EIO"]), Fault(second, ERRORS["EIO"])))
            yield recovered(example, f"EIO {first} and {second}, then an idle run", ends=FIRST_BATCH)


def freezes(example: Example) -> Iterator[Schedule]:
    """Freeze run A before each call until its lease has expired and run B has finished; then let A go on."""
    for number, name in enumerate(trace_of(example), 1):
        example.reset()
        freeze = freeze_while(functools.partial(example.run, "B", SECOND_BATCH, hour=LATER))
        run_a(example, FaultPoints(Fault(number, freeze)))
        yield recovered(example, f"freeze {number} {name}", runner="C", hour=MUCH_LATER)


def freezes_of_one(example: Example) -> Iterator[Schedule]:
    """Freeze run A before each call until run B has taken over and finished its last dataset; then let A go on.

    A may lose this dataset only: it must have committed the others when it ends.
    """
    for number, name in enumerate(trace_of(example), 1):
        example.reset()
        other = functools.partial(example.run, "B", SECOND_BATCH, hour=LATER, urns=example.urns[-1:])
        run_a(example, FaultPoints(Fault(number, freeze_while(other))))
        left = _uncommitted(example, example.urns[:-1])
        found = recovered(example, f"freeze {number} {name} for one dataset", runner="C", hour=MUCH_LATER)
        yield Schedule(found.name, (*left, *found.violations))


def _uncommitted(example: Example, urns: Sequence[str]) -> list[Violation]:
    """Return a violation for each dataset of which the first batch is not committed."""
    store = example.open_store()
    try:
        states = store.load_dataset_states(JOB, urns)
    finally:
        example.close_store(store)
    committed = {urn for urn, state in states.items() if state.watermark == CompositeWatermark(FIRST_BATCH)}
    return [
        Violation(Harm.STUCK, f"{urn} is not committed, and no run took it over")
        for urn in urns
        if urn not in committed
    ]


def frozen_pairs(example: Example, *, seed: int = 0, samples: int = 0) -> Iterator[Schedule]:
    """Freeze run A at a call, kill run B at a call of its own, let A go on, recover with C.

    All pairs of calls, or `samples` random ones.
    """
    for first, second, (what,) in _pairs(example, seed, samples, kills=1):
        example.reset()
        other = functools.partial(kill, example, "B", second, what, hour=LATER, is_nested=True)
        run_a(example, FaultPoints(Fault(first, freeze_while(other))))
        yield recovered(example, f"freeze {first} while B: {what} {second}", runner="C", hour=MUCH_LATER)


def late_movers(example: Example) -> Iterator[Schedule]:
    """Freeze run A before its moves; let it do them all before each call of the run that recovers after it."""
    first = trace_of(example).index("storage.make_dirs") + 1
    count = 1
    number = 0
    while number < count:
        number += 1
        example.begin_after("killed", functools.partial(kill, example, "A", first, "crash before"))
        moves = _moves_of(example)
        watch = functools.partial(_move_at, example, number, moves)
        points = FaultPoints(watch=watch)
        with suppress(GobblinDagsterError, OSError):
            example.run("B", SECOND_BATCH, hour=LATER, points=points)
        count = len(points.trace)
        yield recovered(example, f"late moves at {number} {points.trace[number - 1]}", runner="C", hour=MUCH_LATER)


def killed_pairs(example: Example, *, seed: int = 0, samples: int = 0) -> Iterator[Schedule]:
    """Kill run A at a call, and the run that recovers after it too; all pairs, or `samples` random ones."""
    for first, second, (one, two) in _pairs(example, seed, samples, kills=2):
        example.reset()
        kill(example, "A", first, one)
        # The lease of a dead process can be taken over at once.
        kill(example, "A2", second, two, hour=LATER if example.halts else 0)
        yield recovered(example, f"{one} {first}, then {two} {second}", hour=MUCH_LATER)


def _pairs(example: Example, seed: int, samples: int, kills: int) -> Iterable[tuple[int, int, tuple[str, ...]]]:
    """Return (call of the first run, call of the second, kinds of kills)."""
    points = range(1, len(trace_of(example)) + 1)
    if not samples:
        return itertools.product(points, points, itertools.product(KILLS, repeat=kills))
    rng = random.Random(seed)  # noqa: S311  # a schedule, not a secret
    return [(rng.choice(points), rng.choice(points), tuple(rng.choices(list(KILLS), k=kills))) for _ in range(samples)]


def _moves_of(example: Example) -> list[tuple[str, str]]:
    """Return (source, target) of each step of the only prepared sequence."""
    store = example.open_store()
    try:
        (stored,) = store.load_sequences(JOB)
        steps = decode_sequence(stored, store.places).steps
    finally:
        example.close_store(store)
    return [(step.source, step.target) for step in steps if isinstance(step, RenameFileStep)]


def _move_at(example: Example, at: int, moves: list[tuple[str, str]], number: int, name: str) -> None:
    for source, target in moves if number == at else ():
        with suppress(OSError):
            example.setup.over(example.storage).move(source, target)


def run_a(example: Example, points: FaultPoints, storage: Storage | None = None) -> None:
    """Run A in this process; its errors are ignored."""
    with suppress(GobblinDagsterError, OSError, Halted):
        example.run("A", FIRST_BATCH, points=points, storage=storage, rebooted=storage is not None)


def kill(example: Example, runner: str, number: int, what: str, hour: int = 0, *, is_nested: bool = False) -> None:
    """Kill a run at a call; a run with fewer calls succeeds or ends with an error of its own.

    Args:
        example: says whether runs are processes.
        runner: name of the run.
        number: number of the call.
        what: a key of `KILLS`.
        hour: hour at which the run begins.
        is_nested: True if another run is in the middle of its work in this process.
    """
    action = (HALTS if example.halts else KILLS)[what]
    points = FaultPoints(Fault(number, action))

    def work() -> None:
        if is_nested and not example.halts:
            example.forget_connections()
        with suppress(GobblinDagsterError, OSError, Halted):
            example.run(runner, FIRST_BATCH, hour=hour, points=points)

    if example.halts:
        work()
        return
    status = run_in_child(work)
    if status not in {0, CRASHED}:
        raise AssertionError(f"run {runner} ended with exit status {status}; its traceback is on standard error")


def recovered(
    example: Example,
    name: str,
    runner: str = "B",
    hour: int = LATER,
    storage: Storage | None = None,
    ends: Mapping[str, int] = SECOND_BATCH,
) -> Schedule:
    """Check the disk as it is, let a run recover and read new data up to `ends`, check, replay, compare.

    Faults often leave the same disk, byte for byte. What is found there depends on nothing else, so it is looked for
    once; the disk is then left as it is.
    """
    digest = example.disk_digest() if storage is None else None
    if digest is None:
        return Schedule(name, tuple(_check_recover_replay(example, runner, hour, storage, ends)))
    done = f"{digest} {runner} {hour} {ends} {example.clock.now()}"
    if done not in example.found:
        example.found[done] = tuple(_check_recover_replay(example, runner, hour, None, ends))
    return Schedule(name, example.found[done])


def _check_recover_replay(
    example: Example, runner: str, hour: int, storage: Storage | None, ends: Mapping[str, int]
) -> Iterator[Violation]:
    violations, seen = check_instant(example)
    yield from violations
    steps: list[tuple[str, Callable[[], object]]] = [
        ("recovery", functools.partial(example.run, runner, ends, hour=hour, storage=storage)),
        ("replay", functools.partial(example.run, "D", ends, hour=hour + 1, storage=storage)),
    ]
    before = ""
    for what, run in steps:
        try:
            run()
        except (GobblinDagsterError, OSError) as error:
            yield Violation(Harm.STUCK, f"{what} failed: {error}")
            return
        yield from check_recovered(example, ends, seen)
        after = tree_digest(example)
        if before and after != before:
            yield Violation(Harm.DUPLICATED, "a replay changed published bytes or state")
        before = after
