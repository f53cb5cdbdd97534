"""Cases of `docs/adr/0010-startpoint-keys.md` and of SEP-18's failure scenarios, over one real source and state store.

A test class inherits `StartpointScenarios` and gives the fixture `world`. Row `n` of a world has the position `at(n)`
and the time `when(n)`; rows come in this order.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.errors import GobblinDagsterError, UsageError
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.core.startpoint import (
    Oldest,
    Specific,
    Startpoint,
    StartpointKey,
    StartpointPosition,
    Timestamp,
    Upcoming,
)
from gobblin_dagster.engine.plan.model import DatasetPlan
from gobblin_dagster.engine.results import DatasetResult
from gobblin_dagster.engine.run.job_run import plan_job
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.startpoints import StartpointManager
from gobblin_dagster.state.store import StateStore
from gobblin_dagster.testing.faults import CRASHED, Fault, FaultPoints, crash_before, run_in_child
from tests.faults.strikes import counted
from tests.unit.engine.jobs import by_urn, project, run
from tests.unit.engine.plan.test_startpoints import run_of

JOB = "events"


@dataclass
class World(ABC):
    """A job over a real source, with two datasets; nothing is in them before `add`."""

    root: Path
    urns: tuple[str, str]
    """The datasets."""
    _store: StateStore | None = field(default=None, init=False)

    @property
    @abstractmethod
    def spec(self) -> JobSpec:
        """The job, named `events`."""

    @abstractmethod
    def add(self, numbers: range, which: int = 0) -> None:
        """Add rows to a dataset; the first call makes it."""

    @abstractmethod
    def at(self, number: int) -> str:
        """Return the position of a row of the first dataset, as people write it."""

    def after(self, number: int) -> str:
        """Return the watermark of a commit whose last row is this one."""
        return self.at(number + 1)

    @abstractmethod
    def when(self, number: int) -> datetime:
        """Return the time of a row."""

    @abstractmethod
    def beyond(self) -> str:
        """Return a position that the source does not have yet."""

    @abstractmethod
    def unreachable(self) -> JobSpec:
        """Return the same job, over a source that does not answer."""

    @abstractmethod
    def vanish(self) -> None:
        """Take the first dataset away from the source."""

    def run(self, spec: JobSpec | None = None) -> DatasetResult:
        return by_urn(run(self.root, spec or self.spec))[self.urns[0]]

    def attempt(self, spec: JobSpec) -> str:
        """Run another job, and return the outcome, or the code of the error that the run ends with."""
        try:
            return self.run(spec).outcome.value
        except GobblinDagsterError as error:
            return error.code

    def plan(self) -> DatasetPlan:
        plan = plan_job(project(self.root, self.spec), self.spec)
        return next(one for one in plan.datasets if one.dataset_urn == self.urns[0])

    def die(self) -> None:
        """Let a run read all that it planned, and end before it commits."""
        with run_of(self.root, self.spec) as dies:
            dies.extract(dies.plan())

    def die_at(self, call: str, number: int = 1) -> None:
        """Kill a run before a call of its state store."""

        spec = self.spec

        def killed() -> None:
            with counted(FaultPoints(Fault(number, crash_before, call))):
                ended = run(self.root, spec).datasets
                raise AssertionError([(one.dataset_urn, one.outcome, one.failures) for one in ended])

        status = run_in_child(killed)
        assert status == CRASHED, f"there is no call {number} of {call}, the run ended with status {status}"

    @contextmanager
    def store(self) -> Iterator[StateStore]:
        """Yield the state store; it stays open until `close`, because a connection costs more than what is asked."""
        if self._store is None:
            self._store = project(self.root, self.spec).open_store()
        yield self._store

    def close(self) -> None:
        """Close the state store."""
        if self._store is not None:
            self._store.close()
            self._store = None

    @contextmanager
    def startpoints(self) -> Iterator[StartpointManager]:
        with self.store() as store, StartpointManager(store) as manager:
            yield manager

    def key(self, partition: str = "", which: int = 0) -> StartpointKey:
        return StartpointKey(self.urns[which], partition, JOB)

    def write(self, position: StartpointPosition, partition: str = "", which: int = 0, **parts: Any) -> Startpoint:
        """Store a startpoint as people do, by the manager."""
        with self.startpoints() as manager:
            return manager.write(self.key(partition, which), position, **{"why": "snow", "on_rewind": "append"} | parts)

    def put(self, startpoint: Startpoint) -> None:
        """Store a startpoint as it is, past all checks."""
        with self.store() as store:
            store.save_startpoint(startpoint)

    def waiting(self) -> list[Startpoint]:
        with self.store() as store:
            return store.list_startpoints(JOB)

    def changes(self) -> list[str]:
        """Return the history of the startpoints."""
        with self.startpoints() as manager:
            return [event.change for event in manager.events(JOB)]

    def state(self, which: int = 0) -> DatasetState:
        with self.store() as store:
            return store.load_dataset_states(JOB)[self.urns[which]]

    def ids(self, which: int = 0) -> list[int]:
        """Return the published rows, sorted; those that readers see twice stand there twice."""
        with self.store() as store:
            files = store.load_snapshot(JOB, self.urns[which])
        return sorted(int(number) for file in files for number in pq.read_table(file.path)["id"].to_pylist())


class StartpointScenarios:
    """The cases, each by its name."""

    @pytest.mark.parametrize("is_first", [True, False], ids=["first-run", "later-run"])
    def test_position_of_each_type_is_where_the_run_begins(self, world: World, is_first: bool) -> None:
        world.add(range(5))
        before: list[int] = [] if is_first else list(range(5))
        if not is_first:
            world.run()
        for position, read in (
            (Specific(world.at(3)), [3, 4]),
            (Timestamp(world.when(2)), [2, 3, 4]),
            (Oldest(), [0, 1, 2, 3, 4]),
            (Upcoming(), []),
        ):
            world.write(position)
            assert world.run().outcome is DatasetOutcome.COMMITTED
            before += read
            assert world.ids() == sorted(before), str(position)
            assert world.waiting() == []

    def test_run_that_is_restarted_before_its_first_commit_applies_the_startpoint_again(self, world: World) -> None:
        """SEP-18: "SamzaContainer is restarted before the first offset commit"."""
        world.add(range(5))
        world.run()
        saved = world.write(Specific(world.at(3)))
        for _ in range(2):
            world.die()
            (left,) = world.waiting()
            assert (left.id, left.generation) == (saved.id, 2)
        world.run()
        assert world.ids() == [0, 1, 2, 3, 3, 4, 4]
        assert world.waiting() == []
        assert world.changes() == ["set", "fanned out"]

    def test_run_that_is_restarted_before_all_startpoints_are_applied_applies_the_others(self, world: World) -> None:
        """SEP-18: "JobCoordinator is restarted before all Startpoints are applied"."""
        for which in (0, 1):
            world.add(range(5), which)
        world.run()
        for which in (0, 1):
            world.write(Upcoming(), which=which)
        world.die_at("store.pin_startpoint", 2)
        assert sorted(one.pinned is not None for one in world.waiting()) == [False, True]
        world.die()
        for which in (0, 1):
            world.add(range(5, 7), which)
        world.run()
        assert [world.ids(which) for which in (0, 1)] == [list(range(7))] * 2, "what came after the pin is read"
        assert world.waiting() == []

    def test_x3_upcoming_is_pinned_so_that_a_crash_skips_nothing(self, world: World) -> None:
        world.add(range(3))
        world.write(Upcoming())
        world.die()
        world.add(range(3, 5))
        world.run()
        assert world.ids() == [3, 4]

    def test_x4_startpoint_is_removed_exactly_if_the_watermark_moved(self, world: World) -> None:
        world.add(range(5))
        world.run()
        world.write(Specific(world.at(4)))
        world.die_at("store.commit")
        assert (world.state().version, len(world.waiting())) == (1, 1)
        world.run()
        assert (world.state().version, world.waiting(), world.ids()) == (2, [], [0, 1, 2, 3, 4, 4])

    def test_x6_startpoint_that_is_set_after_the_plan_survives_fan_out_and_commit(self, world: World) -> None:
        world.add(range(5))
        world.run()
        world.write(Specific(world.at(3)))
        with run_of(world.root, world.spec) as working:
            plan = working.plan()
            newer = world.write(Specific(world.at(4)))
            working.publish(working.extract(plan))
        assert world.ids() == [0, 1, 2, 3, 3, 4, 4]
        assert world.waiting() == [newer]
        world.run()
        assert world.ids() == [0, 1, 2, 3, 3, 4, 4, 4]

    def test_x7_source_that_does_not_answer_fails_the_run_and_keeps_the_startpoint(self, world: World) -> None:
        world.add(range(5))
        world.run()
        saved = world.write(Timestamp(world.when(3)))
        assert world.attempt(world.unreachable()) in ("source", "transient", "failed")
        assert (world.state().version, world.waiting()) == (1, [saved])
        world.run()
        assert world.ids() == [0, 1, 2, 3, 3, 4, 4]

    def test_x8_position_beyond_the_end_is_refused_when_it_is_used_too(self, world: World) -> None:
        world.add(range(5))
        world.run()
        saved = world.write(Specific(world.beyond()))
        failed = world.run()
        assert (failed.outcome, failed.failures[0].code) == (DatasetOutcome.FAILED, "startpoint")
        assert (world.state().version, world.waiting()) == (1, [saved])

    def test_x9_fanned_out_startpoint_applies_after_its_time_and_another_one_expires(self, world: World) -> None:
        world.add(range(5))
        world.run()
        world.write(Specific(world.at(4)))
        world.die()
        (fanned,) = world.waiting()
        past = fanned.created_at - timedelta(days=30)
        with world.store() as store:
            assert store.pin_startpoint(replace(fanned, created_at=past, expires_at=past + timedelta(days=7)), "run-1")
        world.run()
        assert world.ids() == [0, 1, 2, 3, 4, 4]
        world.put(replace(fanned, generation=0, created_at=past, expires_at=past + timedelta(days=7)))
        assert "expired at" in world.plan().notes[0]
        result = world.run()
        assert (result.outcome, "expired at" in result.notes[0]) == (DatasetOutcome.IDLE, True)
        assert (world.waiting(), world.ids()) == ([], [0, 1, 2, 3, 4, 4])
        assert world.changes()[-1] == "expired"

    def test_x10_creation_time_ahead_of_the_clock_is_refused_when_it_is_set_and_when_it_is_used(
        self, world: World
    ) -> None:
        world.add(range(5))
        with world.store() as store:
            now = store.now()
        with pytest.raises(UsageError, match="ahead of the state store's clock"):
            world.write(Oldest(), created_at=now + timedelta(minutes=6))
        saved = world.write(Oldest(), created_at=now + timedelta(minutes=4))
        ahead = replace(saved, created_at=now + timedelta(days=400), expires_at=now + timedelta(days=407))
        world.put(ahead)
        assert "ahead of the state store's clock" in world.run().failures[0].message
        assert world.waiting() == [ahead]

    def test_x11_dataset_that_vanished_is_reported_and_its_startpoint_waits_until_it_expires(
        self, world: World
    ) -> None:
        world.add(range(5))
        world.add(range(2), 1)
        world.run()
        saved = world.write(Oldest())
        world.vanish()
        assert any("waits" in note for note in world.plan().notes)
        world.run()
        assert (world.state().version, world.waiting()) == (1, [saved])
        past = saved.created_at - timedelta(days=30)
        world.put(replace(saved, created_at=past, expires_at=past + timedelta(days=7)))
        assert any("expired at" in note for note in world.plan().notes)
        world.run()
        assert (world.state().version, world.waiting()) == (1, [])
        assert world.changes()[-1] == "expired"

    def test_x12_going_back_is_refused_unless_it_is_declared(self, world: World) -> None:
        world.add(range(3))
        world.run()
        world.add(range(3, 5))
        world.run()
        saved = world.write(Specific(world.after(2)), on_rewind="refuse")
        assert "twice" in world.run().failures[0].message
        assert (world.ids(), world.waiting()) == (list(range(5)), [saved])
        world.write(Specific(world.after(2)), on_rewind="replace")
        assert world.run().files_removed > 0
        assert (world.ids(), world.state().generation) == (list(range(5)), 1)
        world.write(Specific(world.after(2)), on_rewind="append")
        world.run()
        assert (world.ids(), world.state().generation) == ([0, 1, 2, 3, 3, 4, 4], 2)

    def test_range_is_read_again_and_the_watermark_stays(self, world: World) -> None:
        world.add(range(5))
        world.run()
        world.add(range(5, 7))
        before = world.state().watermark
        world.write(Specific(world.at(1)), until=Specific(world.at(3)))
        world.run()
        assert (world.ids(), world.state().watermark) == ([0, 1, 1, 2, 2, 3, 4], before)
        assert world.waiting() == []
        world.run()
        assert world.ids() == [0, 1, 1, 2, 2, 3, 4, 5, 6]

    def test_x13_unfinished_commit_is_finished_before_the_startpoint_applies(self, world: World) -> None:
        world.add(range(5))
        world.die_at("store.commit")
        world.write(Specific(world.at(4)))
        world.run()
        assert (world.state().version, world.ids()) == (2, [0, 1, 2, 3, 4, 4])

    def test_x14_newer_startpoint_that_is_set_while_a_run_works_is_left_for_the_next(self, world: World) -> None:
        world.add(range(5))
        world.run()
        world.write(Specific(world.at(3)))
        with run_of(world.root, world.spec) as working:
            decided = working.extract(working.plan())
            newer = world.write(Specific(world.at(4)))
            working.publish(decided)
        assert (world.ids(), world.waiting()) == ([0, 1, 2, 3, 3, 4, 4], [newer])
        world.run()
        assert (world.ids(), world.waiting()) == ([0, 1, 2, 3, 3, 4, 4, 4], [])

    def test_x15_upcoming_with_nothing_new_commits_its_position(self, world: World) -> None:
        world.add(range(3))
        world.write(Upcoming())
        result = world.run()
        assert (result.outcome, result.rows_read) == (DatasetOutcome.COMMITTED, 0)
        assert (world.waiting(), world.state().version) == ([], 1)
        world.add(range(3, 5))
        world.run()
        assert world.ids() == [3, 4]

    def test_x16_of_two_runs_that_race_one_applies_the_startpoint(self, world: World) -> None:
        world.add(range(5))
        world.run()
        world.write(Specific(world.at(3)))
        results: list[DatasetResult] = []
        start = threading.Barrier(2)

        def race() -> None:
            start.wait()
            results.append(world.run())

        racers = [threading.Thread(target=race) for _ in range(2)]
        for one in racers:
            one.start()
        for one in racers:
            one.join()
        assert [one.outcome for one in results].count(DatasetOutcome.COMMITTED) == 1
        assert {one.outcome for one in results} <= {
            DatasetOutcome.COMMITTED,
            DatasetOutcome.IDLE,
            DatasetOutcome.BUSY,
        }
        assert (world.ids(), world.waiting()) == ([0, 1, 2, 3, 3, 4, 4], [])


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
