from __future__ import annotations

from pathlib import Path

import pytest

from gobblin_dagster.core.errors import StepRefusedError
from gobblin_dagster.engine.commit.links import paths_inside, require_no_way_out
from gobblin_dagster.storage import LocalStorage, MemoryStorage


def test_folders_inside_of_the_output_pass_also_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "lake" / "a").mkdir(parents=True)
    (tmp_path / "lake" / "b").symlink_to(tmp_path / "lake" / "a")
    (tmp_path / "alias").symlink_to(tmp_path / "lake")
    for root in (tmp_path / "lake", tmp_path / "alias"):
        require_no_way_out(LocalStorage(), str(root), [f"{root}/a/1", f"{root}/b/1", f"{root}/1", f"{root}/new/1"])


def test_link_that_leads_out_is_refused_with_both_places(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake-2").mkdir()
    (tmp_path / "lake" / "out").symlink_to(tmp_path / "lake-2")
    with pytest.raises(StepRefusedError, match=f"leads to {tmp_path}/lake-2, outside of {tmp_path}/lake"):
        require_no_way_out(LocalStorage(), str(tmp_path / "lake"), [f"{tmp_path}/lake/out/1"])


def test_storage_without_links_has_no_way_out() -> None:
    require_no_way_out(MemoryStorage(), "/lake", ["/elsewhere/1"])


def test_paths_that_lead_into_the_output_are_told_from_others(tmp_path: Path) -> None:
    (tmp_path / "disk/lake/a").mkdir(parents=True)
    (tmp_path / "lake").symlink_to(tmp_path / "disk/lake")
    inside = paths_inside(LocalStorage(), f"{tmp_path}/disk/lake")
    here = f"{tmp_path}/disk/lake/a/1"
    others = [f"{tmp_path}/disk/lake-2/1", f"{tmp_path}/1", "s3://lake/a/1", "a/1"]
    assert [inside(path) for path in (here, f"{tmp_path}/lake/a/1", *others)] == [here, here, *others]
    assert paths_inside(MemoryStorage(), "/lake")("/elsewhere/1") == "/elsewhere/1"
