"""What the sensors ask for, report and end; and that nothing is asked for twice."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from gobblin_dagster.core.commit import SequenceState
from gobblin_dagster.core.errors import EnvironmentFaultError, SourceError
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.core.startpoint import Startpoint, Upcoming
from gobblin_dagster.engine import new_data as new_data_module
from gobblin_dagster.engine.new_data import PollResult, look
from gobblin_dagster.engine.project import Project
from gobblin_dagster.orchestration import metadata as md
from gobblin_dagster.orchestration import new_data_sensor, polling, sensors, sweep_sensor
from gobblin_dagster.orchestration import sweep as sweep_module
from gobblin_dagster.orchestration.binding import JobBinding
from gobblin_dagster.orchestration.ops import run_config
from gobblin_dagster.orchestration.polling import JobPolls
from gobblin_dagster.orchestration.reconcile import is_known
from gobblin_dagster.orchestration.resources import GobblinSparkResource
from gobblin_dagster.orchestration.sweep_cursor import OVERLAP, SweepCursor, dump_cursors, load_cursors
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.store import StateStore
from tests.unit.engine.jobs import job_spec, project, run
from tests.unit.orchestration.world import World


def tick(world: World, sensor: dg.SensorDefinition, cursor: str | None = None) -> Any:
    """Evaluate a sensor and do with its answer what Dagster's daemon does."""
    with dg.build_sensor_context(instance=world.instance, definitions=world.definitions, cursor=cursor) as context:
        data = sensor.evaluate_tick(context)
    for request in data.dynamic_partitions_requests or ():
        world.instance.add_dynamic_partitions(request.partitions_def_name, request.partition_keys)
    for event in data.asset_events:
        world.instance.report_runless_asset_event(event)
    return data


def new_data(world: World) -> Any:
    return tick(world, new_data_sensor(world.binding.project, world.job))


TOLD = dump_cursors({"numbers": SweepCursor(datetime(9999, 1, 1, tzinfo=UTC))})
"""Cursor of an instance that hears of everything."""


def sweep(world: World, cursor: str | None = TOLD) -> Any:
    return tick(world, sweep_sensor(world.binding.project, world.job), cursor)


def test_new_data_asks_for_one_untagged_run_over_datasets_with_work(world: World) -> None:
    world.datasets["b/1"]["rows"] = 0
    (request,) = new_data(world).run_requests
    assert request.run_config == run_config("numbers", ["a", "c c"])
    assert request.partition_key is None
    assert world.instance.get_dynamic_partitions("numbers.dataset_urn") == ["a", "c%20c"]


def test_new_data_gives_the_same_run_key_until_something_is_different(world: World) -> None:
    first, again = new_data(world).run_requests[0].run_key, new_data(world).run_requests[0].run_key
    world.datasets["a"]["rows"] = 31
    assert first == again != new_data(world).run_requests[0].run_key


def test_new_data_asks_for_nothing_where_nothing_is_new(world: World) -> None:
    world.run_all()
    data = new_data(world)
    assert not data.run_requests
    assert data.skip_message == "None of 3 datasets has new data to read."


def test_new_data_asks_for_a_run_that_honours_a_startpoint(world: World) -> None:
    world.run_all()
    store = world.binding.project.open_store()
    now = datetime.now(UTC)
    keys = set()
    for _ in range(2):
        store.save_startpoint(Startpoint("numbers", "a", Upcoming(), now, now + timedelta(days=1), "anna@host"))
        (request,) = new_data(world).run_requests
        assert request.run_config == run_config("numbers", ["a"])
        keys.add(request.run_key)
    assert len(keys) == 2, "a startpoint in the place of another one is another request"
    store.close()


def test_new_data_leaves_datasets_to_the_run_that_works_on_them(world: World) -> None:
    store = world.binding.project.open_store()
    store.acquire_leases("numbers", ["a"], LeaseOwner.current("alive"), timedelta(minutes=5))
    store.acquire_leases("numbers", ["b/1"], dead_owner("dead"), timedelta(minutes=5))
    (request,) = new_data(world).run_requests
    assert request.run_config == run_config("numbers", ["b/1", "c c"])
    store.close()


