"""Replay of the quarantine: rows enter where they were rejected, once, by the job as it is now."""

from __future__ import annotations

import errno
import os
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.constructs import ConstructContext
from gobblin_dagster.core.errors import (
    CorruptRecordError,
    DatasetBusyError,
    EnvironmentFaultError,
    StorageError,
    UsageError,
)
from gobblin_dagster.core.lease import LeaseOwner
from gobblin_dagster.engine.maintenance.compact import compact
from gobblin_dagster.engine.maintenance.replay import replay_quarantine
from gobblin_dagster.engine.snapshots.audit import audit_dataset
from gobblin_dagster.engine.snapshots.reader import load_published, read_published
from gobblin_dagster.engine.snapshots.rejected_rows import count_quarantined
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.storage import LocalStorage
from gobblin_dagster.testing.faults import (
    CRASHED,
    Fault,
    FaultPoints,
    kills,
    run_in_child,
)
from gobblin_dagster.testing.rows_source import RowsSource
from tests.faults.strikes import FaultyProject
from tests.unit.engine.jobs import job_spec, project, published, run

HAS_VALUE = {"name": "has_value", "type": "not_null", "columns": ["value"]}
SMALL = {"name": "small", "type": "sql", "rule": "id < 15"}
LARGER = {**SMALL, "rule": "id < 18"}


def _job(rows: int = 20, *policies: dict[str, Any], **parts: Any) -> JobSpec:
    return job_spec({"a": {"rows": rows, "unit_rows": 7}}, row_policies=list(policies), **parts)


def _quarantined(root: Path, job: JobSpec) -> Counter[str]:
    store = project(root, job).open_store()
    try:
        return Counter({one.policy: one.rows for one in count_quarantined(store, job.job)})
    finally:
        store.close()


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def _require_audit(root: Path, job: JobSpec) -> None:
    """Count source, published and quarantined rows again and compare them."""
    source = RowsSource(RowsSource.Options.model_validate(job.source.options), ConstructContext(job.job, "/"))
    store = project(root, job).open_store()
    try:
        audit = audit_dataset(job, source, store, "a")
    finally:
        store.close()
    assert audit is not None
    assert (audit.lost, audit.duplicated) == (0, 0), audit


def test_rows_go_through_the_job_as_it_is_now_and_what_fails_again_comes_back(tmp_path: Path) -> None:
    run(tmp_path, _job(20, HAS_VALUE, SMALL))
    assert _quarantined(tmp_path, _job()) == {"has_value": 2, "small": 5}
    job = _job(20, LARGER)
    done = replay_quarantine(project(tmp_path, job), job, "a", who="ann")
    assert (done.rows, done.published, done.rejected_again, done.kept, done.snapshot) == (
        {"has_value": 2, "small": 5},
        {"all": 5, "masked": 5},
        2,
        0,
        2,
    )
    assert published(tmp_path, job, "a") == published(tmp_path, job, "a", "masked") == list(range(18))
    assert _quarantined(tmp_path, job) == {"small": 2}
    _require_audit(tmp_path, job)
    # The masked branch lost its column on the way, as in every run.
    assert load_published(project(tmp_path, job), job, "a").to_arrow("masked").schema.names == ["id", "dataset"]


def test_rows_that_are_dropped_now_or_that_no_branch_takes_are_counted(tmp_path: Path) -> None:
    run(tmp_path, _job(20, HAS_VALUE, SMALL))
    branches = {"fork": {"operator": {"type": "sql", "branches": {"all": "id < 16"}}, "branches": [{"name": "all"}]}}
    job = _job(20, {**LARGER, "on_violation": "drop"}, **branches)
    done = replay_quarantine(project(tmp_path, job), job, "a", who="ann")
    assert sum(done.rows.values()) == 7
    assert (sum(done.published.values()), done.rejected_again, done.dropped, done.untaken) == (3, 0, 2, 2)
    assert _quarantined(tmp_path, job) == {}
    _require_audit(tmp_path, job)


def test_watermark_stays_and_the_next_run_reads_what_is_new(tmp_path: Path) -> None:
    run(tmp_path, _job(20, SMALL))
    job = _job(30)
    replay_quarantine(project(tmp_path, job), job, "a")
    run(tmp_path, job)
    assert published(tmp_path, job, "a") == list(range(30))
    _require_audit(tmp_path, job)


def test_rows_whose_manifest_cannot_be_written_are_committed_and_said_to_be_unseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: LocalStorage, path: str, data: bytes) -> bool:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    run(tmp_path, _job(20, SMALL))
    job = _job(20)
    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "put_if_absent", refuse)
        with pytest.raises(StorageError, match=r"The snapshot is committed; readers of manifests find it after the "):
            replay_quarantine(project(tmp_path, job), job, "a")
    assert published(tmp_path, job, "a") == list(range(20))
    assert read_published(tmp_path / "lake", job.job, "a").snapshot == 1
    run(tmp_path, job)
    assert read_published(tmp_path / "lake", job.job, "a").snapshot == 2


