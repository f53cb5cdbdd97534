"""Published files that are gone from the output, and manifests that are then not written again."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from gobblin_dagster.core.errors import StorageError
from gobblin_dagster.engine.commit.lost_files import lost_file
from gobblin_dagster.engine.commit.manifest import fill_manifests
from tests.unit.engine.jobs import job_spec, project, run


def test_files_of_the_newest_commit_are_looked_for_and_their_manifest_is_not_written_without_them(
    tmp_path: Path,
) -> None:
    run(tmp_path, job_spec({"a": {"rows": 10}}))
    shutil.copytree(tmp_path / "lake", tmp_path / "older")
    job = job_spec({"a": {"rows": 20}})
    run(tmp_path, job)
    where, root = project(tmp_path, job), f"{tmp_path}/lake"
    storage = where.storage(job)
    with closing(where.open_store()) as store:
        state = store.load_dataset_states(job.job)["a"]
        assert lost_file(storage, store, root, state) == ""
        newest = [file.path for file in store.load_snapshot(job.job, "a") if file.snapshot == state.snapshot]
        shutil.rmtree(tmp_path / "lake")
        shutil.move(tmp_path / "older", tmp_path / "lake")
        assert lost_file(storage, store, root, state) == min(newest)
        manifests = sorted((tmp_path / "lake/_gobblin/manifests").rglob("*.json"))
        with pytest.raises(StorageError, match="restored from an older copy"):
            fill_manifests(storage, store, root, job.job, {"a": state})
    assert sorted((tmp_path / "lake/_gobblin/manifests").rglob("*.json")) == manifests
