"""What may strike a piece of work: nothing, a kill, or errors of the disk or the store."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeAlias

import sqlalchemy as sa

from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.engine.clean import CleanResult
from gobblin_dagster.engine.compact import Compaction
from gobblin_dagster.engine.results import RunResult
from gobblin_dagster.testing.faults import (
    CRASHED,
    Action,
    Fault,
    FaultPoints,
    crash_after,
    crash_before,
    fail_with,
    lose_answer,
    run_in_child,
)
from tests.property.everything.storm import Storm, Work

Weather: TypeAlias = Callable[[Storm, Work], None]
REFUSALS = (GobblinDagsterError, OSError)
"""With these a piece of work may end that was struck, or that found what an earlier one left."""
NEVER_FROM_REST = {DatasetOutcome.BUSY, DatasetOutcome.QUARANTINED}
CALLS = 70
"""Of a run to store and storage, about."""
STORE_CALLS = 25


def calm(storm: Storm, work: Work) -> None:
    """Nothing strikes: from rest, the work goes well."""
    if storm.at_rest and not storm.is_racing:
        refused = [reason for reason in refusals(work(storm.project())) if reason]
        assert not refused, refused
    else:
        with suppress(*REFUSALS):
            work(storm.project())


def refusals(result: object) -> Iterator[object]:
    """Yield why parts of a piece of work were not done."""
    match result:
        case RunResult():
            yield from (one.outcome for one in result.datasets if one.outcome in NEVER_FROM_REST)
        case CleanResult():
            yield from (one.kept_because for one in result.expired)
        case list():
            yield from (one.problem for one in result if isinstance(one, Compaction))


def killed(storm: Storm, work: Work) -> None:
    """The process ends at a call; whoever comes next sees that it is dead."""
    points = FaultPoints(Fault(storm.dice.randrange(1, CALLS), storm.dice.choice([crash_before, crash_after])))

    def mortal() -> None:
        count_statements(points)  # only here: this process ends
        with suppress(*REFUSALS):
            work(storm.project(points, points))

    died = run_in_child(mortal)
    assert died in (0, CRASHED), "what it printed tells why"
    storm.at_rest &= not died
    storm.wait(seconds=5)  # the child's clock ticked too


def count_statements(points: FaultPoints) -> None:
    """Make each statement and each commit of the database that holds tables a fault point."""

    def count(connection: sa.Connection, *_: object) -> None:
        if "state.db" not in str(connection.engine.url.database):
            points.pass_through("table.statement", lambda: None)

    for name in ("before_cursor_execute", "commit"):
        sa.event.listen(sa.Engine, name, count)


def store_fails(storm: Storm, work: Work) -> None:
    """One call of the store fails."""
    _err(storm, work, [fail_with(errno.EIO)], is_store=True)


def answer_is_lost(storm: Storm, work: Work) -> None:
    """One call of the store is done, and nobody is told."""
    _err(storm, work, [lose_answer], is_store=True)


def store_is_away(storm: Storm, work: Work) -> None:
    """The store answers no call for a while."""
    _err(storm, work, [fail_with(errno.EIO)] * storm.dice.choice([2, 5, 1000]), is_store=True)


def disk_fails(storm: Storm, work: Work) -> None:
    """One call of the storage fails, or its answer is lost."""
    action = storm.dice.choice([fail_with(errno.EIO), fail_with(errno.ENOSPC), lose_answer])
    _err(storm, work, [action], is_store=False)


def _err(storm: Storm, work: Work, actions: list[Action], *, is_store: bool) -> None:
    at = storm.dice.randrange(1, STORE_CALLS if is_store else CALLS - STORE_CALLS)
    points = FaultPoints(*(Fault(at + number, action) for number, action in enumerate(actions)))
    with suppress(*REFUSALS):
        work(storm.project(store=points) if is_store else storm.project(files=points))
    is_struck = len(points.trace) >= at
    storm.at_rest &= not is_struck
    storm.has_erred |= is_struck
    storm.wait(hours=1)  # it lives, so its leases are its own until they expire
