"""Storms: random schedules of two to four runners under mixed faults, each drawn from a seed and nothing else.

A runner may be killed, get errors or lose answers, be frozen while another runs, or lose its power. A runner is a forked
child, so that a kill is the end of a process. After the last one a run recovers, and a replay must change nothing.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal, NoReturn

from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.storage import LocalStorage
from gobblin_dagster.testing.example import FIRST_BATCH, SECOND_BATCH, START, Example
from gobblin_dagster.testing.faults import CRASHED, Action, Call, Fault, FaultPoints, freeze_while, run_in_child
from gobblin_dagster.testing.power import PowerLossStorage
from gobblin_dagster.testing.schedules import ERRORS, KILLS, Schedule, recovered

StorageKind = Literal["rename", "copy"]
"""How the storage moves: as a file system does, or by copies as an object store does."""
LONGEST_RUN = 75
"""Calls of a run that recovers another and publishes a batch of its own, about."""
MOST_ERRORS = 2
"""In one storm; a third failed redo would rightly end in quarantine, which is no recovery to compare."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one runner does, and what it meets."""

    runner: str
    hour: int
    ends: tuple[tuple[str, int], ...]
    strikes: tuple[tuple[int, str], ...]
    """(number of a call, fault): a kill, an error, or `power`."""
    meanwhile: tuple[int, Turn] | None = field(default=None)
    """The call before which this runner is frozen, and who works until it thaws."""

    def __str__(self) -> str:
        met = [f"{what} {number}" for number, what in self.strikes]
        if self.meanwhile is not None:
            met.append(f"frozen at {self.meanwhile[0]} during ({self.meanwhile[1]})")
        return f"{self.runner}@{self.hour}: {', '.join(met) or 'no fault'}"


def draw(seed: int, storage: StorageKind = "rename") -> tuple[Turn, ...]:
    """Return the storm of a seed: the turns that follow one another."""
    rng = random.Random(f"{storage} {seed}")  # noqa: S311  # a schedule, not a secret
    turns: list[Turn] = []
    hour = errors = 0
    runners = rng.randint(2, 4)
    for number in range(1, runners + 1):
        strikes: dict[int, str] = {}
        for _ in range(rng.choice((0, 1, 1, 2))):
            what = rng.choice([*KILLS, *ERRORS, *(["power"] if storage == "rename" else [])])
            errors += what in ERRORS
            if what not in ERRORS or errors <= MOST_ERRORS:
                strikes[rng.randint(1, LONGEST_RUN)] = what
        hour += rng.randint(0, 1)
        ends = FIRST_BATCH if hour == 0 else SECOND_BATCH
        turn = Turn(f"r{number}", hour, tuple(ends.items()), tuple(sorted(strikes.items())))
        # What another runner synced meanwhile, a power loss of the frozen one would not take: not modelled.
        frozen = bool(turns) and rng.random() < 0.5 and "power" not in dict(turns[-1].strikes).values()
        if frozen and "power" not in strikes.values():
            before = turns.pop()
            turn = _freeze_last(before, rng.randint(1, LONGEST_RUN), turn)
        turns.append(turn)
    return tuple(turns)


def _freeze_last(turn: Turn, at: int, other: Turn) -> Turn:
    """Return the turn with the innermost of its runners frozen while another works."""
    if turn.meanwhile is None:
        inner = other
    else:
        at, inner = turn.meanwhile[0], _freeze_last(turn.meanwhile[1], at, other)
    return Turn(turn.runner, turn.hour, turn.ends, turn.strikes, (at, inner))


def storms(example: Example, seeds: Iterable[int], storage: StorageKind = "rename") -> Iterator[Schedule]:
    """Let each storm pass over an example of its own, recover, check and replay."""
    for seed in seeds:
        turns = draw(seed, storage)
        example.reset()
        for turn in turns:
            _fork(example, turn, storage, is_nested=False)
        last = max(map(_last_hour, turns))
        name = f"seed {seed}: {'; '.join(map(str, turns))}"
        yield recovered(example, name, runner="Y", hour=last + 1, storage=_storage(storage))


def _last_hour(turn: Turn) -> int:
    return turn.hour if turn.meanwhile is None else max(turn.hour, _last_hour(turn.meanwhile[1]))


def _fork(example: Example, turn: Turn, storage: StorageKind, *, is_nested: bool) -> None:
    def work() -> None:
        if is_nested:  # the frozen runner's connections are not ours
            example.forget_connections()
        _play(example, turn, storage)

    status = run_in_child(work)
    if status not in {0, CRASHED}:
        raise AssertionError(f"{turn} ended with exit status {status}; its traceback is on standard error")
    example.clock.instant = max(example.clock.instant, START + timedelta(hours=_last_hour(turn)))


def _play(example: Example, turn: Turn, kind: StorageKind) -> None:
    loses_power = any(what == "power" for _, what in turn.strikes)
    storage = PowerLossStorage() if loses_power else _storage(kind)
    actions: dict[str, Action] = {**KILLS, **ERRORS}
    if isinstance(storage, PowerLossStorage):
        actions["power"] = _power_cut(storage, seed=f"{turn}")
    faults = [Fault(number, actions[what]) for number, what in turn.strikes]
    if turn.meanwhile is not None:
        at, other = turn.meanwhile
        faults.append(Fault(at, freeze_while(lambda: _fork(example, other, kind, is_nested=True))))
    with suppress(GobblinDagsterError, OSError):
        example.run(
            turn.runner,
            dict(turn.ends),
            hour=turn.hour,
            points=FaultPoints(*faults),
            storage=storage,
            rebooted=loses_power,
        )


def _power_cut(storage: PowerLossStorage, seed: str) -> Action:
    """Return an action that undoes some of what was not synced, on the disk itself, and ends the process."""
    rng = random.Random(seed)  # noqa: S311  # a schedule, not a secret

    def cut(name: str, call: Call) -> NoReturn:
        for change in reversed([change for change in storage.unsynced if rng.random() < 0.5]):
            change.undo(Path)
        os._exit(CRASHED)

    return cut


def _storage(kind: StorageKind) -> LocalStorage:
    return LocalStorage() if kind == "rename" else CopyingStorage()


class CopyingStorage(LocalStorage):
    """Moves by copying and deleting, as a store of objects does; what another runner copies may arrive late."""

    def __init__(self) -> None:
        super().__init__()
        self.is_move_atomic = False

    def move(self, source: str, target: str) -> None:
        if not self.put_if_absent(target, self.read(source)):
            raise FileExistsError(target)
        self.delete(source)
