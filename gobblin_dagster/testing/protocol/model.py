"""A model of the commit protocol, small enough to search every interleaving of two runners.

One dataset, batches of two files. Runners may crash at any step, leases expire while their holder lives, a power loss
undoes any subset of the unsynced renames, and staged files vanish. `search` visits every reachable state, breadth
first, so it returns a shortest counterexample for a broken protocol. `Rules` switches parts of the protocol off: the
search finds a counterexample without each of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from gobblin_dagster.core.utils.gc_pause import collector_paused

SOURCE = 1
"""Bit of a file: it is in staging."""
UNSYNCED = 2
"""Bit of a file: it is at its target, and a power loss may undo that."""
DURABLE = 4
"""Bit of a file: it is durably at its target."""
TARGET = UNSYNCED | DURABLE


@dataclass(frozen=True, slots=True)
class Rules:
    """The protocol's parts; the defaults are the protocol itself."""

    lease: bool = True
    """A run waits while another holds the lease."""
    epoch: bool = True
    """Every transaction requires the epoch of the lease."""
    cas: bool = True
    """PREPARE and COMMIT require the version that was read, PREPARE no unfinished sequence, COMMIT a prepared one."""
    fsync: bool = True
    """Folders of targets are synced before COMMIT."""
    unique_names: bool = True
    """Names of targets hold the commit id; without it, an existing file counts as moved."""
    sources_first: bool = True
    """Undoing deletes sources before targets."""
    copies: bool = False
    """A move is a copy: after it has begun it completes, even if its source is deleted."""
    undo: bool = True
    """A sequence that lost a file is undone; else it is quarantined."""
    folder_readers: bool = True
    """Readers list the folder; else they read snapshots only."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Numbers of events that may happen; within them the search is complete."""

    runs: int = 3
    batches: int = 2
    expiries: int = 1
    power_losses: int = 1
    lost_files: int = 1


class Stage(StrEnum):
    """The state of an attempt in the store; STAGED is not in the store yet."""

    STAGED = "staged"
    PREPARED = "prepared"
    COMMITTED = "committed"
    ABORTING = "aborting"
    ENDED = "ended"
    QUARANTINED = "quarantined"


class At(StrEnum):
    """The next step of a runner."""

    RECOVER = "recover"
    PLAN = "plan"
    PREPARE = "prepare"
    MOVE = "move"
    ARRIVE = "copy arrives"
    SYNC = "sync"
    COMMIT = "commit"
    START_ABORT = "start abort"
    DELETE = "delete"
    FINISH_ABORT = "finish abort"


class Attempt(NamedTuple):
    """One commit sequence: the batch it publishes and its two files."""

    batch: int
    stage: Stage
    files: tuple[int, int]


class Runner(NamedTuple):
    """A live run. Its number is its epoch."""

    number: int
    at: At
    attempt: int = -1
    done: int = 0
    """Files moved, as bits; while undoing, the number of deletions made."""
    copying: int = -1


class State(NamedTuple):
    """The state of the whole model. Runners are interchangeable, so they are sorted."""

    version: int
    epoch: int
    held: bool
    attempts: tuple[Attempt, ...]
    runners: tuple[Runner, ...]
    expiries: int
    power_losses: int
    lost_files: int