def test_run_of_a_request_leaves_nothing_to_ask_for(world: World) -> None:
    (request,) = new_data(world).run_requests
    job = world.definitions.resolve_job_def("numbers_job")
    assert job.execute_in_process(instance=world.instance, run_config=request.run_config).success
    assert not new_data(world).run_requests
    assert world.status() == ({"a", "b/1", "c%20c"}, set())


def test_sweep_reports_commits_of_the_command_line_without_a_run(world: World) -> None:
    result = world.run_elsewhere()
    data = sweep(world)
    assert not data.run_requests
    assert world.status("all") == world.status("masked") == ({"a", "b/1", "c%20c"}, set())
    (event,) = world.events("a")
    assert event[md.RUN_ID] == result.run_id


def test_sweep_reports_each_commit_once_and_marks_it_when_dagster_has_it(world: World) -> None:
    world.run_elsewhere()
    store = world.binding.project.open_store()
    sweep(world)
    assert len(store.load_unreported("numbers")) == 3  # not before the daemon has stored the events
    assert not sweep(world).asset_events
    assert store.load_unreported("numbers") == []
    assert len(world.events("a")) == 1
    store.close()


def test_sweep_reports_one_commit_after_the_other_of_a_dataset_with_checks(world: World) -> None:
    """Dagster refuses a second evaluation of a check for the same partition where there is no run to tell them
    apart."""
    world.parts["row_policies"] = [{"name": "has_value", "type": "not_null", "columns": ["value"]}]
    world.parts["task_policies"] = [{"type": "row_count"}]
    for rows in (10, 20, 30):
        world.datasets["a"]["rows"] = rows
        world.run_elsewhere()
        sweep(world)
    assert [event[md.ACTUAL_HIGH] for event in world.events("a")] == ["30", "20", "10"]
    assert world.events("a")[0][md.REJECTED + "has_value"] == 1


def test_sweep_and_run_never_report_the_same_commit(world: World) -> None:
    world.parts["task_policies"] = [{"type": "row_count"}]
    world.run_elsewhere()
    sweep(world)
    assert world.checked("row_count") == {}
    world.run_all()
    assert len(world.events("a")) == 1
    assert world.checked("row_count") == {"succeeded": {"a", "b/1", "c%20c"}}, "a run can tell what the sweep cannot"


def test_sweep_gives_a_new_job_its_partitions_so_that_pages_can_start_it(world: World) -> None:
    data = sweep(world, None)
    assert not data.run_requests
    assert world.instance.get_dynamic_partitions("numbers.dataset_urn") == ["a", "b/1", "c%20c"]
    assert world.run_range("a", "c%20c").success


def test_sweep_plans_no_job_that_has_partitions(world: World) -> None:
    world.add_partitions("a")
    sweep(world, None)
    assert world.instance.get_dynamic_partitions("numbers.dataset_urn") == ["a"]


def test_sweep_tells_only_the_newest_of_several_commits(world: World) -> None:
    for rows in (10, 20, 30):
        world.datasets["a"]["rows"] = rows
        world.run_elsewhere()
    for _ in range(3):
        sweep(world)
    assert [event[md.ACTUAL_HIGH] for event in world.events("a")] == ["30"]


def test_sweep_tells_a_bounded_number_of_commits_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensors, "TOLD_AT_ONCE", 2)
    world.run_elsewhere()
    told = [len(sweep(world).asset_events) for _ in range(5)]
    assert told == [4, 0, 2, 0, 0], "two branches each; the tick after tells that Dagster has heard"
    assert world.status() == ({"a", "b/1", "c%20c"}, set())


def test_sweep_tells_a_new_instance_everything_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensors, "TOLD_AT_ONCE", 2)
    world.run_all()
    with dg.DagsterInstance.ephemeral() as other:
        world.instance = other
        cursor, told = None, []
        for _ in range(4):
            data = sweep(world, cursor)
            cursor = data.cursor
            told.append(len(data.asset_events))
        assert told == [4, 2, 0, 0]
        assert world.status() == ({"a", "b/1", "c%20c"}, set())
        assert not sweep(world, None).asset_events, "a reset cursor compares, and tells only what is unknown"


