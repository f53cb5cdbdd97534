"""Merges, histories and child tables under kills: each key, version and item once, whatever dies when.

`python -m tests.faults.test_merge_storms FIRST LAST` runs the random schedules of more seeds, with Delta and Iceberg
too; `python -m tests.faults.test_merge_storms every KIND...` kills a run of `merge`, `delta` or `iceberg` (by default
of each) at each point, freezes one there, and cuts the power under `merge`.
"""

from __future__ import annotations

import gc
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.constructs.publishers.changes import Changes
from gobblin_dagster.constructs.publishers.delta_steps import MergeIntoDeltaStep
from gobblin_dagster.constructs.publishers.iceberg_steps import MergeIntoIcebergStep
from gobblin_dagster.core.clock import SystemClock
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.engine.snapshots.reader import read_published
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.testing.faults import (
    CRASHED,
    Fault,
    FaultPoints,
    counted_storage,
    crash_after,
    crash_before,
    is_look,
    run_in_child,
)
from gobblin_dagster.testing.inline_runner import InlineRunner
from gobblin_dagster.testing.protocol.power_loss_schedules import PowerLossStorage, losses, save_image
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


def _run(
    root: Path,
    rows: int,
    kind: str,
    *faults: Fault,
    inside: int | None = None,
    strike: Callable[[], object] = lambda: os._exit(CRASHED),
    hour: int = 0,
) -> None:
    """Run the job once, `hour` hours later than it is; `strike` at point `inside` of its merges."""
    job = _job(root, rows, kind)
    FaultyProject.points = FaultPoints(*faults)
    with pytest.MonkeyPatch.context() as patched:
        _set_clock(patched, hour)
        if inside is not None:
            _strike_inside(patched, inside, strike)
        result = run_job(FaultyProject(root, ProjectSpec(project="tests"), (job,)), job, runner=InlineRunner())
    assert faults or inside is not None or result.status is RunStatus.SUCCEEDED, result


def _set_clock(patched: pytest.MonkeyPatch, hour: int) -> None:
    patched.setattr(SystemClock, "now", lambda _: datetime.now(UTC) + timedelta(hours=hour))


def _freeze() -> None:
    """Stop this process until somebody lets it go on; its leases are over then."""
    os.kill(os.getpid(), signal.SIGSTOP)
    now = SystemClock.now
    pytest.MonkeyPatch().setattr(SystemClock, "now", lambda clock: now(clock) + timedelta(hours=2))


def _freeze_before(name: str, call: Callable[[], Any]) -> Any:
    _freeze()
    return call()


def _thaw_later(frozen: Callable[[], object], others: Callable[[], object]) -> bool:
    """Run `frozen` in a child; once it has frozen, do what others do meanwhile, then let it go on to its end.

    Return whether it froze.
    """
    pid = os.fork()
    if pid == 0:
        gc.freeze()  # as in `run_in_child`
        status = 1
        try:
            frozen()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        return False
    try:
        others()
    finally:
        os.kill(pid, signal.SIGCONT)
        os.waitpid(pid, 0)
    return True


def _strike_inside(patched: pytest.MonkeyPatch, at: int, strike: Callable[[], object]) -> None:
    """Strike inside of a merge, at its point number `at`, from 0.

    The points are before each merge of a table, each batch of new rows that one reads, and right after its commit.
    """
    seen = [0]

    def passed() -> None:
        seen[0] += 1
        if seen[0] == at + 1:
            strike()

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
    """Run three runs that are killed or frozen at random, and one that makes good; check, and return how many were.

    While a run is frozen, its leases end and another run does all.
    """
    chance = random.Random(f"{kind} {seed}")
    rows = struck = hour = 0
    for _ in range(3):
        rows += chance.randint(1, 6)
        run = partial(_run, root, rows, kind)
        is_freeze, is_inside = chance.random() < 0.4, kind != "merge" and chance.random() < 0.6
        if is_inside:
            strike = _freeze if is_freeze else partial(os._exit, CRASHED)
            victim = partial(run, inside=int(chance.random() * 12), strike=strike, hour=hour)
        else:
            act = _freeze_before if is_freeze else chance.choice([crash_before, crash_after])
            victim = partial(run, Fault(chance.randint(1, LONGEST_RUN), act), hour=hour)
        if is_freeze:
            struck += _thaw_later(victim, partial(run_in_child, partial(run, hour=hour + 1)))
            hour += 3
        else:
            status = run_in_child(victim)
            assert status in (0, CRASHED)
            struck += status == CRASHED
    for _ in range(2):  # the second one has nothing to do, and changes nothing
        assert run_in_child(partial(_run, root, rows, kind, hour=hour)) == 0
        assert run_in_child(partial(_check, root, rows, kind)) == 0, (kind, seed)
    return struck


