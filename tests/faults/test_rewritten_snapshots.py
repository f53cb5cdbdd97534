"""Snapshots that drop files: what each holds, whatever is published, merged, rolled back, cleaned up or killed
between."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.engine.commit import manifest
from gobblin_dagster.engine.maintenance.clean import clean
from gobblin_dagster.engine.maintenance.compact import compact
from gobblin_dagster.engine.maintenance.replay import replay_quarantine
from gobblin_dagster.engine.maintenance.rollback import rollback
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.engine.snapshots.reader import load_published, read_published
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.testing.faults import (
    CRASHED,
    Fault,
    FaultPoints,
    crash_after,
    kills,
    run_in_child,
)
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.faults.strikes import FaultyProject
from tests.unit.engine.jobs import job_spec, project, run

KEEP = 3


def _job(rows: int, **parts: Any) -> JobSpec:
    branches = [{"name": "new", "publisher": {"type": "replace"}}, {"name": "all"}]
    settings = {"fork": {"branches": branches}, "commit": {"keep_snapshots": KEEP}, "execution": {"merge_bytes": 0}}
    return job_spec({"a": {"rows": rows, "unit_rows": 2}}, **(settings | parts))


def _ids(root: Path, snapshot: int | None = None) -> tuple[list[int], list[int]]:
    """Return the ids of both branches, as manifests and store agree on."""
    found = read_published(root / "lake", "numbers", "a", snapshot)
    assert found == load_published(project(root, _job(0)), _job(0), "a", snapshot)
    new, everything = (
        sorted(found.to_arrow(name).to_table()["id"].to_pylist()) if name in found.rows else []
        for name in ("new", "all")
    )
    return new, everything


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.storm) for seed in (2, 3))])
def test_any_history_of_publications_merges_rollbacks_and_clean_ups_reads_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(manifest, "WHOLE_EVERY", 4)
    chance = random.Random(seed)
    expected: list[tuple[list[int], list[int]]] = [([], [])]
    oldest, rows, kept = 1, 0, {0: 0}  # kept: rows read when a snapshot was made
    for _ in range(14):
        newest, job = len(expected) - 1, _job(rows)
        action = chance.choice(
            ["publish", "publish", "publish", "merge", "roll back", "clean"] if newest else ["publish"]
        )
        if action == "publish":
            more = chance.randint(1, 5)
            run(tmp_path, _job(rows + more))
            expected.append((list(range(rows, rows + more)), list(range(rows + more))))
            rows += more
        elif action == "merge":
            done = compact(project(tmp_path, job), job)
            assert [one.problem for one in done] in ([], [""])
            expected += [expected[-1]] * bool(done)
        elif action == "roll back" and newest > oldest:
            to = chance.randint(oldest, newest - 1)
            rollback(project(tmp_path, job), job, "a", to)
            expected.append(expected[to])
            rows = kept[to]
        elif action == "clean":
            if clean(project(tmp_path, job), job).expired:
                oldest = max(oldest, newest - KEEP + 1)
            files = set((tmp_path / "lake/test").rglob("*.parquet"))
            named = {
                Path(file.path)
                for number in range(oldest, newest + 1)
                for file in read_published(tmp_path / "lake", "numbers", "a", number).files
            }
            assert named <= files
            assert oldest < newest - KEEP + 1 or files == named, "a file that no kept snapshot holds was left"
        kept[len(expected) - 1] = rows
        for number in range(1, len(expected)):
            if number >= oldest:
                assert _ids(tmp_path, number) == expected[number], (seed, number)
            else:
                with pytest.raises(UsageError, match="has expired"):
                    read_published(tmp_path / "lake", "numbers", "a", number)
        assert _ids(tmp_path) == expected[-1]


def _run_with(points: FaultPoints, root: Path, job: JobSpec) -> None:
    FaultyProject.points = points
    run_job(FaultyProject(root, ProjectSpec(project="tests"), (job,)), job, runner=InlineRunner())


def _clean_with(points: FaultPoints, root: Path, job: JobSpec) -> None:
    FaultyProject.points = points
    clean(FaultyProject(root, ProjectSpec(project="tests"), (job,)), job)


def test_killed_replacement_shows_the_old_snapshot_or_the_new_one(tmp_path: Path) -> None:
    root, saved, job = tmp_path / "project", tmp_path / "saved", _job(6)
    run(root, _job(3))
    shutil.copytree(root, saved)
    old, new = ([0, 1, 2], [0, 1, 2]), ([3, 4, 5], [0, 1, 2, 3, 4, 5])
    watch = FaultPoints()
    _run_with(watch, root, job)
    for number, action in kills(watch.trace):
        shutil.rmtree(root)
        shutil.copytree(saved, root)
        assert run_in_child(partial(_run_with, FaultPoints(Fault(number, action)), root, job)) == CRASHED
        found = read_published(root / "lake", "numbers", "a")
        assert (found.rows["new"], found.rows["all"]) in ((3, 3), (3, 6)), (number, watch.trace[number - 1])
        for _ in range(2):
            run(root, job)
        assert _ids(root) == new, (number, watch.trace[number - 1])
        assert _ids(root, 1) == old, (number, watch.trace[number - 1])


def test_killed_clean_up_never_takes_a_file_of_a_kept_snapshot(tmp_path: Path) -> None:
    root, saved, job = tmp_path / "project", tmp_path / "saved", _job(8)
    for rows in (2, 4, 6, 8):
        run(root, _job(rows))
    shutil.copytree(root, saved)
    watch = FaultPoints()
    _clean_with(watch, root, job)
    assert "storage.delete" in watch.trace
    for number, action in kills(watch.trace):
        shutil.rmtree(root)
        shutil.copytree(saved, root)
        assert run_in_child(partial(_clean_with, FaultPoints(Fault(number, action)), root, job)) == CRASHED
        for attempt in ("killed", "finished"):
            found = [_ids(root, snapshot)[0] for snapshot in (2, 3, 4)]
            assert found == [[2, 3], [4, 5], [6, 7]], (number, watch.trace[number - 1], attempt)
            run(root, job)
            clean(project(root, job), job)


TAKERS: dict[str, Callable[[Project, JobSpec], object]] = {
    "clean": clean,
    "compact": compact,
    "replay": lambda opened, job: replay_quarantine(opened, job, "a"),
}


@pytest.mark.parametrize("taker", TAKERS)
def test_manifest_that_a_killed_run_left_out_is_written_by_whoever_takes_its_lease(tmp_path: Path, taker: str) -> None:
    job, watch = _job(2), FaultPoints()  # one file of each branch: nothing to merge, nothing to replay
    _run_with(watch, tmp_path / "undisturbed", job)
    at = watch.trace.index("store.commit") + 1
    assert run_in_child(partial(_run_with, FaultPoints(Fault(at, crash_after)), tmp_path, job)) == CRASHED
    assert read_published(tmp_path / "lake", "numbers", "a").snapshot == 0

    TAKERS[taker](project(tmp_path, job), job)

    newest = load_published(project(tmp_path, job), job, "a").snapshot
    assert read_published(tmp_path / "lake", "numbers", "a").snapshot == newest > 0
