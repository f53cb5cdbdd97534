"""A run killed before and after each of its operations while it fans out several startpoints, and while it commits."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from gobblin_dagster.core.startpoint import ALL_JOBS, Specific, Upcoming
from tests.faults.test_going_back import KILLS, strike_each_operation
from tests.faults.test_startpoints import copied, work
from tests.unit.engine.jobs import by_urn, published, run
from tests.unit.engine.parts import parts_job
from tests.unit.engine.plan.test_startpoint_keys import at, wide
from tests.unit.engine.plan.test_startpoints import state, store_of, wish

ENDS = {"a": {"p0": 4, "p1": 4, "p2": 4}}
JOB = parts_job(ENDS)
MORE = parts_job({"a": {"p0": 4, "p1": 4, "p2": 6}})


@pytest.mark.parametrize("kill", KILLS)
def test_crash_at_each_operation_of_fan_out_and_commit_applies_each_startpoint_once(tmp_path: Path, kill: str) -> None:
    """X3, X4, X5: one for all jobs and two of partitions; the pinned one skips nothing that comes later."""
    root, restore = copied(tmp_path)
    template = tmp_path / "template"
    run(template, JOB)
    saved = wide(template, Specific('{"p0": 3, "p1": 3}'), **at(0))
    wish(template, JOB, Specific("2"), partition="p1", **at(1))
    wish(template, JOB, Upcoming(), partition="p2", **at(2))
    restore()
    again = ["p0:3", "p1:2", "p1:3"]
    everything = [f"{name}:{number}" for name, end in ENDS["a"].items() for number in range(end)]
    pinned, consumed = set(), set()
    for _ in strike_each_operation(root, KILLS[kill], partial(work, spec=JOB)):
        killed = state(root, JOB)
        assert killed is not None
        with store_of(root, JOB) as store:
            left = {one.key.partition: one for one in store.list_startpoints(JOB.job)}
            assert store.list_startpoints(ALL_JOBS) == [saved]
        assert (killed.version == 2) == (saved.id in killed.applied_startpoints)
        assert left == {} or killed.version == 1, "none is left after the commit, none is lost before it"
        assert {"p1", "p2"} <= left.keys() or killed.version == 2
        pinned.add("p2" in left and left["p2"].pinned is not None)
        consumed.add(killed.version == 2)
        run(root, MORE)
        is_old = killed.version == 2 or ("p2" in left and left["p2"].pinned is not None)
        new = ["p2:4", "p2:5"] if is_old else []
        assert texts(root) == sorted([*everything, *again, *new])
        assert by_urn(run(root, MORE))["a"].rows_read == 0
        restore()
    assert (pinned, consumed) == ({True, False}, {True, False})


def texts(root: Path) -> list[str]:
    return sorted(str(one) for one in published(root, JOB, "a"))