@pytest.mark.parametrize("seed", range(2))
def test_each_key_and_each_version_is_published_once_whatever_is_killed_or_frozen(tmp_path: Path, seed: int) -> None:
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
            killed = partial(run, Fault(number + 1, crash_after)) if where == "call" else partial(run, inside=number)
            status = run_in_child(killed)
            if status == 0:  # beyond the last one
                break
            assert status == CRASHED, (kind, where, number)
            assert run_in_child(run) == 0, (kind, where, number)
            assert run_in_child(partial(_check, root, ROWS_AFTER, kind)) == 0, (kind, where, number)
            yield f"{kind} {where} {number}"
    shutil.rmtree(before)


def every_freeze(root: Path, kind: str, numbers: Iterable[int] | None = None) -> Iterator[str]:
    """Freeze the second run at each point, until its leases are over and another run has done all; then it goes on.

    The frozen run must neither lose nor double anything, nor must the next. Yields a name for each freeze.

    Args:
        root: folder of the project.
        kind: the publisher.
        numbers: numbers of points before calls to storage and state store; None for all, and those inside of merges.
    """
    before = root.with_name(f"{root.name}-before")
    assert run_in_child(partial(_run, root, ROWS_BEFORE, kind)) == 0
    shutil.copytree(root, before)
    for where in ("call", "merge") if numbers is None else ("call",):
        for number in count() if numbers is None else numbers:
            shutil.rmtree(root)
            shutil.copytree(before, root)
            run = partial(_run, root, ROWS_AFTER, kind)

            call = partial(run, Fault(number + 1, _freeze_before))
            frozen = call if where == "call" else partial(run, inside=number, strike=_freeze)
            if not _thaw_later(frozen, partial(run_in_child, partial(run, hour=1))):  # beyond the last one
                break
            for _ in range(2):
                assert run_in_child(partial(_check, root, ROWS_AFTER, kind)) == 0, (kind, where, number)
                assert run_in_child(partial(run, hour=3)) == 0, (kind, where, number)
            yield f"{kind} {where} {number}"
    shutil.rmtree(before)


class _PoweredProject(FaultyProject):
    """A project on a disk that loses unsynced changes."""

    disk = PowerLossStorage()

    def storage(self, job: JobSpec) -> Storage:
        return counted_storage(self.disk, self.points)


def every_power_loss(root: Path, seed: int = 0, sets: int = 2) -> Iterator[str]:
    """Cut the power before each call of a merge of Parquet files, with all that was not synced undone, or a part of it.

    Tables of other libraries write their own files; what these sync is not known here. Yields a name for each loss.

    Args:
        root: folder of the project.
        seed: of the parts.
        sets: sets of changes that are undone, for each call.
    """
    assert run_in_child(partial(_run, root, ROWS_BEFORE, "merge")) == 0
    images = root.with_name(f"{root.name}-images")
    assert run_in_child(partial(_save_images, root, images, random.Random(f"power {seed}"), sets)) == 0
    for image in sorted(images.iterdir()):
        shutil.rmtree(root)
        shutil.copytree(image, root)
        for _ in range(2):
            assert run_in_child(partial(_run, root, ROWS_AFTER, "merge", hour=1)) == 0, image.name
            assert run_in_child(partial(_check, root, ROWS_AFTER, "merge")) == 0, image.name
        yield image.name
    shutil.rmtree(images)


def _save_images(root: Path, images: Path, chance: random.Random, sets: int) -> None:
    """Do the second run; save the disk before each call that may find another one than the call before."""
    before, disk = "", _PoweredProject.disk

    def watch(number: int, name: str) -> None:
        nonlocal before
        for at, lost in enumerate(losses(disk.unsynced, chance, sets) if not is_look(before) else ()):
            save_image(root, images / f"{number:03} {at} {name.replace('/', ' ')}", lost)
        before = name

    job = _job(root, ROWS_AFTER, "merge")
    images.mkdir()
    _PoweredProject.points = FaultPoints(watch=watch)
    run_job(_PoweredProject(root, ProjectSpec(project="tests"), (job,)), job, runner=InlineRunner())


def _every(kinds: list[str]) -> None:
    for kind in kinds:
        root = Path(tempfile.mkdtemp(prefix="storm"))
        struck = {"kills": every_kill(root, kind), "freezes": every_freeze(root, kind)}
        if kind == "merge":
            struck["power losses"] = every_power_loss(root)
        for what, names in struck.items():
            for done, name in enumerate(names, 1):
                sys.stdout.write(f"{done} {what}, {name}: nothing lost, nothing twice\n")
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
            sys.stdout.write(f"{done} schedules, {kills} kills and freezes, seed {seed} {kind}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "every":
        _every(sys.argv[2:] or [*KINDS])
    else:
        _main(int(sys.argv[1]), int(sys.argv[2]))