def test_sweeps_of_two_instances_each_tell_what_others_committed(world: World) -> None:
    """A run tells its own instance; the sweep of the other one tells there, also long after it has begun."""
    first, cursors = world.instance, dict[str, str | None]()
    with dg.DagsterInstance.ephemeral() as second:

        def ticks(times: int = 2) -> list[int]:
            told = []
            for name, world.instance in (("first", first), ("second", second)):
                told.append(0)
                for _ in range(times):
                    data = sweep(world, cursors.get(name))
                    cursors[name] = data.cursor
                    told[-1] += len(data.asset_events)
            world.instance = first
            return told

        assert ticks() == [0, 0]
        world.run_all()
        assert ticks() == [0, 6], "three datasets of two branches"
        world.datasets["a"]["rows"] = 31
        world.run_elsewhere()
        assert ticks() == [2, 2]
        world.instance = second
        world.datasets["c c"]["rows"] = 21
        world.run_all()
        assert ticks() == [2, 0]
        assert ticks() == [0, 0]
        world.instance = second
        assert [event[md.ACTUAL_HIGH] for event in world.events("a")] == ["31", "30"]


def test_commit_is_seen_that_took_long_to_publish(world: World) -> None:
    """Its state has an older time than states that were seen before it."""
    world.run_elsewhere()
    cursor = json.loads(sweep(world, None).cursor)["numbers"]
    late = datetime.fromisoformat(cursor["until"]) + OVERLAP / 2
    later = dump_cursors({"numbers": SweepCursor(late, cursor["known"])})
    world.datasets["a"]["rows"] = 31
    world.run_elsewhere()
    assert [event.partition for event in sweep(world, later).asset_events] == ["a", "a"]


def dead_owner(run_id: str) -> LeaseOwner:
    """Return the owner that stands for a process of this machine that was killed."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    owner = LeaseOwner.current(run_id)
    started = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    return dataclasses.replace(owner, pid=child.pid, started=started)


def test_sweep_ends_a_run_whose_process_is_gone(world: World) -> None:
    job = world.definitions.resolve_job_def("numbers_job")
    run = world.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    store = world.binding.project.open_store()
    store.acquire_leases("numbers", ["a"], dead_owner(run.run_id), timedelta(minutes=5))
    sweep(world)
    found = world.instance.get_run_by_id(run.run_id)
    assert found is not None
    assert found.status is dg.DagsterRunStatus.FAILURE
    store.close()


def test_sweep_leaves_a_living_run_alone(world: World) -> None:
    job = world.definitions.resolve_job_def("numbers_job")
    run = world.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    store = world.binding.project.open_store()
    store.acquire_leases("numbers", ["a"], LeaseOwner.current(run.run_id), timedelta(minutes=5))
    sweep(world)
    found = world.instance.get_run_by_id(run.run_id)
    assert found is not None
    assert found.status is dg.DagsterRunStatus.STARTED
    store.close()


def test_sweep_leaves_a_run_alone_that_left_a_dataset_to_the_next_one(world: World) -> None:
    """As it does with one whose manifest it could not write; it goes on with the others."""
    job = world.definitions.resolve_job_def("numbers_job")
    run = world.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    store = world.binding.project.open_store()
    grant = store.acquire_leases("numbers", ["a", "b/1"], LeaseOwner.current(run.run_id), timedelta(minutes=5))
    for left in grant.granted.values():
        store.leave_leases("numbers", {left.dataset_urn: left.epoch})
        sweep(world)
        found = world.instance.get_run_by_id(run.run_id)
        assert found is not None
        assert found.status is dg.DagsterRunStatus.STARTED
    store.close()


def leave_prepared(world: World) -> str:
    """Stop the publication of dataset `a` after its write-ahead, as a crash would; return the sequence's id."""
    from gobblin_dagster.core.selection import Selection
    from gobblin_dagster.engine.commit.listener import SilentListener
    from gobblin_dagster.engine.job_context import JobContext
    from gobblin_dagster.engine.run.job_run import JobRun
    from gobblin_dagster.testing.inline_runner import InlineRunner

    class Crash(SilentListener):
        def prepared(self, sequence: Any) -> None:
            raise KeyboardInterrupt

    store = world.binding.project.open_store()
    opened = JobContext.of(world.binding.project, world.job, store, Selection(urns=frozenset({"a"})))
    run = JobRun(opened, InlineRunner(), commit_listener=Crash())
    with run, pytest.raises(KeyboardInterrupt):
        run.publish(run.extract(run.plan()))
    (stored,) = store.load_sequences("numbers", {SequenceState.PREPARED})
    store.close()
    return stored.id


