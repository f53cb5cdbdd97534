"""Startpoints of partitions, of jobs and of all jobs: which one wins, what is read, and who applies it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gobblin_dagster.constructs.registry import ConstructKind, registry
from gobblin_dagster.core import serialization
from gobblin_dagster.core.run_record import DatasetOutcome
from gobblin_dagster.core.startpoint import (
    ALL_JOBS,
    Oldest,
    Specific,
    Startpoint,
    StartpointPosition,
    Timestamp,
    Upcoming,
)
from gobblin_dagster.engine.maintenance.clean import clean
from gobblin_dagster.engine.maintenance.state_history import history
from gobblin_dagster.engine.plan.source_identity import source_identity
from gobblin_dagster.engine.run.job_run import plan_job
from gobblin_dagster.engine.run.startpoint_preview import preview_startpoints, settable, wished_startpoints
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.state.startpoints import StartpointManager
from tests.unit.engine.jobs import by_urn, job_spec, project, run
from tests.unit.engine.parts import PartsSource, parts_job
from tests.unit.engine.plan.test_startpoints import planned, run_of, store_of, wish

ENDS = {"a": {"p0": 4, "p1": 4}}
JOB = parts_job(ENDS)
NOW = datetime.now(UTC)


def ids(root: Path, job: JobSpec = JOB, urn: str = "a") -> list[str]:
    """Return the published rows of the newest commit alone."""
    with store_of(root, job) as store:
        newest = store.load_dataset_states(job.job)[urn].snapshot
        files = [one for one in store.load_snapshot(job.job, urn) if one.branch == "all" and one.snapshot == newest]
        return sorted(value for file in files for value in pq.read_table(file.path)["id"].to_pylist())


def waits(root: Path, job: str = JOB.job) -> list[str]:
    with store_of(root, JOB) as store:
        return [str(one) for one in store.list_startpoints(job)]


def at(seconds: float) -> dict[str, Any]:
    return {"created_at": NOW - timedelta(minutes=1) + timedelta(seconds=seconds)}


@pytest.mark.parametrize(
    ("position", "read"),
    [
        (Specific("3"), ["p0:3"]),
        (Oldest(), ["p0:0", "p0:1", "p0:2", "p0:3"]),
        (Timestamp(NOW.replace(minute=2)), ["p0:2", "p0:3"]),
    ],
    ids=["specific", "oldest", "timestamp"],
)
def test_startpoint_of_a_partition_moves_this_partition_alone(
    tmp_path: Path, position: StartpointPosition, read: list[str]
) -> None:
    run(tmp_path, JOB)
    wish(tmp_path, JOB, position, partition="p0")
    assert by_urn(run(tmp_path, JOB))["a"].rows_read == len(read)
    assert ids(tmp_path) == read
    assert waits(tmp_path) == []


def test_upcoming_of_a_partition_skips_this_partition_alone(tmp_path: Path) -> None:
    run(tmp_path, JOB)
    more = parts_job({"a": {"p0": 6, "p1": 6}})
    wish(tmp_path, more, Upcoming(), partition="p0")
    run(tmp_path, more)
    assert ids(tmp_path) == ["p1:4", "p1:5"]
    assert by_urn(run(tmp_path, more))["a"].outcome is DatasetOutcome.IDLE


def test_newer_startpoint_of_a_wider_key_beats_an_older_narrow_one(tmp_path: Path) -> None:
    run(tmp_path, JOB)
    wish(tmp_path, JOB, Oldest(), partition="p0", **at(0))
    wish(tmp_path, JOB, Specific('{"p0": 3, "p1": 3}'), **at(1))
    run(tmp_path, JOB)
    assert ids(tmp_path) == ["p0:3", "p1:3"]
    assert waits(tmp_path) == [], "the one that lost is consumed, too"


def test_newer_startpoint_of_a_partition_beats_the_wide_one_there_alone(tmp_path: Path) -> None:
    run(tmp_path, JOB)
    wish(tmp_path, JOB, Specific('{"p0": 3, "p1": 3}'), **at(0))
    wish(tmp_path, JOB, Specific("2"), partition="p0", **at(1))
    assert planned(tmp_path, JOB).notes[0].startswith("begins at {p0:2, p1:3}, by the startpoints")
    run(tmp_path, JOB)
    assert ids(tmp_path) == ["p0:2", "p0:3", "p1:3"]


def test_first_run_of_a_dataset_takes_the_startpoint_of_a_partition(tmp_path: Path) -> None:
    wish(tmp_path, JOB, Specific("3"), partition="p1")
    run(tmp_path, JOB)
    assert ids(tmp_path) == ["p0:0", "p0:1", "p0:2", "p0:3", "p1:3"]


def test_vanished_partition_is_reported_and_its_startpoint_waits(tmp_path: Path) -> None:
    run(tmp_path, JOB)
    gone = wish(tmp_path, JOB, Oldest(), partition="p7")
    assert planned(tmp_path, JOB).notes == (
        "its startpoint p7 at oldest waits: the source does not have partition p7 now.",
    )
    assert by_urn(run(tmp_path, JOB))["a"].outcome is DatasetOutcome.IDLE
    more = parts_job({"a": {"p0": 5, "p1": 4}})
    assert by_urn(run(tmp_path, more))["a"].rows_read == 1
    assert waits(tmp_path) == [str(gone)]


def test_dataset_without_partitions_refuses_the_startpoint_of_one(tmp_path: Path) -> None:
    job = job_spec({"a": {"rows": 3}})
    wish(tmp_path, job, Oldest(), partition="p0")
    assert "the dataset has no partitions with positions of their own" in planned(tmp_path, job).problem


def wide(root: Path, position: StartpointPosition, **parts: Any) -> Startpoint:
    source = source_identity(JOB, PartsSource)
    stored = replace(wish(root, JOB, position, **parts), job=ALL_JOBS, source=source)
    with store_of(root, JOB) as store:
        store.delete_startpoint(replace(stored, job=JOB.job), "anna@host")
        store.save_startpoint(stored)
    return stored


@pytest.mark.parametrize("source", ["files", "kafka", "python", "query", "rest", "spark"])
def test_sources_whose_other_traits_are_properties_can_have_startpoints_for_all_jobs(source: str) -> None:
    """What a class alone is asked for is its identity: what depends on options has no value there."""
    cls = registry.load(ConstructKind.SOURCE, source)
    assert source_identity(JOB, cls).startswith(f"{JOB.source.type}:")


def test_startpoint_for_all_jobs_is_applied_once_by_each_job_of_the_source(tmp_path: Path) -> None:
    jobs = [JOB, parts_job(ENDS, "second"), parts_job(ENDS, "elsewhere", brokers="there")]
    for job in jobs:
        run(tmp_path, job)
    saved = wide(tmp_path, Specific('{"p0": 3}'))
    for _ in range(2):
        assert [by_urn(run(tmp_path, job))["a"].rows_read for job in jobs] in ([1, 1, 0], [0, 0, 0])
        assert waits(tmp_path, ALL_JOBS) == [str(saved)]
    assert [ids(tmp_path, job) for job in jobs[:2]] == [["p0:3"]] * 2
    newcomer = parts_job(ENDS, "newcomer")
    run(tmp_path, newcomer)
    assert ids(tmp_path, newcomer) == ["p0:3", "p1:0", "p1:1", "p1:2", "p1:3"]


def test_startpoint_for_all_jobs_is_not_shown_for_datasets_that_a_job_does_not_have(tmp_path: Path) -> None:
    wide(tmp_path, Oldest(), dataset_urn="other")
    assert [one.dataset_urn for one in plan_job(project(tmp_path, JOB), JOB).datasets] == ["a"]


def test_own_startpoint_that_is_newer_wins_and_consumes_the_one_for_all_jobs_too(tmp_path: Path) -> None:
    run(tmp_path, JOB)
    wide(tmp_path, Oldest(), **at(0))
    wish(tmp_path, JOB, Specific('{"p0": 3, "p1": 3}'), **at(1))
    run(tmp_path, JOB)
    assert ids(tmp_path) == ["p0:3", "p1:3"]
    assert by_urn(run(tmp_path, JOB))["a"].outcome is DatasetOutcome.IDLE


def test_fan_out_survives_a_crash_and_the_end_of_the_wide_startpoint(tmp_path: Path) -> None:
    run(tmp_path, JOB)
    saved = wide(tmp_path, Upcoming())
    with run_of(tmp_path, JOB) as dies:
        dies.extract(dies.plan())
    with store_of(tmp_path, JOB) as store:
        manager = StartpointManager(store)
        (fanned,) = manager.fan_outs(JOB.job).values()
        assert (fanned.id, fanned.generation, fanned.is_copy) == (saved.id, 2, True)
        assert manager.delete(saved.key) == saved
    more = parts_job({"a": {"p0": 6, "p1": 4}})
    run(tmp_path, more)
    assert ids(tmp_path) == ["p0:4", "p0:5"], "pinned when it was fanned out: what came later is read"
    assert waits(tmp_path) == []


def test_new_startpoint_for_one_partition_keeps_the_uncommitted_fan_out_of_another(tmp_path: Path) -> None:
    """X1."""
    run(tmp_path, JOB)
    wish(tmp_path, JOB, Specific("3"), partition="p0")
    with run_of(tmp_path, JOB) as dies:
        dies.extract(dies.plan())
    wish(tmp_path, JOB, Specific("2"), partition="p1")
    run(tmp_path, JOB)
    assert ids(tmp_path) == ["p0:3", "p1:2", "p1:3"]
    assert waits(tmp_path) == []


def test_startpoint_for_another_partition_set_while_a_run_works_is_left_for_the_next(tmp_path: Path) -> None:
    """X14, across keys: the run deletes by id."""
    run(tmp_path, JOB)
    wish(tmp_path, JOB, Specific("3"), partition="p0")
    with run_of(tmp_path, JOB) as running:
        decided = running.extract(running.plan())
        newer = wish(tmp_path, JOB, Oldest())
        running.publish(decided)
    assert ids(tmp_path) == ["p0:3"]
    assert waits(tmp_path) == [str(newer)]


def test_expired_ones_are_deleted_and_noted(tmp_path: Path) -> None:
    run(tmp_path, JOB)
    long_ago = NOW - timedelta(days=9)
    old: dict[str, Any] = {"created_at": long_ago, "expires_at": long_ago + timedelta(days=7)}
    wish(tmp_path, JOB, Oldest(), partition="p0", **old)
    wide(tmp_path, Oldest(), dataset_urn="other", **old)
    assert "expired at" in planned(tmp_path, JOB).notes[0]
    assert by_urn(run(tmp_path, JOB))["a"].outcome is DatasetOutcome.IDLE
    assert waits(tmp_path) == []
    clean(project(tmp_path, JOB), JOB)
    assert waits(tmp_path, ALL_JOBS) == []
    with store_of(tmp_path, JOB) as store:
        events = [*store.load_startpoint_events(JOB.job), *store.load_startpoint_events(ALL_JOBS)]
    assert [event.startpoint.dataset_urn for event in events if event.change == "expired"] == ["a", "other"]


# -- topics that are created again -------------------------------------------------------------------------------------
LOGS = {"a": {"p-0": 4, "q-0": 4}}
OLD_LOGS, NEW_LOGS = parts_job(LOGS, ids={"p": "old", "q": "same"}), parts_job(LOGS, ids={"p": "new", "q": "same"})


def people_set(root: Path, position: StartpointPosition, partition: str = "", job: JobSpec = OLD_LOGS) -> Startpoint:
    """Store a startpoint as people do, after a preview."""
    with store_of(root, job) as store:
        now, opened = store.now(), project(root, job)
        wishes = wished_startpoints(
            opened,
            job,
            "a",
            position,
            who="anna@host",
            why="snow",
            now=now,
            expires_at=now + timedelta(days=7),
            store=store,
            partition=partition,
            on_rewind="append",
        )
        plans = preview_startpoints(opened, job, wishes, store=store)
        (one,) = settable(wishes, {(job.job, urn): plan for urn, plan in plans.items()})
        return StartpointManager(store).save(one)


@pytest.mark.parametrize("is_first", [True, False], ids=["first run", "later run"])
@pytest.mark.parametrize(("position", "partition"), [("2", "p-0"), ('{"p-0": 2, "q-0": 1}', "")])
def test_watermark_set_before_its_topic_was_created_again_is_refused(
    tmp_path: Path, position: str, partition: str, is_first: bool
) -> None:
    """The position lay in the old topic; another one at the same place is other data."""
    if not is_first:
        run(tmp_path, OLD_LOGS)
    saved = people_set(tmp_path, Specific(position), partition)
    assert saved.origin == {"p": "old", "q": "same"}
    assert not planned(tmp_path, OLD_LOGS).problem
    problem = "p was created again or changed since then, so the position means nothing: it was old, now it is new"
    assert problem in planned(tmp_path, NEW_LOGS).problem
    failed = by_urn(run(tmp_path, NEW_LOGS))["a"]
    assert (failed.outcome, failed.failures[0].code) == (DatasetOutcome.FAILED, "startpoint")
    assert waits(tmp_path) == [str(saved)]
    people_set(tmp_path, Specific(position), partition, NEW_LOGS)
    assert by_urn(run(tmp_path, NEW_LOGS))["a"].outcome is DatasetOutcome.COMMITTED


def test_topic_of_another_partition_and_positions_that_are_no_watermarks_do_not_matter(tmp_path: Path) -> None:
    assert people_set(tmp_path, Oldest()).origin == {}
    assert not planned(tmp_path, NEW_LOGS).problem
    people_set(tmp_path, Specific("2"), "q-0")
    assert not planned(tmp_path, NEW_LOGS).problem


def test_fan_out_keeps_the_ids_of_a_watermark_that_a_program_set(tmp_path: Path) -> None:
    wish(tmp_path, OLD_LOGS, Specific("2"), partition="p-0")
    with run_of(tmp_path, OLD_LOGS) as dies:
        dies.extract(dies.plan())
    with store_of(tmp_path, OLD_LOGS) as store:
        (left,) = store.list_startpoints(OLD_LOGS.job)
    assert (left.generation, left.origin) == (1, {"p": "old", "q": "same"})
    assert "created again" in planned(tmp_path, NEW_LOGS).problem


# -- partitions and datasets that vanished -----------------------------------------------------------------------------
@pytest.mark.parametrize("is_for_all", [False, True], ids=["one job", "all jobs"])
@pytest.mark.parametrize("left", [{"a": {"p1": 6}}, {"b": {"p1": 6}}], ids=["partition", "dataset"])
def test_fanned_out_startpoint_of_what_vanished_waits_and_expires(
    tmp_path: Path, left: dict[str, dict[str, int]], is_for_all: bool
) -> None:
    """X11: reported each time, deleted after its time, and told in the history. One that is pinned stays."""
    run(tmp_path, JOB)
    pinned = wish(tmp_path, JOB, Upcoming(), partition="p1")
    if is_for_all:
        saved = wide(tmp_path, Specific("2"), partition="p0")
    else:
        saved = wish(tmp_path, JOB, Specific("2"), partition="p0")
    with run_of(tmp_path, JOB) as dies:
        dies.extract(dies.plan())
    less = parts_job(left)
    assert "waits" in " ".join(planned(tmp_path, less).notes)
    past: dict[str, Any] = {"created_at": NOW - timedelta(days=30), "expires_at": NOW - timedelta(days=23)}
    with store_of(tmp_path, JOB) as store:
        for stored in (*store.list_startpoints(JOB.job), *store.list_startpoints(ALL_JOBS)):
            assert store.pin_startpoint(replace(stored, **past), "run-1")
    assert not planned(tmp_path, JOB).problem, "while its partition is there, it is applied"
    assert "its startpoint p0 at 2 of anna@host expired at" in " ".join(planned(tmp_path, less).notes)
    run(tmp_path, less)
    run(tmp_path, less)
    with store_of(tmp_path, JOB) as store:
        stays = [one.id for one in store.list_startpoints(JOB.job)]
        assert store.list_startpoints(ALL_JOBS) == []
        events = [*store.load_startpoint_events(JOB.job), *store.load_startpoint_events(ALL_JOBS)]
    assert stays == ([] if "a" in left else [pinned.id])
    assert {one.startpoint.id for one in events if one.change == "expired"} == {saved.id}


def test_startpoint_from_the_future_is_refused_when_it_is_used(tmp_path: Path) -> None:
    """X10: a store that another program or an older version wrote may hold one."""
    run(tmp_path, JOB)
    created = NOW + timedelta(days=400)
    saved = wish(tmp_path, JOB, Oldest(), created_at=created, expires_at=created + timedelta(days=7))
    assert "ahead of the state store's clock" in planned(tmp_path, JOB).problem
    assert by_urn(run(tmp_path, JOB))["a"].outcome is DatasetOutcome.FAILED
    assert waits(tmp_path) == [str(saved)]


def test_startpoint_on_one_of_35_datasets_leaves_the_others_byte_for_byte(tmp_path: Path) -> None:
    names = [f"d{number:02}" for number in range(35)]
    job = parts_job({name: {"p0": 3, "p1": 2} for name in names})
    run(tmp_path, job)

    def others() -> tuple[dict[str, bytes], dict[str, str]]:
        files = [path for path in (tmp_path / "lake").rglob("*") if path.is_file() and "d07" not in path.as_posix()]
        with store_of(tmp_path, job) as store:
            states = store.load_dataset_states(job.job)
        stored = {urn: serialization.to_json(state) for urn, state in states.items() if urn != "d07"}
        return {path.as_posix(): path.read_bytes() for path in files}, stored

    before = others()
    assert len(before[1]) == 34
    wish(tmp_path, job, Oldest(), "d07", partition="p0")
    result = by_urn(run(tmp_path, job))
    assert result["d07"].rows_read == 3
    assert {one.outcome for urn, one in result.items() if urn != "d07"} == {DatasetOutcome.IDLE}
    assert others() == before


def test_history_names_every_startpoint_that_a_commit_applied(tmp_path: Path) -> None:
    run(tmp_path, JOB)
    wish(tmp_path, JOB, Specific("3"), partition="p0", **at(0))
    wish(tmp_path, JOB, Specific("2"), partition="p1", **at(1))
    run(tmp_path, JOB)
    with store_of(tmp_path, JOB) as store:
        entry = history(store, JOB.job, "a")[-1]
    assert (entry.by, entry.who) == ("startpoint", "anna@host")
    assert entry.why.startswith("startpoint p1 at 2: snow")
