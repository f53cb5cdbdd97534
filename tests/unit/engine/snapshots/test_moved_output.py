"""A project folder that was moved or copied as a whole: what its store and its manifests name is found."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.errors import CorruptRecordError, UsageError
from gobblin_dagster.engine.commit import manifest
from gobblin_dagster.engine.maintenance.clean import clean
from gobblin_dagster.engine.maintenance.verify import verify
from gobblin_dagster.engine.snapshots.reader import read_published
from tests.unit.engine.jobs import job_spec, project, run


def ids(root: Path, snapshot: int | None = None) -> list[int]:
    """Return the ids that readers of manifests find."""
    found = read_published(root / "lake", "numbers", "a", snapshot).to_arrow("all")
    return sorted(found.to_table(columns=["id"])["id"].to_pylist())


def begin(root: Path, rows: int, **parts: Any) -> None:
    root.mkdir(exist_ok=True)
    run(root, job_spec({"a": {"rows": rows, "unit_rows": 4}}, **parts))


@pytest.mark.parametrize("leave", [shutil.move, shutil.copytree], ids=["moved", "copied"])
@pytest.mark.parametrize("whole_every", [64, 2], ids=["changes", "whole"])
@pytest.mark.parametrize("publisher", ["append", "replace"])
def test_snapshots_of_an_output_that_was_moved_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, publisher: str, whole_every: int, leave: Any
) -> None:
    monkeypatch.setattr(manifest, "WHOLE_EVERY", whole_every)
    parts = {"publisher": {"type": publisher}}
    if publisher == "replace":
        parts["extract"] = {"namespace": "test", "table": "numbers", "type": "snapshot_only"}
    begin(tmp_path / "before", 10, **parts)
    leave(tmp_path / "before", tmp_path / "after")
    for rows in (12, 15):
        begin(tmp_path / "after", rows, **parts)
    assert [ids(tmp_path / "after", number) for number in (1, 2, 3)] == [
        list(range(10)),
        list(range(12)),
        list(range(15)),
    ]
    paths = [file.path for file in read_published(tmp_path / "after" / "lake", "numbers", "a").files]
    assert all(path.startswith(str(tmp_path / "after")) for path in paths)


def test_output_that_was_changed_for_another_one_keeps_older_files_where_they_are(tmp_path: Path) -> None:
    begin(tmp_path, 10)
    begin(tmp_path, 15, output={"path": "new"})
    with pytest.raises(CorruptRecordError, match=r"which lies outside of .*/new\. .*former_roots"):
        read_published(tmp_path / "new", "numbers", "a")
    found = read_published(tmp_path / "new", "numbers", "a", former_roots=[tmp_path / "lake"]).to_arrow("all")
    assert sorted(found.to_table(columns=["id"])["id"].to_pylist()) == list(range(15))
    assert ids(tmp_path) == list(range(10))


def test_snapshots_that_expired_in_a_former_output_are_expired_in_the_next_one(tmp_path: Path) -> None:
    parts: dict[str, Any] = {"publisher": {"type": "replace"}, "commit": {"keep_snapshots": 1}}
    begin(tmp_path, 10, **parts)
    begin(tmp_path, 12, **parts)
    job = job_spec({"a": {"rows": 12}}, **parts)
    clean(project(tmp_path, job), job)
    parts["output"] = {"path": "new"}
    begin(tmp_path, 15, **parts)
    job = job_spec({"a": {"rows": 15}}, **parts)
    assert verify(project(tmp_path, job), job).is_whole
    with pytest.raises(UsageError, match="expired"):
        read_published(tmp_path / "new", "numbers", "a", 1, former_roots=[tmp_path / "lake"])


def test_clean_up_leaves_files_of_a_former_output_and_stops_no_dataset(tmp_path: Path) -> None:
    parts: dict[str, Any] = {
        "publisher": {"type": "replace"},
        "extract": {"namespace": "test", "table": "numbers", "type": "snapshot_only"},
        "commit": {"keep_snapshots": 1},
    }
    begin(tmp_path, 10, **parts)
    parts["output"] = {"path": "new"}
    for rows in (12, 15):
        begin(tmp_path, rows, **parts)
    job = job_spec({"a": {"rows": 20}}, **parts)
    for dry_run in (True, False):
        (expired,) = clean(project(tmp_path, job), job, dry_run=dry_run).expired
        assert "lies outside of the output" in expired.kept_because
    assert ids(tmp_path) == list(range(10))
    begin(tmp_path, 20, **parts)
    found = read_published(tmp_path / "new", "numbers", "a").to_arrow("all").to_table(columns=["id"])["id"]
    assert sorted(found.to_pylist()) == list(range(20))
