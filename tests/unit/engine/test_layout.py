from __future__ import annotations

from gobblin_dagster.engine.layout import internal_dir, staging_dir


def test_internal_files_lie_in_one_folder_that_readers_pass_over() -> None:
    assert internal_dir("/lake", "manifests", "flights") == "/lake/_gobblin/manifests/flights"
    assert staging_dir("/lake") == "/lake/_gobblin/staging"
    assert staging_dir("/lake", "run-1", "commit-1") == "/lake/_gobblin/staging/run-1/commit-1"