def test_sweep_asks_for_a_run_that_finishes_what_a_dead_one_left(world: World) -> None:
    leave_prepared(world)
    first, second = sweep(world).run_requests, sweep(world).run_requests
    assert [one.run_key for one in first] == [one.run_key for one in second]
    job = world.definitions.resolve_job_def("numbers_job")
    assert job.execute_in_process(instance=world.instance, run_config=first[0].run_config).success
    assert not sweep(world).run_requests
    (event,) = world.events("a")
    assert event[md.ACTUAL_HIGH] == "30"
    assert world.status() == ({"a"}, set())


def test_sweep_leaves_sequences_of_a_living_owner_alone(world: World) -> None:
    leave_prepared(world)
    store = world.binding.project.open_store()
    store.acquire_leases("numbers", ["a"], LeaseOwner.current("alive"), timedelta(minutes=5))
    assert not sweep(world).run_requests
    store.close()


def test_new_data_of_a_job_that_reads_everything_asks_only_behind_what_is_committed(world: World) -> None:
    world.parts["extract"] = {"namespace": "test", "table": "numbers", "type": "snapshot_only"}
    (request,) = new_data(world).run_requests
    job = world.definitions.resolve_job_def("numbers_job")
    assert job.execute_in_process(instance=world.instance, run_config=request.run_config).success
    assert not new_data(world).run_requests
    world.datasets["a"]["rows"] = 31
    assert new_data(world).run_requests[0].run_config == run_config("numbers", ["a"])


def test_new_data_tells_what_cannot_be_planned(world: World) -> None:
    world.datasets["a"]["problem"] = "its folder is gone"
    assert new_data(world).run_requests[0].run_config == run_config("numbers", ["b/1", "c c"])
    world.datasets["b/1"]["rows"] = world.datasets["c c"]["rows"] = 0
    said = "None of 3 datasets has new data to read. 1 cannot be planned; the first one: its folder is gone"
    assert new_data(world).skip_message == said


