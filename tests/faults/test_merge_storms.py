"""Merges, histories and child tables under kills: each key, version and item once, whatever dies when.

`python -m tests.faults.test_merge_storms FIRST LAST` runs the random schedules of more seeds, with Delta and Iceberg
too; `python -m tests.faults.test_merge_storms every KIND...` kills a run of `merge`, `delta` or `iceberg` (by default
of each) at each point.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.constructs.publishers.changes import Changes
from gobblin_dagster.constructs.publishers.delta_steps import MergeIntoDeltaStep
from gobblin_dagster.constructs.publishers.iceberg_steps import MergeIntoIcebergStep
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.engine.snapshots.reader import read_published
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.testing.faults import (
    CRASHED,
    Fault,
    FaultPoints,
    crash_after,
    crash_before,
    run_in_child,
)
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.faults.strikes import FaultyProject
from tests.unit.engine.jobs import job_spec

KEYS, LONGEST_RUN = 5, 130
"""Number of keys; about the number of calls of one run."""
KINDS = ("merge", "delta", "iceberg")
ROWS_BEFORE, ROWS_AFTER = 5, 9
MODES: dict[str, dict[str, Any]] = {
    "rows": {"mode": "merge"},
    "published": {"mode": "scd2"},
    "timed": {"mode": "scd2", "valid_at": "at"},
    "items": {"mode": "merge", "child_table": {"list": "items"}},
}
"""Branches: one row for each key; versions from their publication on; versions from the time in a column on; the items
of a list of each row."""


def _job(root: Path, rows: int, kind: str) -> JobSpec:
    """Return a job whose row `v` has key `v % KEYS`, so each run changes rows of earlier ones."""
    catalog = {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}/warehouse"}
    branches = []
    for name, mode in MODES.items():
        place = {"table": f"lake.{name}", "catalog": catalog} if kind == "iceberg" else {}
        lists = [{"type": "sql", "select": "k, v, [v + i FOR i IN range(v % 4)] AS items"}] if name == "items" else []
        publisher = {"type": kind, "key": ["k"], **mode, **place}
        branches.append({"name": name, "converters": lists, "publisher": publisher})
    select = f"id % {KEYS} AS k, id AS v, TIMESTAMP '2026-01-01' + to_seconds(id) AS at"
    return job_spec(
        {"a": {"rows": rows, "unit_rows": 3}},
        fork={"branches": branches},
        converters=[{"type": "sql", "select": select}],
        extract={"namespace": "test", "table": "numbers", "delta_fields": ["v"]},
    )


def _run(root: Path, rows: int, kind: str, *faults: Fault, dies: int | None = None) -> None:
    job = _job(root, rows, kind)
    FaultyProject.points = FaultPoints(*faults)
    with pytest.MonkeyPatch.context() as patched:
        if dies is not None:
            _die_inside(patched, dies)
        result = run_job(FaultyProject(root, ProjectSpec(project="tests"), (job,)), job, runner=InlineRunner())
    assert faults or dies is not None or result.status is RunStatus.SUCCEEDED, result


def _die_inside(patched: pytest.MonkeyPatch, at: int) -> None:
    """Kill the process inside of a merge, at its point number `at`, from 0.

    The points are before each merge of a table, each batch of new rows that one reads, and right after its commit.
    """
    seen = [0]

    def passed() -> None:
        seen[0] += 1
        if seen[0] > at:
            os._exit(CRASHED)

    def around(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **names: Any) -> Any:
            passed()
            found = method(*args, **names)
            passed()
            return found

        return call

    def reading(*args: Any, **names: Any) -> Iterator[Any]:
        for batch in batches(*args, **names):
            passed()
            yield batch

    batches = Changes.batches
    patched.setattr(Changes, "batches", reading)
    for step in (MergeIntoDeltaStep, MergeIntoIcebergStep):
        patched.setattr(step, "_change", around(step._change))


def _check(root: Path, rows: int, kind: str) -> None:
    for name in MODES:
        found = sorted(_rows(root, name, kind), key=lambda row: (row["k"], row["v"]))
        newest = [max(range(key, rows, KEYS)) for key in range(min(KEYS, rows))]
        if name == "rows":
            assert [row["v"] for row in found] == newest
            continue
        if name == "items":
            items = sorted((row["k"], row["items_number"], row["v"], row["value"]) for row in found)
            assert items == [(v % KEYS, i, v, v + i) for v in newest for i in range(v % 4)]
            continue
        assert [row["v"] for row in found if row["valid_to"] is None] == newest
        assert len({row["v"] for row in found}) == len(found), "a version is there twice"
        for one, following in pairwise(found):
            if one["k"] == following["k"]:
                assert one["valid_from"] < one["valid_to"] == following["valid_from"]
        if name == "timed":
            assert sorted(row["v"] for row in found) == list(range(rows))


def _rows(root: Path, branch: str, kind: str) -> list[dict[str, Any]]:
    if kind == "merge":
        found = read_published(root / "lake", "numbers", "a").to_arrow(branch).to_table()
    elif kind == "delta":
        from deltalake import DeltaTable  # in a child alone: its threads do not survive a fork

        found = DeltaTable(f"{root}/lake/test/numbers/{branch}").to_pyarrow_table()
    else:
        from pyiceberg.catalog import load_catalog  # as above

        catalog = load_catalog("default", type="sql", uri=f"sqlite:///{root}/catalog.db")
        found = catalog.load_table(f"lake.{branch}").scan().to_arrow()
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def storm(root: Path, seed: int, kind: str = "merge") -> int:
    """Run three runs that are killed at random, and one that makes good; check, and return the number of kills."""
    chance = random.Random(f"{kind} {seed}")
    rows = kills = 0
    for _ in range(3):
        rows += chance.randint(1, 6)
        fault = Fault(chance.randint(1, LONGEST_RUN), chance.choice([crash_before, crash_after]))
        inside = kind != "merge" and chance.random() < 0.6
        how = {"dies": int(chance.random() * 12)} if inside else {}
        status = run_in_child(partial(_run, root, rows, kind, *([] if inside else [fault]), **how))
        assert status in (0, CRASHED)
        kills += status == CRASHED
    for _ in range(2):  # the second one has nothing to do, and changes nothing
        assert run_in_child(partial(_run, root, rows, kind)) == 0
        assert run_in_child(partial(_check, root, rows, kind)) == 0, (kind, seed)
    return kills


@pytest.mark.parametrize("seed", range(2))
def test_each_key_and_each_version_is_published_once_whatever_is_killed(tmp_path: Path, seed: int) -> None:
    storm(tmp_path, seed)


def every_kill(root: Path, kind: str) -> Iterator[str]:
    """Kill the second run after each call to storage or state store, and inside of each merge, each time anew.

    The next run makes good, and all is checked. Yields a name for each kill.
    """
    before = root.with_name(f"{root.name}-before")
    assert run_in_child(partial(_run, root, ROWS_BEFORE, kind)) == 0
    shutil.copytree(root, before)
    for where in ("call", "merge"):
        for number in count():
            shutil.rmtree(root)
            shutil.copytree(before, root)
            run = partial(_run, root, ROWS_AFTER, kind)
            killed = partial(run, Fault(number + 1, crash_after)) if where == "call" else partial(run, dies=number)
            status = run_in_child(killed)
            if status == 0:  # beyond the last one
                break
            assert status == CRASHED, (kind, where, number)
            assert run_in_child(run) == 0, (kind, where, number)
            assert run_in_child(partial(_check, root, ROWS_AFTER, kind)) == 0, (kind, where, number)
            yield f"{kind} {where} {number}"
    shutil.rmtree(before)


def _every(kinds: list[str]) -> None:
    for kind in kinds:
        root = Path(tempfile.mkdtemp(prefix="storm"))
        for done, name in enumerate(every_kill(root, kind), 1):
            sys.stdout.write(f"{done} kills, {name}: nothing lost, nothing twice\n")
            sys.stdout.flush()
        shutil.rmtree(root)


def _main(first: int, last: int) -> None:
    done = kills = 0
    for seed in range(first, last):
        for kind in KINDS:
            root = Path(tempfile.mkdtemp(prefix="storm"))
            kills += storm(root, seed, kind)
            shutil.rmtree(root)
            done += 1
            sys.stdout.write(f"{done} schedules, {kills} kills, seed {seed} {kind}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "every":
        _every(sys.argv[2:] or [*KINDS])
    else:
        _main(int(sys.argv[1]), int(sys.argv[2]))
