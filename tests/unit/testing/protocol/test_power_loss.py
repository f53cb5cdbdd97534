from __future__ import annotations

import random
from pathlib import Path

import pytest

from gobblin_dagster.testing.protocol.power_loss_schedules import PowerLossStorage, losses, save_image


def _lose_all(storage: PowerLossStorage, tmp_path: Path) -> dict[str, str]:
    """Cut the power with everything unsynced undone; return what the disk holds then."""
    image = tmp_path / "image"
    save_image(tmp_path / "disk", image, storage.unsynced)
    return {str(path.relative_to(image)): path.read_text() for path in sorted(image.rglob("*")) if path.is_file()}


def _write(storage: PowerLossStorage, path: Path, text: str = "12345678") -> None:
    sink = storage.open_new(str(path))
    sink.write(text.encode())
    sink.finish()


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    disk = tmp_path / "disk"
    for folder in ("a", "b"):
        (disk / folder).mkdir(parents=True)
    return disk


def test_file_whose_folder_was_not_synced_is_lost(tmp_path: Path, disk: Path) -> None:
    storage = PowerLossStorage()
    _write(storage, disk / "a/new")
    assert _lose_all(storage, tmp_path) == {}
    storage.sync_dir(str(disk / "a"))
    assert storage.unsynced == []


def test_unsynced_content_is_torn_wherever_the_file_went(tmp_path: Path, disk: Path) -> None:
    storage = PowerLossStorage()
    sink = storage.open_new(str(disk / "a/new"))
    sink.write(b"12345678")
    sink._file.flush()
    storage.sync_dir(str(disk / "a"))
    storage.move(str(disk / "a/new"), str(disk / "b/new"))
    storage.sync_dir(str(disk / "b"))
    assert _lose_all(storage, tmp_path) == {"b/new": "1234"}
    sink.abort()


def test_rename_is_undone_until_the_folder_of_its_target_was_synced(tmp_path: Path, disk: Path) -> None:
    storage = PowerLossStorage()
    _write(storage, disk / "a/new")
    storage.sync_dir(str(disk / "a"))
    storage.move(str(disk / "a/new"), str(disk / "b/new"))
    assert _lose_all(storage, tmp_path) == {"a/new": "12345678"}
    storage.sync_dir(str(disk / "b"))
    assert storage.unsynced == []


@pytest.mark.parametrize("whole_folder", [True, False])
def test_deletion_is_undone(tmp_path: Path, disk: Path, whole_folder: bool) -> None:
    (disk / "a/old").write_text("old")
    storage = PowerLossStorage()
    if whole_folder:
        storage.delete_tree(str(disk / "a"))
    else:
        storage.delete(str(disk / "a/old"))
        storage.delete(str(disk / "a/never there"))
    assert _lose_all(storage, tmp_path) == {"a/old": "old"}


def test_what_is_put_whole_is_durable_at_once(tmp_path: Path, disk: Path) -> None:
    storage = PowerLossStorage()
    assert storage.put_if_absent(str(disk / "a/whole"), b"whole")
    assert storage.unsynced == []
    assert _lose_all(storage, tmp_path) == {"a/whole": "whole"}


def test_all_subsets_are_tried_where_they_are_few(disk: Path) -> None:
    storage = PowerLossStorage()
    for name in ("one", "two", "three"):
        _write(storage, disk / "a" / name)
    assert len(set(losses(storage.unsynced, random.Random(1)))) == 8
    some = list(losses(storage.unsynced, random.Random(1), limit=5))
    assert len(some) == 5
    assert some == list(losses(storage.unsynced, random.Random(1), limit=5))


def test_folder_that_was_not_synced_is_lost_with_its_synced_files(tmp_path: Path, disk: Path) -> None:
    storage = PowerLossStorage()
    storage._mkdir(disk / "a/inner")
    _write(storage, disk / "a/inner/new")
    storage.sync_dir(str(disk / "a/inner"))
    assert _lose_all(storage, tmp_path) == {}
    storage.sync_dir(str(disk / "a"))
    assert storage.unsynced == []


def test_folder_takes_the_moves_into_it_along(disk: Path) -> None:
    storage = PowerLossStorage()
    _write(storage, disk / "a/new")
    storage.sync_dir(str(disk / "a"))
    storage._mkdir(disk / "b/inner")
    storage.move(str(disk / "a/new"), str(disk / "b/inner/new"))
    kinds = [[change.kind for change in lost] for lost in losses(storage.unsynced, random.Random(1))]
    assert kinds == [[], ["mkdir", "rename"], ["rename"], ["mkdir", "rename"]]


def test_folders_that_storages_make_are_durable(disk: Path) -> None:
    storage = PowerLossStorage()
    storage.make_dirs(str(disk / "a/x/y"))
    assert storage.make_all_dirs([str(disk / "b/x/y"), str(disk / "b/x/z")]) == dict.fromkeys(
        [str(disk / "b/x/y"), str(disk / "b/x/z")]
    )
    assert storage.unsynced == []
