"""X3, X4, X5: a run killed after each of its changes while it fans out startpoints and commits, on each state store."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from gobblin_dagster.core.startpoint import ALL_JOBS, Specific, Upcoming
from gobblin_dagster.engine.run.job_run import plan_job
from gobblin_dagster.spec.project import STATE_STORE
from gobblin_dagster.testing.faults import FaultPoints, kills
from tests.faults.strikes import counted, strike
from tests.faults.test_startpoints import work
from tests.unit.engine import jobs
from tests.unit.engine.jobs import project, published, run
from tests.unit.engine.parts import parts_job
from tests.unit.engine.plan.test_startpoint_keys import at, wide
from tests.unit.engine.plan.test_startpoints import state, store_of, wish

ENDS = {"a": {"p0": 4, "p1": 4, "p2": 4}}
JOB = parts_job(ENDS)
MORE = parts_job({"a": {"p0": 4, "p1": 4, "p2": 6}})
CHANGES = ("store.fan_out_startpoint", "store.pin_startpoint", "store.prepare", "store.commit")
Copy = Callable[[], Path]


@pytest.fixture(params=["sqlite", "files", pytest.param("postgres", marks=pytest.mark.postgres)])
def copies(request: pytest.FixtureRequest, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Copy]:
    """Return a folder to prepare, and a function that returns a copy of it with a copy of its state store."""
    template, root = scratch / "template", scratch / "root"
    template.mkdir()
    urls: Iterator[str] | None = None
    if request.param == "files":
        monkeypatch.setattr(jobs, "STATE", "files:state")
    if request.param == "postgres":
        server = request.getfixturevalue("postgres_server")
        first = server.new_database()
        monkeypatch.setattr(jobs, "STATE", server.url(first))
        urls = iter(lambda: server.url(server.new_database(first)), "")

    def copy() -> Path:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(template, root)
        if urls is not None:
            monkeypatch.setattr(jobs, "STATE", next(urls))
        return root

    return template, copy


def test_kill_after_each_change_of_fan_out_and_commit_applies_each_startpoint_once(copies: tuple[Path, Copy]) -> None:
    """One for all jobs and two of partitions: each is read once, and the pinned one skips nothing that comes later."""
    template, copy = copies
    run(template, JOB)
    saved = wide(template, Specific('{"p0": 3, "p1": 3}'), **at(0))
    wishes = {
        saved.id,
        wish(template, JOB, Specific("2"), partition="p1", **at(1)).id,
        wish(template, JOB, Upcoming(), partition="p2", **at(2)).id,
    }
    again = ["p0:3", "p1:2", "p1:3"]
    everything = [f"{name}:{number}" for name, end in ENDS["a"].items() for number in range(end)]
    seen = set()
    calls = trace(copy())
    for number, action in kills(calls):
        if jobs.STATE != STATE_STORE and number > 1 and calls[number - 1] not in CHANGES:
            continue  # what a kill leaves in the storage, in leases and in run records, SQLite's turn shows
        root = copy()
        assert strike(partial(project, root, JOB), number, action, partial(work, spec=JOB))
        killed = state(root, JOB)
        assert killed is not None
        is_committed = killed.version == 2
        with store_of(root, JOB) as store:
            left = {one.key.partition: one for one in store.list_startpoints(JOB.job)}
            assert store.list_startpoints(ALL_JOBS) == [saved]
            told = {one.startpoint.id for one in store.load_startpoint_events(JOB.job) if one.change == "fanned out"}
        fanned = {one.id for one in left.values() if one.generation}
        assert told == (wishes if is_committed else fanned), "the history tells neither less nor more than happened"
        assert is_committed == (saved.id in killed.applied_startpoints)
        assert not left if is_committed else {"p1", "p2"} <= left.keys()
        is_pinned = is_committed or left["p2"].pinned is not None
        seen.add((is_committed, is_pinned, len(left)))
        run(root, MORE)
        assert texts(root) == sorted([*everything, *again, *(["p2:4", "p2:5"] if is_pinned else [])])
        assert not plan_job(project(root, MORE), MORE).has_changes
    assert {(False, False), (False, True), (True, True)} == {one[:2] for one in seen}
    assert {2, 3} <= {one[2] for one in seen}, "killed before and after the one for all jobs was fanned out"


def trace(root: Path) -> list[str]:
    points = FaultPoints()
    with counted(points):
        run(root, JOB)
    return points.trace


def texts(root: Path) -> list[str]:
    return sorted(str(one) for one in published(root, JOB, "a"))
