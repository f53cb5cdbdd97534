"""The step that lets snapshots expire."""

from __future__ import annotations

import pytest

from gobblin_dagster.core.errors import StepRefusedError
from gobblin_dagster.engine.commit.steps import DeleteFilesStep, step_from_json, step_to_json
from gobblin_dagster.storage import MemoryStorage


def test_delete_is_done_once_all_are_gone_and_spares_the_neighbours() -> None:
    storage = MemoryStorage()
    for path in ("/lake/a/1", "/lake/a/2", "/lake/a/3", "/lake-2/a/1"):
        storage.put_if_absent(path, b"rows")
    step = DeleteFilesStep("/lake", ("a/1", "a/2"))
    assert not step.verify(storage)
    storage.delete("/lake/a/1")
    assert not step.verify(storage)
    step.execute(storage)
    assert step.verify(storage)
    step.execute(storage)
    assert [*storage.walk_files("/lake"), *storage.walk_files("/lake-2")] == ["/lake/a/3", "/lake-2/a/1"]


def test_delete_comes_back_from_json() -> None:
    step = DeleteFilesStep("s3://bucket/lake", ("a%2Fb/1", "ü"))
    assert step_from_json(step_to_json(step)) == step
    assert step.describe() == "delete 2 files of expired snapshots"


@pytest.mark.parametrize("path", ["../a", "a/../../b", "/etc/passwd", "a//b", "a/./b", ""])
def test_delete_refuses_paths_that_may_lead_out(path: str) -> None:
    storage = MemoryStorage()
    storage.put_if_absent("/lake/kept", b"rows")
    with pytest.raises(StepRefusedError, match="may lie outside of /lake"):
        DeleteFilesStep("/lake", ("kept", path)).execute(storage)
    assert storage.size("/lake/kept") == 4