def _put_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _put_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (Path.unlink, "it is gone"),
        (_cut, "it was changed after it was"),
        (_put_pipe, "it is gone"),
        (_put_loop, "Too many levels of symbolic links"),
    ],
)
def test_file_of_the_quarantine_that_is_gone_or_cut_is_named_with_what_to_do(
    tmp_path: Path, damage: Callable[[Path], None], problem: str
) -> None:
    job = _job(20, SMALL)
    run(tmp_path, job)
    path = max((tmp_path / "lake").rglob("*quarantine*/**/*.parquet"))
    damage(path)
    said = (
        rf"Dataset 'a': file {path} of the quarantine, with \d+ rows?, cannot .*: {problem}.* `gobblin verify a` names"
    )
    with pytest.raises(CorruptRecordError, match=said):
        _quarantined(tmp_path, job)
    with pytest.raises(CorruptRecordError, match=said):
        replay_quarantine(project(tmp_path, job), job, "a", dry_run=True)


def test_replay_twice_does_nothing_the_second_time(tmp_path: Path) -> None:
    run(tmp_path, _job(20, SMALL))
    job = _job(20)
    assert replay_quarantine(project(tmp_path, job), job, "a").snapshot == 2
    again = replay_quarantine(project(tmp_path, job), job, "a")
    assert (again.rows, again.snapshot) == ({}, 0)
    assert published(tmp_path, job, "a") == list(range(20))


def test_one_rule_alone_leaves_the_rows_of_others(tmp_path: Path) -> None:
    run(tmp_path, _job(20, HAS_VALUE, SMALL))
    job = _job(20)
    opened = project(tmp_path, job)
    planned = replay_quarantine(opened, job, "a", rule="small", dry_run=True)
    assert (planned.rows, planned.kept, planned.snapshot) == ({"small": 5}, 2, 0)
    done = replay_quarantine(opened, job, "a", rule="small")
    assert (done.rows, done.kept) == ({"small": 5}, 2)
    assert _quarantined(tmp_path, job) == {"has_value": 2}
    assert published(tmp_path, job, "a") == [n for n in range(20) if n % 10]
    _require_audit(tmp_path, job)
    assert replay_quarantine(opened, job, "a", rule="has_value").published == {"all": 2, "masked": 2}
    assert published(tmp_path, job, "a") == list(range(20))


def test_row_that_a_branch_rejected_goes_to_that_branch_alone(tmp_path: Path) -> None:
    def fork(*policies: dict[str, Any]) -> dict[str, Any]:
        return {"branches": [{"name": "all"}, {"name": "strict", "row_policies": list(policies)}]}

    run(tmp_path, _job(20, fork=fork(SMALL)))
    job = _job(20, fork=fork(LARGER))
    done = replay_quarantine(project(tmp_path, job), job, "a")
    assert (done.rows, done.published, done.rejected_again) == ({"small": 5}, {"strict": 3}, 2)
    assert published(tmp_path, job, "a") == list(range(20))
    assert published(tmp_path, job, "a", "strict") == list(range(18))
    _require_audit(tmp_path, job)


def test_row_that_a_converter_could_not_take_begins_there(tmp_path: Path) -> None:
    def converters(select: str) -> list[dict[str, Any]]:
        return [
            {"type": "sql", "select": "id + 100 as id, value"},
            {"type": "sql", "name": "number", "select": select, "on_error": "quarantine"},
            {"type": "rename", "columns": {"n": "m"}},
        ]

    strict = "id, CAST(CASE WHEN id % 5 = 0 THEN 'x' ELSE '1' END AS INTEGER) as n"
    run(tmp_path, _job(20, converters=converters(strict), fork={"branches": [{"name": "all"}]}))
    assert _quarantined(tmp_path, _job()) == {"number": 4}
    job = _job(20, converters=converters("id, 7 as n"), fork={"branches": [{"name": "all"}]})
    done = replay_quarantine(project(tmp_path, job), job, "a")
    assert (done.rows, done.published) == ({"number": 4}, {"all": 4})
    found = load_published(project(tmp_path, job), job, "a").to_arrow("all").to_table().sort_by("id")
    # The first converter was not applied twice.
    assert found["id"].to_pylist() == list(range(100, 120))
    assert found["m"].to_pylist() == [7 if n % 5 == 0 else 1 for n in range(20)]
    _require_audit(tmp_path, job)


def test_rows_of_a_converter_or_branch_that_is_no_more_stay(tmp_path: Path) -> None:
    converters = [{"type": "sql", "name": "number", "select": "CAST('x' AS INTEGER) as n", "on_error": "quarantine"}]
    gone = [{"name": "gone", "row_policies": [SMALL]}, {"name": "all", "converters": converters}]
    run(tmp_path, _job(20, fork={"branches": gone}))
    job = _job(20, fork={"branches": [{"name": "all"}]})
    done = replay_quarantine(project(tmp_path, job), job, "a")
    assert (done.rows, done.kept, done.snapshot) == ({}, 25, 0)


