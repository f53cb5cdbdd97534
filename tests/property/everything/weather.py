"""What may strike a piece of work: nothing, a kill, or errors of the disk or the store."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeAlias

import sqlalchemy as sa

from gobblin_dagster.core.errors import GobblinDagsterError
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.engine.maintenance.clean import CleanResult
from gobblin_dagster.engine.maintenance.compact import Compaction
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
DECISIVE = (
    *("store.acquire_leases", "store.pin_startpoint", "store.release_leases"),
    *("store.prepare", "store.prepare_all", "store.commit", "store.commit", "store.commit_all"),
    *("storage.sync_dir", "storage.move", "storage.move", "storage.put_if_absent", "storage.delete_tree"),
)
"""Where the next thing to happen is another one if this one did not."""


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


def some_call(storm: Storm, kind: str = "") -> tuple[int, str]:
    """Draw a call of a piece of work: its number, or how often one of the decisive ones was called before."""
    if storm.dice.random() < 0.3:
        return storm.dice.randrange(1, STORE_CALLS if kind == "store." else CALLS), ""
    return storm.dice.randrange(1, 3), storm.dice.choice([name for name in DECISIVE if name.startswith(kind)])


def killed(storm: Storm, work: Work) -> None:
    """The process ends at a call; the next one sees that it is dead."""
    at, name = some_call(storm)
    points = FaultPoints(Fault(at, storm.dice.choice([crash_before, crash_after]), name))

    def mortal() -> None:
        count_statements(points)  # only here: this process ends
        with suppress(*REFUSALS):
            work(storm.project(points, points))

    died = run_in_child(mortal)
    assert died in (0, CRASHED), "what it printed tells why"
    storm.at_rest &= not died
    storm.wait(seconds=5)  # the child's clock ticked too


def scratch_is_wiped(storm: Storm, work: Work) -> None:
    """The process ends at a call, and one of the files that it staged is lost."""
    killed(storm, work)
    staged = sorted((storm.root / "lake/_gobblin/staging").rglob("*.parquet"))
    if staged and not storm.kind.is_table:  # of rows that may be in a table by now, a person decides
        storm.dice.choice(staged).unlink()


def count_statements(points: FaultPoints) -> None:
    """Make each statement and each commit of the database that holds tables a fault point."""

    def count(connection: sa.Connection, *_: object) -> None:
        if "state.db" not in str(connection.engine.url.database):
            points.pass_through("table.statement", lambda: None)

    for name in ("before_cursor_execute", "commit"):
        sa.event.listen(sa.Engine, name, count)


def store_fails(storm: Storm, work: Work) -> None:
    """One call of the store fails."""
    _err(storm, work, "store", fail_with(errno.EIO))


def answer_is_lost(storm: Storm, work: Work) -> None:
    """One call of the store is executed, but its answer is lost."""
    _err(storm, work, "store", lose_answer)


def store_is_away(storm: Storm, work: Work) -> None:
    """The store answers no call for a while."""
    _err(storm, work, "store", fail_with(errno.EIO), storm.dice.choice([2, 5, 1000]))


def disk_fails(storm: Storm, work: Work) -> None:
    """One call of the storage fails, or its answer is lost."""
    _err(storm, work, "storage", storm.dice.choice([fail_with(errno.EIO), fail_with(errno.ENOSPC), lose_answer]))


def _err(storm: Storm, work: Work, kind: str, action: Action, calls: int = 1) -> None:
    at, name = some_call(storm, f"{kind}.")
    points = FaultPoints(Fault(at, action, name, calls))
    with suppress(*REFUSALS):
        work(storm.project(store=points) if kind == "store" else storm.project(files=points))
    storm.at_rest &= not points.is_struck
    storm.has_erred |= points.is_struck
    storm.wait(hours=1)  # it lives, so its leases are its own until they expire
