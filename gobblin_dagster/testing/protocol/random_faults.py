"""Random schedules of two to four runners with mixed faults; each depends only on its seed.

A runner may be killed, get errors, lose answers, have a write torn, be frozen while another runs, or lose its power.
After the last one, a run recovers, and a replay must change nothing. A killed runner is halted (`testing.faults`), so
no process ends and very many schedules can run.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.testing.faults import Action, Call, Fault, FaultPoints, Halted, freeze_while
from gobblin_dagster.testing.protocol.power_loss import TORN
from gobblin_dagster.testing.protocol.power_loss_schedules import PowerLossStorage, with_contents
from gobblin_dagster.testing.protocol.scenario import FIRST_BATCH, SECOND_BATCH, Example
from gobblin_dagster.testing.protocol.schedules import ERRORS, HALTS, Schedule, recovered
from gobblin_dagster.testing.protocol.storages import StorageKind

LONGEST_RUN = 75
"""Approximate number of calls of a run that recovers another and publishes a batch of its own."""
MOST_ERRORS = 2
"""Most failed redos in one schedule: a third would rightly end in quarantine, and then there is no recovery to
compare."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The faults of one runner."""

    runner: str
    hour: int
    ends: tuple[tuple[str, int], ...]
    strikes: tuple[tuple[int, str], ...]
    """(number of a call, fault): a kill, an error, a torn write if the call writes, or `power`."""
    meanwhile: tuple[int, Turn] | None = field(default=None)
    """The call before which this runner is frozen, and the runner that works until it goes on."""

    def __str__(self) -> str:
        met = [f"{what} {number}" for number, what in self.strikes]
        if self.meanwhile is not None:
            met.append(f"frozen at {self.meanwhile[0]} during ({self.meanwhile[1]})")
        return f"{self.runner}@{self.hour}: {', '.join(met) or 'no fault'}"


def draw(seed: int, storage: StorageKind = "local") -> tuple[Turn, ...]:
    """Return the schedule of a seed: the turns, one after the other."""
    rng = random.Random(f"{storage} {seed}")  # noqa: S311  # a schedule, not a secret
    turns: list[Turn] = []
    hour = errors = 0
    runners = rng.randint(2, 4)
    for number in range(1, runners + 1):
        strikes: dict[int, str] = {}
        for _ in range(rng.choice((0, 1, 1, 2))):
            what = rng.choice([*HALTS, *ERRORS, rng.choice(list(TORN)), *(["power"] if storage == "local" else [])])
            errors += what not in HALTS and what != "power"
            if what in HALTS or what == "power" or errors <= MOST_ERRORS:
                strikes[rng.randint(1, LONGEST_RUN)] = what
        hour += rng.randint(0, 1)
        ends = FIRST_BATCH if hour == 0 else SECOND_BATCH
        turn = Turn(f"r{number}", hour, tuple(ends.items()), tuple(sorted(strikes.items())))
        # A power loss of a frozen runner would not undo what another runner synced meanwhile; that is not modelled.
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


def storms(example: Example, seeds: Iterable[int]) -> Iterator[Schedule]:
    """Run each random schedule on an empty example, recover, check and replay."""
    for seed in seeds:
        turns = draw(seed, example.setup.kind)
        example.reset()
        for turn in turns:
            _play(example, turn)
        last = max(map(_last_hour, turns))
        yield recovered(example, f"seed {seed}: {'; '.join(map(str, turns))}", runner="Y", hour=last + 1)


def _last_hour(turn: Turn) -> int:
    return turn.hour if turn.meanwhile is None else max(turn.hour, _last_hour(turn.meanwhile[1]))


def _play(example: Example, turn: Turn) -> None:
    met = {what for _, what in turn.strikes}
    actions: dict[str, Action] = {**HALTS, **ERRORS, **TORN}
    storage = None
    if "power" in met:
        storage = PowerLossStorage()
        actions["power"] = _power_cut(storage, seed=f"{turn}")
    faults = [Fault(number, actions[what]) for number, what in turn.strikes]
    if turn.meanwhile is not None:
        at, other = turn.meanwhile
        faults.append(Fault(at, freeze_while(lambda: _play(example, other))))
    with suppress(GobblinDagsterError, OSError, Halted):
        example.run(
            turn.runner,
            dict(turn.ends),
            hour=turn.hour,
            points=FaultPoints(*faults),
            storage=storage,
            # A runner that will be killed counts as provably dead at once, which is harder for the protocol than the
            # real order.
            rebooted=bool(met & {*HALTS, "power"}),
        )


def _power_cut(storage: PowerLossStorage, seed: str) -> Action:
    """Return an action that undoes some unsynced changes on the disk itself, and ends the run."""
    rng = random.Random(seed)  # noqa: S311  # a schedule, not a secret

    def cut(name: str, call: Call) -> NoReturn:
        lost = [change for change in storage.unsynced if rng.random() < 0.5]
        for change in reversed(with_contents(lost, storage.unsynced)):
            change.undo(Path)
        raise Halted

    return cut