def test_failure_on_the_way_publishes_nothing(tmp_path: Path) -> None:
    run(tmp_path, _job(20, SMALL))
    job = _job(20, {**SMALL, "on_violation": "fail"})
    with pytest.raises(UsageError, match=r"that 'small' had rejected cannot be replayed: .* break"):
        replay_quarantine(project(tmp_path, job), job, "a")
    assert _quarantined(tmp_path, job) == {"small": 5}
    assert not [path for path in (tmp_path / "lake/_gobblin/staging").rglob("*") if path.is_file()]


def test_a_full_disk_is_no_fault_of_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, _job(20, SMALL))

    def refuse(self: LocalStorage, path: str) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(LocalStorage, "open_new", refuse)
    with pytest.raises(EnvironmentFaultError, match=r"No space left on device\. Nothing was published\. Mend that"):
        replay_quarantine(project(tmp_path, _job()), _job(), "a")
    assert _quarantined(tmp_path, _job()) == {"small": 5}


def test_merged_quarantine_is_replayed_too(tmp_path: Path) -> None:
    for rows in (16, 18, 20):
        run(tmp_path, _job(rows, SMALL))
    job = _job(20)
    (merged,) = compact(project(tmp_path, job), job)
    assert "quarantine" in {merge.branch for merge in merged.merges}
    assert replay_quarantine(project(tmp_path, job), job, "a").rows == {"small": 5}
    assert published(tmp_path, job, "a") == list(range(20))


def test_replayed_rows_join_a_snapshot_that_is_replaced_as_a_whole(tmp_path: Path) -> None:
    parts = {"publisher": {"type": "replace"}, "fork": {"branches": [{"name": "all"}]}}
    run(tmp_path, _job(20, SMALL, **parts))
    job = _job(20, **parts)
    replay_quarantine(project(tmp_path, job), job, "a")
    assert published(tmp_path, job, "a") == list(range(20))


def test_replay_while_a_run_holds_the_dataset_is_refused(tmp_path: Path) -> None:
    run(tmp_path, _job(20, SMALL))
    job = _job(20)
    store = project(tmp_path, job).open_store()
    try:
        store.acquire_leases("numbers", ["a"], LeaseOwner.current("other"), timedelta(minutes=1))
        with pytest.raises(DatasetBusyError, match="other"):
            replay_quarantine(project(tmp_path, job), job, "a")
    finally:
        store.close()
    with pytest.raises(UsageError, match="Nothing was published of dataset 'b'"):
        replay_quarantine(project(tmp_path, job), job, "b")


def _replay_with(points: FaultPoints, root: Path, job: JobSpec) -> None:
    FaultyProject.points = points
    replay_quarantine(FaultyProject(root, ProjectSpec(project="tests"), (job,)), job, "a")


def test_killed_around_any_operation_each_row_is_published_once(tmp_path: Path) -> None:
    """Before its commit a replayed row is in quarantine, after it in the branch: never in both, never in none."""
    root, saved = tmp_path / "project", tmp_path / "saved"
    parts: dict[str, Any] = {"fork": {"branches": [{"name": "all"}]}}
    run(root, _job(9, {**SMALL, "rule": "id < 6"}, **parts))
    job = _job(9, {**SMALL, "rule": "id < 8"}, **parts)
    shutil.copytree(root, saved)
    watch = FaultPoints()
    _replay_with(watch, root, job)
    assert {"store.prepare", "store.commit", "storage.move"} <= set(watch.trace)
    for number, action in kills(watch.trace):
        shutil.rmtree(root)
        shutil.copytree(saved, root)
        assert run_in_child(partial(_replay_with, FaultPoints(Fault(number, action)), root, job)) == CRASHED
        where = (number, watch.trace[number - 1], action.__name__)
        rows = read_published(root / "lake", "numbers", "a").rows
        assert rows in ({"all": 6, "quarantine": 3}, {"all": 8, "quarantine": 1}), where
        run(root, job)
        _require_audit(root, job)
        replay_quarantine(project(root, job), job, "a")
        assert published(root, job, "a") == list(range(8)), where
        assert _quarantined(root, job) == {"small": 1}, where


def test_full_extract_that_replaces_leaves_no_rejected_rows_of_earlier_ones(tmp_path: Path) -> None:
    """Each run added its own to them, and a replay published a row as often as it had been rejected."""
    whole: dict[str, Any] = {
        "extract": {"namespace": "test", "table": "numbers", "type": "snapshot_only"},
        "fork": {"branches": [{"name": "all", "publisher": {"type": "replace"}}]},
    }
    for rows in (16, 18, 20):
        run(tmp_path, _job(rows, SMALL, **whole))
    assert _quarantined(tmp_path, _job(**whole)) == {"small": 5}
    strict = _job(20, LARGER, **whole)
    _require_audit(tmp_path, strict)
    replay_quarantine(project(tmp_path, strict), strict, "a")
    assert published(tmp_path, strict, "a") == list(range(18))