def test_new_data_never_waits_long_and_takes_a_late_answer_if_nobody_was_faster(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()

    def slow(*args: Any, **kwargs: Any) -> PollResult:
        seen = look(*args, **kwargs)
        assert go.wait(120)
        return seen

    monkeypatch.setattr(new_data_module, "look", slow)
    monkeypatch.setattr(sensors, "PATIENCE_S", 0.01)
    sensor = new_data_sensor(world.binding.project, world.job)
    assert tick(world, sensor).skip_message.startswith("Still planning, for 0 s")
    world.datasets["a"]["fail_at"] = 1
    world.run_elsewhere()  # commits all but one of what is being looked at
    go.set()
    monkeypatch.setattr(sensors, "PATIENCE_S", 30.0)
    (request,) = tick(world, sensor).run_requests
    assert request.run_config == run_config("numbers", ["a"])


def test_new_data_says_why_it_cannot_look(world: World) -> None:
    world.parts["source"] = {"type": "files", "path": "nowhere/{date:%Y-%m-%d}.csv", "format": {"type": "csv"}}
    with pytest.raises(SourceError, match="nowhere"):
        new_data(world)


def test_new_data_is_looked_for_less_often_with_spark_and_never_where_everything_always_is(world: World) -> None:
    made = world.binding.project
    assert new_data_sensor(made, world.job).minimum_interval_seconds == 10
    seldom = dataclasses.replace(made, spec=made.spec.model_copy(update={"new_data_every_s": 30}))
    assert new_data_sensor(seldom, world.job).minimum_interval_seconds == 30
    assert new_data_sensor(seldom, world.job, interval_s=15).minimum_interval_seconds == 15
    world.parts["source"] = {"type": "spark", "format": "parquet", "path": "data"}
    world.parts["extract"] = {"namespace": "test", "table": "numbers", "type": "snapshot_only"}
    sensor = new_data_sensor(world.binding.project, world.job)
    assert sensor.minimum_interval_seconds == 120
    assert "new data cannot be found" in tick(world, sensor).skip_message


def test_new_data_starts_stopped_and_sweep_running(world: World) -> None:
    project = world.binding.project
    assert new_data_sensor(project, world.job).default_status is dg.DefaultSensorStatus.STOPPED
    assert sweep_sensor(project, world.job).default_status is dg.DefaultSensorStatus.RUNNING


def several(world: World, *broken: str) -> Project:
    """Return a project of three jobs; the sources of `broken` cannot be planned."""
    missing = {"type": "files", "path": "nowhere/{date:%Y-%m-%d}.csv", "format": {"type": "csv"}}
    jobs = [
        job_spec(
            world.datasets,
            job=name,
            extract={"namespace": "test", "table": name},
            **({"source": missing} if name in broken else {}),
        )
        for name in ("first", "second", "third")
    ]
    return project(world.root, *jobs)


def test_one_sensor_asks_for_runs_of_all_jobs_of_a_project(world: World) -> None:
    made = several(world)
    sensor = new_data_sensor(made)
    assert (sensor.name, [target.job_name for target in sensor.targets]) == (
        "tests_new_data",
        ["first_job", "second_job", "third_job"],
    )
    requests = tick(world, sensor).run_requests
    assert {one.job_name: one.run_config for one in requests} == {
        f"{name}_job": run_config(name, ["a", "b/1", "c c"]) for name in ("first", "second", "third")
    }
    assert world.instance.get_dynamic_partitions("third.dataset_urn") == ["a", "b/1", "c%20c"]
    run(world.root, made.job("second"))
    assert {one.job_name for one in tick(world, sensor).run_requests} == {"first_job", "third_job"}


class Counting(Project):
    """Counts how often its store is opened."""

    opened = 0

    def open_store(self) -> StateStore:
        Counting.opened += 1
        return super().open_store()


def test_tick_opens_the_store_as_often_for_many_jobs_as_for_one(world: World) -> None:
    made = several(world)
    counted = Counting(made.root, made.spec, made.jobs)
    opened = []
    for job in (None, made.jobs[0]):
        Counting.opened = 0
        tick(world, new_data_sensor(counted, job))
        opened.append(Counting.opened)
    assert opened[0] == opened[1]


def test_poll_of_jobs_that_are_not_due_opens_no_store(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "plans_with_spark", lambda job: True)  # such jobs are not due at each tick
    made = world.binding.project
    counted = JobBinding.of(Counting(made.root, made.spec, made.jobs), world.job)
    polls = JobPolls([counted], GobblinSparkResource.of_project(made), 10)
    Counting.opened = 0
    assert [len(list(polls.ask(60.0))) for _ in range(2)] == [1, 0]
    assert Counting.opened == 1


def test_job_that_cannot_be_planned_stops_no_other_job_of_the_sensor(world: World) -> None:
    made = several(world, "second")
    assert {one.job_name for one in tick(world, new_data_sensor(made)).run_requests} == {"first_job", "third_job"}
    for name in ("first", "third"):
        run(world.root, made.job(name))
    with pytest.raises(SourceError, match="nowhere"):
        tick(world, new_data_sensor(made))
    with pytest.raises(EnvironmentFaultError, match=r"3 jobs have an error[\s\S]*second: .*nowhere"):
        tick(world, new_data_sensor(several(world, "first", "second", "third")))
    assert {one.partitions_def_name for one in sweep_all(world, made).dynamic_partitions_requests} == set()


def sweep_all(world: World, made: Project, cursor: str | None = None) -> Any:
    return tick(world, sweep_sensor(made), cursor)


def test_slow_job_does_not_keep_the_others_of_its_sensor_waiting(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()

    def slow(project: Project, job: JobSpec, **kwargs: Any) -> PollResult:
        assert job.job != "first" or go.wait(120)
        return look(project, job, **kwargs)

    monkeypatch.setattr(new_data_module, "look", slow)
    monkeypatch.setattr(sensors, "PATIENCE_S", 0.2)
    sensor = new_data_sensor(several(world))
    assert not tick(world, sensor).run_requests
    monkeypatch.setattr(sensors, "PATIENCE_S", 30.0)
    assert {one.job_name for one in tick(world, sensor).run_requests} == {"second_job", "third_job"}
    go.set()
    names: set[str] = set()
    while "first_job" not in names:
        names = {one.job_name for one in tick(world, sensor).run_requests}


def test_sweep_of_a_project_reports_commits_of_all_jobs_within_its_bound(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensors, "TOLD_AT_ONCE", 4)
    made = several(world)
    for job in made.jobs:
        run(world.root, job)
    cursor, told = None, []
    for _ in range(6):
        data = sweep_all(world, made, cursor)
        cursor = data.cursor
        told.append(len(data.asset_events))
    assert sum(told) == 18, "three jobs of three datasets and two branches"
    assert max(told) <= 2 * (4 + 2), "a job that comes after the bound tells one dataset"
    assert list(load_cursors(str(cursor))) == ["first", "second", "third"]


@pytest.mark.parametrize("text", ["all told", "[1]", '"x"', "{", ""])
def test_cursor_that_is_none_of_a_sweep_lets_it_compare_all(text: str) -> None:
    assert load_cursors(text) == {}


@pytest.mark.parametrize("old", ["all told", "a", {"until": "noon", "known": {}}, {"until": "0001-01-01", "known": {}}])
def test_cursor_of_an_older_version_lets_the_sweep_compare_all(old: Any) -> None:
    assert load_cursors(json.dumps({"numbers": old})) == {"numbers": SweepCursor()}


def test_cursor_forgets_what_it_need_not_look_for(world: World) -> None:
    world.run_elsewhere()
    data = sweep(world, sweep(world, None).cursor)
    cursor = load_cursors(data.cursor)["numbers"]
    assert load_cursors(dump_cursors({"numbers": cursor})) == {"numbers": cursor}
    later = dump_cursors({"numbers": dataclasses.replace(cursor, until=cursor.until + 2 * OVERLAP)})
    assert load_cursors(sweep(world, later).cursor)["numbers"].known == {}


def test_sweep_comes_to_what_is_behind_many_runs_of_one_hour(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensors, "TOLD_AT_ONCE", 1)
    first = world.instance
    with dg.DagsterInstance.ephemeral() as other:
        world.instance = other
        world.run_all(["a"])
        world.run_all(["b/1"])
        world.instance = first
        world.run_all(["c c"])
        world.instance = other
        cursor, told = None, []
        for _ in range(5):
            data = sweep(world, cursor)
            cursor = data.cursor
            told += [event.partition for event in data.asset_events]
        assert told == ["c%20c", "c%20c"], "two branches"


def test_sweep_of_a_project_compares_a_bounded_number_of_commits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made = several(world)
    for job in made.jobs:
        run(world.root, job)
    cursor = None
    for _ in range(2):
        cursor = sweep_all(world, made, cursor).cursor
    compared = []

    def counted(*asked: Any) -> bool:
        compared.append(asked)
        return is_known(*asked)

    monkeypatch.setattr(sweep_module, "is_known", counted)
    monkeypatch.setattr(sensors, "TOLD_AT_ONCE", 2)
    sweep_all(world, made)
    assert len(compared) == 2 + 1 + 1, "a job that comes after the bound compares one"