Move = tuple[str, State]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a search."""

    states: int
    broken: str = ""
    """The invariant that does not hold; empty if all do."""
    trace: tuple[str, ...] = field(default=())
    """A shortest trace that breaks it."""

    def __str__(self) -> str:
        if not self.broken:
            return f"{self.states:,} states, none broken"
        steps = "".join(f"\n  {number}. {step}" for number, step in enumerate(self.trace, 1))
        return f"{self.states:,} states, broken: {self.broken}{steps}"


def search(rules: Rules, bounds: Bounds) -> Result:
    """Visit every reachable state and check the invariants in each; stops at the first that is broken."""
    with collector_paused():
        return _search(rules, bounds)


def _search(rules: Rules, bounds: Bounds) -> Result:
    first = State(0, 0, False, (), (), bounds.expiries, bounds.power_losses, bounds.lost_files)
    came_from: dict[State, tuple[State, str] | None] = {first: None}
    layer = [first]
    while layer:
        following: list[State] = []
        for state in layer:
            for step, after in _moves(state, rules, bounds):
                if after in came_from:
                    continue
                came_from[after] = (state, step)
                broken = _broken(after, rules, state)
                if broken:
                    return Result(len(came_from), broken, _trace(after, came_from))
                following.append(after)
        layer = following
    return Result(len(came_from))


def _trace(state: State, came_from: dict[State, tuple[State, str] | None]) -> tuple[str, ...]:
    steps: list[str] = []
    while (before := came_from[state]) is not None:
        state = before[0]
        steps.append(before[1])
    return tuple(reversed(steps))


# -- invariants --------------------------------------------------------------------------------------------------------
def _broken(state: State, rules: Rules, before: State) -> str:
    """Return the invariant that does not hold; empty if all do."""
    if state.version < before.version or state.epoch < before.epoch:
        return "I5 the version went down"
    committed = [attempt for attempt in state.attempts if attempt.stage is Stage.COMMITTED]
    batches = [attempt.batch for attempt in committed]
    if len(set(batches)) < len(batches):
        return "I2 and I7: a batch was committed twice"
    if set(batches) != set(range(state.version)):
        return "I1 a batch below the watermark was never committed"
    if sum(attempt.stage in _BLOCKING for attempt in state.attempts) > 1:
        return "I13 two unfinished sequences"
    return _broken_files(state, rules)


def _broken_files(state: State, rules: Rules) -> str:
    files = [(one, number, file) for one in state.attempts for number, file in enumerate(one.files)]
    if any(one.stage is Stage.COMMITTED and not file & TARGET for one, _, file in files):
        return "I3 and I4: a committed file is not there"
    seen = [(one.batch, number) for one, number, file in files if file & TARGET]
    if rules.folder_readers and len(set(seen)) < len(seen):
        return "I2 a reader of the folder sees a file's records twice"
    return ""


_BLOCKING = frozenset({Stage.PREPARED, Stage.ABORTING, Stage.QUARANTINED})


# -- what may happen ---------------------------------------------------------------------------------------------------
def _moves(state: State, rules: Rules, bounds: Bounds) -> Iterator[Move]:
    if len(state.runners) < 2 and state.epoch < bounds.runs and not (state.held and rules.lease):
        runner = Runner(state.epoch + 1, At.RECOVER)
        yield f"run {runner.number} starts", _with(state, None, runner, epoch=state.epoch + 1, held=True)
    for runner in state.runners:
        for step, after in _steps(state, runner, rules, bounds):
            yield f"run {runner.number}: {step}", after
        yield f"run {runner.number} crashes", _stop(state, runner)
    yield from _weather(state)


def _weather(state: State) -> Iterator[Move]:
    if state.expiries and state.held and state.runners:
        yield "the lease expires", state._replace(held=False, expiries=state.expiries - 1)
    if state.lost_files:
        for number, attempt in enumerate(state.attempts):
            for index, file in enumerate(attempt.files):
                if file & SOURCE and attempt.stage is Stage.PREPARED:
                    after = _with_file(state, number, index, file & ~SOURCE)
                    yield f"staged file {index} is lost", after._replace(lost_files=state.lost_files - 1)
    if state.power_losses:
        unsynced = [
            (n, i) for n, one in enumerate(state.attempts) for i, file in enumerate(one.files) if file & UNSYNCED
        ]
        for undone in itertools.product((False, True), repeat=len(unsynced)):
            after = state._replace(runners=(), held=False, power_losses=state.power_losses - 1)
            for (number, index), is_undone in zip(unsynced, undone, strict=True):
                after = _with_file(after, number, index, SOURCE if is_undone else DURABLE)
            yield f"power loss undoes {sum(undone)} of {len(undone)} renames", _tidy(after)


def _steps(state: State, runner: Runner, rules: Rules, bounds: Bounds) -> Iterator[Move]:
    number = runner.attempt
    is_ours = runner.number == state.epoch or not rules.epoch
    if runner.at is At.RECOVER:
        yield _recover(state, runner)
    elif runner.at is At.PLAN:
        yield _plan(state, runner, bounds)
    elif runner.at is At.PREPARE:
        yield _prepare(state, runner, rules, is_ours=is_ours)
    elif runner.at is At.COMMIT:
        yield _commit(state, runner, rules, is_ours=is_ours)
    elif runner.at is At.SYNC:
        files = state.attempts[number].files
        for index, file in enumerate(files):
            if file & UNSYNCED and rules.fsync:
                state = _with_file(state, number, index, DURABLE)
        yield "syncs folders", _with(state, runner, runner._replace(at=At.COMMIT))
    elif runner.at in {At.MOVE, At.ARRIVE}:
        yield from _move(state, runner, rules)
    else:
        yield _undo(state, runner, rules, is_ours=is_ours)


def _recover(state: State, runner: Runner) -> Move:
    for number, attempt in enumerate(state.attempts):
        if attempt.stage is Stage.PREPARED:
            return "finds a prepared sequence", _with(state, runner, runner._replace(at=At.MOVE, attempt=number))
        if attempt.stage is Stage.ABORTING:
            return "finds a sequence to undo", _with(state, runner, runner._replace(at=At.DELETE, attempt=number))
        if attempt.stage is Stage.QUARANTINED:
            return "finds a quarantine", _stop(state, runner)
    return "finds nothing unfinished", _with(state, runner, runner._replace(at=At.PLAN))


def _plan(state: State, runner: Runner, bounds: Bounds) -> Move:
    if state.version >= bounds.batches:
        return "nothing to do", _stop(state, runner)
    attempt = Attempt(state.version, Stage.STAGED, (SOURCE, SOURCE))
    staged = runner._replace(at=At.PREPARE, attempt=len(state.attempts))
    after = _with(state._replace(attempts=(*state.attempts, attempt)), runner, staged)
    return f"stages batch {state.version}", after


def _prepare(state: State, runner: Runner, rules: Rules, *, is_ours: bool) -> Move:
    is_free = not any(attempt.stage in _BLOCKING for attempt in state.attempts)
    is_current = state.attempts[runner.attempt].batch == state.version and is_free
    if is_ours and (is_current or not rules.cas):
        return "PREPARED", _flip(state, runner, Stage.PREPARED, At.MOVE)
    return "may not prepare", _stop(state, runner)


def _move(state: State, runner: Runner, rules: Rules) -> Iterator[Move]:
    number = runner.attempt
    files = state.attempts[number].files
    if runner.at is At.ARRIVE:
        index = runner.copying
        arrived = _with_file(state, number, index, files[index] | DURABLE)
        moved = runner._replace(at=At.MOVE, copying=-1, done=runner.done | 1 << index)
        yield f"the copy of file {index} arrives", _with(arrived, runner, moved)
        return
    if runner.done == 3:
        yield "all is moved", _with(state, runner, runner._replace(at=At.SYNC))
        return
    for index, file in enumerate(files):
        if runner.done & 1 << index:
            continue
        moved = runner._replace(done=runner.done | 1 << index)
        taken = not rules.unique_names and any(one.files[index] & TARGET for one in state.attempts)
        if file & TARGET or taken:
            yield f"file {index} is there already", _with(state, runner, moved)
        elif not file & SOURCE:
            yield f"file {index} is lost", _with(state, runner, runner._replace(at=At.START_ABORT, done=0))
        elif rules.copies:
            yield f"copies file {index}", _with(state, runner, runner._replace(at=At.ARRIVE, copying=index))
        else:
            yield f"moves file {index}", _with(_with_file(state, number, index, UNSYNCED), runner, moved)


def _commit(state: State, runner: Runner, rules: Rules, *, is_ours: bool) -> Move:
    attempt = state.attempts[runner.attempt]
    if attempt.stage is Stage.COMMITTED and rules.cas:
        return "finds it committed", _stop(state, runner)
    is_current = attempt.stage is Stage.PREPARED and attempt.batch == state.version
    if not is_ours or (rules.cas and not is_current):
        return "may not commit", _stop(state, runner)
    committed = _flip(state, runner, Stage.COMMITTED, At.RECOVER)
    return "COMMITTED", committed._replace(version=attempt.batch + 1)


def _undo(state: State, runner: Runner, rules: Rules, *, is_ours: bool) -> Move:
    stage = state.attempts[runner.attempt].stage
    if runner.at is At.START_ABORT:
        if not is_ours or (rules.cas and stage is not Stage.PREPARED):
            return "may not abort", _stop(state, runner)
        if not rules.undo:
            return "QUARANTINED", _flip(state, runner, Stage.QUARANTINED, At.RECOVER)
        return "ABORTING", _flip(state, runner, Stage.ABORTING, At.DELETE)
    if runner.at is At.DELETE:
        is_source = (runner.done < 2) == rules.sources_first
        index = runner.done % 2
        file = state.attempts[runner.attempt].files[index]
        after = _with_file(state, runner.attempt, index, file & (TARGET if is_source else SOURCE))
        at = At.FINISH_ABORT if runner.done == 3 else At.DELETE
        what = "source" if is_source else "target"
        return f"deletes {what} {index}", _with(after, runner, runner._replace(at=at, done=(runner.done + 1) % 4))
    if not is_ours or (rules.cas and stage is not Stage.ABORTING):
        return "may not end the abort", _stop(state, runner)
    return "ABORTED", _flip(state, runner, Stage.ENDED, At.RECOVER)


# -- new states from old -----------------------------------------------------------------------------------------------
def _with(
    state: State, old: Runner | None, new: Runner | None, *, epoch: int | None = None, held: bool | None = None
) -> State:
    kept = [runner for runner in state.runners if runner != old]
    return State(
        state.version,
        state.epoch if epoch is None else epoch,
        state.held if held is None else held,
        state.attempts,
        tuple(sorted([*kept, new] if new else kept)),
        state.expiries,
        state.power_losses,
        state.lost_files,
    )


def _stop(state: State, runner: Runner) -> State:
    """End a run; it gives its lease back, or is seen to be dead."""
    return _tidy(_with(state, runner, None, held=state.held and runner.number != state.epoch))


def _flip(state: State, runner: Runner, stage: Stage, at: At) -> State:
    attempts = list(state.attempts)
    attempts[runner.attempt] = attempts[runner.attempt]._replace(stage=stage)
    kept = runner.attempt if at is not At.RECOVER else -1
    return _with(state._replace(attempts=tuple(attempts)), runner, runner._replace(at=at, attempt=kept, done=0))


def _with_file(state: State, number: int, index: int, file: int) -> State:
    attempts = list(state.attempts)
    files = list(attempts[number].files)
    files[index] = file
    attempts[number] = attempts[number]._replace(files=(files[0], files[1]))
    return state._replace(attempts=tuple(attempts))


def _tidy(state: State) -> State:
    """Forget what no run can reach any more: staging that was never prepared."""
    owned = {runner.attempt for runner in state.runners}
    forgotten = [n for n, one in enumerate(state.attempts) if one.stage is Stage.STAGED and n not in owned]
    if not forgotten:
        return state
    attempts = list(state.attempts)
    for number in forgotten:
        attempts[number] = Attempt(0, Stage.ENDED, (0, 0))
    return state._replace(attempts=tuple(attempts))
