"""StartpointManager: keys, expiry, clocks, fan-outs and their history, in SQL and in plain files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.event import listen, remove

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.startpoint import ALL_JOBS, Oldest, Startpoint, StartpointKey, Upcoming, by_precedence
from gobblin_dagster.state.files.store import FileStateStore
from gobblin_dagster.state.sql.store import SqlStateStore
from gobblin_dagster.state.startpoints import StartpointManager
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.storage import MemoryStorage
from gobblin_dagster.testing.conformance.state_store.opening import ManualClock
from gobblin_dagster.testing.conformance.state_store.values import JOB, START, URN, state
from tests.unit.state.files.test_store import Crash, FailingStorage

PART = StartpointKey(URN, "a-0", JOB)
WHOLE = StartpointKey(URN, job=JOB)
WIDE = StartpointKey(URN)
SOURCE = "kafka:here"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sql", "files"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[StateStore]:
    if request.param == "sql":
        opened: StateStore = SqlStateStore(f"sqlite:///{tmp_path}/state.db", clock)
    else:
        opened = FileStateStore("/state", MemoryStorage(), clock)
    with closing(opened):
        yield opened


@pytest.fixture
def manager(store: StateStore) -> StartpointManager:
    return StartpointManager(store)


def changes(manager: StartpointManager, job: str = JOB) -> list[tuple[str, str]]:
    return [(event.change, event.who) for event in manager.events(job)]


def test_each_key_is_written_read_and_deleted_alone(manager: StartpointManager) -> None:
    written = {key: manager.write(key, Oldest(), why="snow", who="anna") for key in (PART, WHOLE, WIDE)}
    assert {key: manager.read(key) for key in written} == written
    assert written[PART].key == PART
    assert manager.read(StartpointKey(URN, "a-1", JOB)) is None
    assert manager.delete(WHOLE, "bert") == written[WHOLE]
    assert manager.delete(WHOLE) is None
    assert [manager.read(key) for key in (PART, WHOLE, WIDE)] == [written[PART], None, written[WIDE]]
    assert changes(manager) == [("set", "anna"), ("set", "anna"), ("removed", "bert")]


def test_newer_one_replaces_its_key_and_the_history_says_so(manager: StartpointManager) -> None:
    manager.write(PART, Oldest(), why="snow", who="anna")
    newer = manager.write(PART, Upcoming(), why="rain", who="bert")
    assert manager.read(PART) == newer
    assert changes(manager) == [("set", "anna"), ("replaced", "bert"), ("set", "bert")]


def test_startpoint_of_a_clock_far_ahead_is_refused(manager: StartpointManager) -> None:
    manager.write(WHOLE, Oldest(), why="snow", created_at=START + timedelta(minutes=5))
    with pytest.raises(UsageError, match=r"0:05:01 ahead of the state store's clock"):
        manager.write(WHOLE, Oldest(), why="snow", created_at=START + timedelta(minutes=5, seconds=1))


def test_startpoint_that_expires_before_it_begins_is_refused(manager: StartpointManager) -> None:
    with pytest.raises(UsageError, match="would expire at"):
        manager.write(WHOLE, Oldest(), why="snow", expires_in=timedelta())


def test_closed_manager_says_so(manager: StartpointManager, store: StateStore) -> None:
    with manager:
        manager.write(WHOLE, Oldest(), why="snow")
    with pytest.raises(UsageError, match="This StartpointManager is closed"):
        manager.read(WHOLE)
    assert StartpointManager(store).read(WHOLE) is not None


def test_unfanned_one_expires_and_a_fanned_out_one_does_not(manager: StartpointManager, clock: ManualClock) -> None:
    waits = manager.write(WHOLE, Oldest(), why="snow", expires_in=timedelta(hours=12))
    fanned = manager.write(PART, Oldest(), why="snow", expires_in=timedelta(hours=12))
    manager.fan_out([fanned], 3, "run-1")
    clock.advance(timedelta(hours=12))
    assert manager.read(WHOLE) is None
    assert manager.read(PART) == replace(fanned, generation=3)
    assert manager.expire(waits, "run-2")
    assert not manager.expire(waits, "run-2")
    assert changes(manager)[2:] == [("fanned out", "run-1"), ("expired", "run-2")]


def test_wide_startpoint_is_copied_for_each_job_of_its_source_once(manager: StartpointManager) -> None:
    wide = manager.write(WIDE, Oldest(), why="snow", source=SOURCE)
    copy = replace(wide, job=JOB, is_copy=True)
    assert manager.applicable(JOB, SOURCE, {}) == ({URN: [copy]}, frozenset({wide.id}))
    assert manager.applicable(JOB, "kafka:elsewhere", {}) == ({}, frozenset({wide.id}))
    manager.fan_out([copy], 1, "run-1")
    fanned = replace(copy, generation=1)
    assert manager.applicable(JOB, SOURCE, {})[0] == {URN: [fanned]}
    assert manager.fan_outs(JOB) == {WHOLE: fanned}
    applied = replace(state(1), applied_startpoints=(wide.id,))
    assert manager.applicable(JOB, SOURCE, {URN: applied})[0] == {}, "a slow run may store a copy later"
    assert manager.applicable("other", SOURCE, {})[0] == {URN: [replace(wide, job="other", is_copy=True)]}


def test_copy_of_a_newer_wide_one_that_takes_the_place_of_an_own_one_stands_in_the_history(
    manager: StartpointManager, clock: ManualClock
) -> None:
    manager.write(WHOLE, Oldest(), why="snow", who="anna")
    clock.advance(timedelta(seconds=1))
    copy = replace(manager.write(WIDE, Upcoming(), why="rain"), job=JOB, is_copy=True)
    for _ in range(2):
        manager.fan_out([copy], 1, "run-1")
    assert manager.find(JOB) == [replace(copy, generation=1)]
    assert changes(manager)[:2] == [("set", "anna"), ("replaced", "run-1")]
    assert [change for change, _ in changes(manager)].count("replaced") == 1


@contextmanager
def crash_at_statement(number: int) -> Iterator[None]:
    """Raise Crash before the statement of that number, counted over all databases."""
    left = [number]

    def strike(*_: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Crash

    listen(Engine, "before_cursor_execute", strike)
    try:
        yield
    finally:
        remove(Engine, "before_cursor_execute", strike)


CHANGES: dict[str, Callable[[StartpointManager], object]] = {
    "set": lambda manager: manager.write(StartpointKey("other", job=JOB), Oldest(), why="snow", who="anna"),
    "replace": lambda manager: manager.write(WHOLE, Upcoming(), why="rain", who="bert"),
    "remove": lambda manager: manager.delete(WHOLE, "bert"),
    "expire": lambda manager: manager.expire(manager.find(JOB)[0], "run-1"),
    "fan out": lambda manager: manager.fan_out(manager.find(JOB)[:1], 1, "run-1"),
    "fan out a copy": lambda manager: manager.fan_out(
        [replace(manager.find(ALL_JOBS)[0], job=JOB, is_copy=True)], 1, "run-1"
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ["sql", "files, before", "files, after"])
def test_crash_anywhere_in_a_change_leaves_both_the_change_and_its_event_or_neither(
    change: str, kind: str, clock: ManualClock, tmp_path: Path
) -> None:
    """X3: the history neither loses a change nor tells of one that did not happen."""

    def before(number: int) -> tuple[StateStore, FailingStorage]:
        storage = FailingStorage()
        store: StateStore = (
            SqlStateStore(f"sqlite:///{tmp_path}/{number}.db", clock)
            if kind == "sql"
            else FileStateStore("/state", storage, clock, threads=1)
        )
        manager = StartpointManager(store)
        manager.write(WHOLE, Oldest(), why="snow", who="anna", created_at=START - timedelta(hours=1))
        manager.write(PART, Oldest(), why="snow", who="anna")
        manager.write(WIDE, Upcoming(), why="rain", who="anna")
        return store, storage

    def shown(store: StateStore) -> list[tuple[str, str, str]]:
        found = []
        for job in (JOB, ALL_JOBS):
            found += [(one.partition, str(one.position), str(one.generation)) for one in store.list_startpoints(job)]
            found += [(one.change, one.who, one.startpoint.why) for one in store.load_startpoint_events(job)]
        return found

    store, _ = before(0)
    with closing(store):
        old = shown(store)
        CHANGES[change](StartpointManager(store))
        new = shown(store)
    seen = []
    for number in range(1, 40):
        store, storage = before(number)
        with closing(store):
            if kind != "sql":
                storage.arm(Crash(), number, kind == "files, after")
            with crash_at_statement(number if kind == "sql" else 0), suppress(Crash):
                CHANGES[change](StartpointManager(store))
            storage.fault = None
            seen.append(shown(store))
        if seen[-2:] == [new, new]:
            break
    assert old in seen
    assert all(one in (old, new) for one in seen), [one for one in seen if one not in (old, new)]
    assert seen[-1] == new


def test_new_one_for_one_partition_keeps_the_fan_outs_of_others(manager: StartpointManager) -> None:
    first = manager.write(PART, Oldest(), why="snow")
    manager.fan_out([first], 1, "run-1")
    second = manager.write(StartpointKey(URN, "a-1", JOB), Oldest(), why="rain")
    manager.fan_out([second], 1, "run-2")
    assert set(manager.fan_outs(JOB)) == {PART, StartpointKey(URN, "a-1", JOB)}


def test_fan_out_leaves_alone_what_a_person_set_or_removed_meanwhile(
    manager: StartpointManager, clock: ManualClock
) -> None:
    seen, gone = manager.write(WHOLE, Oldest(), why="snow"), manager.write(PART, Oldest(), why="snow")
    clock.advance(timedelta(seconds=1))
    newer = manager.write(WHOLE, Upcoming(), why="rain")
    manager.delete(PART)
    manager.fan_out([seen, gone], 1, "run-1")
    assert manager.find(JOB) == [newer]


def test_deleted_fan_outs_of_a_wide_startpoint_are_made_again(manager: StartpointManager) -> None:
    wide = manager.write(WIDE, Oldest(), why="snow")
    manager.fan_out([replace(wide, job=JOB, is_copy=True)], 1, "run-1")
    (deleted,) = manager.delete_fan_outs(JOB)
    assert deleted.id == wide.id
    assert manager.fan_outs(JOB) == {}
    assert list(manager.applicable(JOB, SOURCE, {})[0]) == [URN]
    assert manager.find(ALL_JOBS) == [wide]


def test_newest_wins_and_of_equal_age_the_narrower_key() -> None:
    def one(job: str, partition: str, second: int) -> Startpoint:
        at = START + timedelta(seconds=second)
        return Startpoint(job, URN, Oldest(), at, at + timedelta(days=1), "anna", partition=partition)

    narrow, wide_now, middle, wide_part = (
        one(JOB, "a-0", 0),
        one(ALL_JOBS, "", 1),
        one(JOB, "", 1),
        one(ALL_JOBS, "p", 1),
    )
    newest = one(ALL_JOBS, "", 2)
    assert by_precedence([newest, middle, wide_part, wide_now, narrow]) == [narrow, wide_now, wide_part, middle, newest]
