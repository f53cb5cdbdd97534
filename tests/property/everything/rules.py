"""What may happen to a project, each thing in a few lines: rows come, people set, roll back, compact, replay and
clean."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from gobblin_dagster.core.startpoint import Oldest, Specific, StartpointPosition, Upcoming
from gobblin_dagster.engine.maintenance.clean import clean
from gobblin_dagster.engine.maintenance.compact import compact
from gobblin_dagster.engine.maintenance.replay import replay_quarantine
from gobblin_dagster.engine.maintenance.rollback import rollback
from gobblin_dagster.testing.faults import Fault, FaultPoints, freeze_while
from tests.property.everything.checks import check_at_rest, check_finished, check_now
from tests.property.everything.storm import JOB, URNS, Storm, Work
from tests.property.everything.weather import (
    REFUSALS,
    Weather,
    answer_is_lost,
    calm,
    disk_fails,
    killed,
    scratch_is_wiped,
    some_call,
    store_fails,
    store_is_away,
)

Rule: TypeAlias = Callable[[Storm], None]
EVENTS = 12


def grow(storm: Storm) -> None:
    """Rows come, and a run reads them, or fails at one of the last."""
    for urn in URNS:
        storm.rows[urn] += storm.dice.randrange(12)
    fails_at = storm.rows[storm.dice.choice(URNS)] - storm.dice.randrange(1, 12)
    do(storm, storm.run(storm.dice.choice([None, None, fails_at])))


def wish(storm: Storm) -> None:
    """A person says where the next run begins; it may die before it begins there."""
    urn = storm.dice.choice(URNS)
    positions: list[StartpointPosition] = [
        Specific(str(storm.dice.randrange(storm.rows[urn] + 1))),
        Oldest(),
        Upcoming(),
    ]
    position = storm.dice.choice(positions)
    with storm.store() as store:
        storm.wishes.save(store, JOB, urn, position, storm.rows[urn], storm.clock.now())
    grow(storm)


def go_back(storm: Storm) -> None:
    """A person rolls a dataset back; what is in a table stays, so there nobody can."""
    urn, job = storm.dice.choice(URNS), storm.job()
    with storm.store() as store:
        state = store.load_dataset_states(JOB).get(urn)
    if not storm.kind.is_table and state is not None and state.oldest_snapshot < state.snapshot:
        to = storm.dice.randrange(max(1, state.oldest_snapshot), state.snapshot)
        do(storm, lambda project: rollback(project, job, urn, to))


def merge(storm: Storm) -> None:
    """Small files become larger ones."""
    job = storm.job()
    do(storm, lambda project: compact(project, job, min_files=2))


def replay(storm: Storm) -> None:
    """Rejected rows get in, by a job that rejects none."""
    urn, job = storm.dice.choice(URNS), storm.job(strict=False)
    if storm.datasets[urn].now.commit:
        do(storm, lambda project: replay_quarantine(project, job, urn))


def tidy(storm: Storm) -> None:
    """What only expired snapshots hold goes, and what dead runs staged."""
    job = storm.job()
    do(storm, lambda project: clean(project, job))


RULES: tuple[Rule, ...] = (grow, grow, grow, wish, go_back, merge, replay, tidy)


def rage(storm: Storm) -> None:
    """Let a dozen things happen, and two quiet runs follow: then nothing is left to do."""
    for _ in range(EVENTS):
        happen(storm)
    for _ in range(2):
        settle(storm)
    check_finished(storm)


def happen(storm: Storm) -> None:
    """Let anything happen."""
    rule = storm.dice.choice(RULES)
    storm.log.append(rule.__name__)
    rule(storm)


def raced(storm: Storm, work: Work) -> None:
    """The process freezes before a call, another one does something, to which its leases may have fallen, and it goes
    on."""
    broken: list[AssertionError] = []

    def meanwhile() -> None:
        storm.at_rest, storm.is_racing = False, True
        storm.wait(hours=storm.dice.choice([0, 1, 1]))
        try:
            happen(storm)
        except AssertionError as error:
            broken.append(error)  # the frozen one must not take it for a failure of its own
        storm.is_racing = False

    at, name = some_call(storm)
    points = FaultPoints(Fault(at, freeze_while(meanwhile), name))
    with suppress(*REFUSALS):
        work(storm.project(points, points))
    if broken:
        raise broken[0]
    storm.wait(hours=1)


WEATHER_OF_RIVALS: tuple[Weather, ...] = (calm, calm, killed)
WEATHER: tuple[Weather, ...] = (
    *(calm, calm, killed, killed, scratch_is_wiped, raced, raced, raced),
    *(store_fails, answer_is_lost, answer_is_lost, store_is_away, disk_fails),
)


def do(storm: Storm, work: Work) -> None:
    """Do a piece of work in some weather, look at what it left, and sometimes let a quiet run make good."""
    weather = storm.dice.choice(WEATHER_OF_RIVALS if storm.is_racing else WEATHER)
    storm.log.append(weather.__name__)
    weather(storm, work)
    storm.learn()
    check_now(storm)
    if storm.at_rest and not storm.is_racing:
        check_at_rest(storm)
    elif not storm.is_racing and storm.dice.random() < 0.6:
        settle(storm)


def settle(storm: Storm) -> None:
    """Let one quiet run come after whatever happened; from then on, all is whole."""
    calm(storm, storm.run())
    storm.at_rest, storm.has_erred = True, False
    storm.learn()
    check_now(storm)
    check_at_rest(storm)
