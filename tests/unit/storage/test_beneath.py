from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gobblin_dagster.storage import LocalStorage, _beneath, open_storage
from gobblin_dagster.storage._beneath import held, real_path
from gobblin_dagster.storage._rename import rename_new


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake whose folder `out` is a link to a folder outside, which holds `kept`."""
    (tmp_path / "lake/day").mkdir(parents=True)
    (tmp_path / "outside/below").mkdir(parents=True)
    (tmp_path / "outside/kept").write_bytes(b"rows")
    (tmp_path / "lake/staged").write_bytes(b"rows")
    (tmp_path / "lake/out").symlink_to(tmp_path / "outside")
    return tmp_path / "lake"


CHANGES: dict[str, Callable[[LocalStorage, str], object]] = {
    "open_new": lambda storage, lake: storage.open_new(f"{lake}/out/new"),
    "move into": lambda storage, lake: storage.move(f"{lake}/staged", f"{lake}/out/new"),
    "move out of": lambda storage, lake: storage.move(f"{lake}/out/kept", f"{lake}/day/new"),
    "put_if_absent": lambda storage, lake: storage.put_if_absent(f"{lake}/out/new", b""),
    "make_dirs": lambda storage, lake: storage.make_dirs(f"{lake}/out/new/a"),
    "delete": lambda storage, lake: storage.delete(f"{lake}/out/kept"),
    "delete_tree": lambda storage, lake: storage.delete_tree(f"{lake}/out/below"),
    "set_permissions": lambda storage, lake: storage.set_permissions(f"{lake}/out/kept", 0o600, None),
    "sync_dir": lambda storage, lake: storage.sync_dir(f"{lake}/out"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_change_through_a_link_that_leads_out_is_refused(
    lake: Path, change: Callable[[LocalStorage, str], object]
) -> None:
    storage = open_storage(str(lake))
    assert isinstance(storage, LocalStorage)
    outside = lake.parent / "outside"
    before = sorted(outside.rglob("*")), (outside / "kept").stat()
    with pytest.raises(OSError, match=f"leads to {outside}, outside of {lake}; remove the link.*{lake}/out") as caught:
        change(storage, str(lake))
    assert caught.value.errno == errno.ELOOP
    assert sorted(outside.rglob("*")) == before[0]
    assert (outside / "kept").stat().st_ctime_ns == before[1].st_ctime_ns
    assert (lake / "staged").exists()


def test_folders_made_together_have_the_refusal_as_their_error(lake: Path) -> None:
    errors = LocalStorage(confined_to=str(lake)).make_all_dirs([f"{lake}/out/new", f"{lake}/other"])
    assert errors[f"{lake}/other"] is None
    assert getattr(errors[f"{lake}/out/new"], "errno", None) == errno.ELOOP


def test_folder_that_is_replaced_by_a_link_between_check_and_rename_leads_nowhere(lake: Path) -> None:
    def replace_then_rename(source: str, target: str) -> None:
        (lake / "day").rename(lake / "aside")
        (lake / "day").symlink_to(lake.parent / "outside")
        rename_new(source, target)

    storage = LocalStorage(rename=replace_then_rename, confined_to=str(lake))
    storage.move(f"{lake}/staged", f"{lake}/day/new")
    assert sorted(path.name for path in (lake.parent / "outside").iterdir()) == ["below", "kept"]
    assert (lake / "aside/new").exists()


def test_links_that_stay_inside_and_a_root_that_is_a_link_are_followed(lake: Path) -> None:
    (lake / "again").symlink_to(lake / "day")
    (lake.parent / "alias").symlink_to(lake)
    for number, root in enumerate((lake, lake.parent / "alias")):
        storage = open_storage(str(root))
        storage.put_if_absent(f"{root}/again/{number}", b"")
        storage.move(f"{root}/again/{number}", f"{root}/day/moved-{number}")
    assert sorted(path.name for path in (lake / "day").iterdir()) == ["moved-0", "moved-1"]


def test_errors_name_the_file_and_not_the_handle(lake: Path) -> None:
    storage = LocalStorage(confined_to=str(lake))
    (lake / "day/there").write_bytes(b"")
    with pytest.raises(FileExistsError) as exists:
        storage.move(f"{lake}/staged", f"{lake}/day/there")
    assert (exists.value.filename, exists.value.filename2) == (f"{lake}/staged", f"{lake}/day/there")
    with pytest.raises(FileNotFoundError, match=f"{lake}/day/gone"):
        storage.move(f"{lake}/day/gone", f"{lake}/new")
    with pytest.raises(FileNotFoundError, match=f"'{lake}/gone'"), held(str(lake), f"{lake}/gone/file"):
        pass


def test_paths_apart_from_the_root_and_systems_without_handles_use_the_path(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held(str(lake), f"{lake.parent}/outside/kept") as path:
        assert path == f"{lake.parent}/outside/kept"
    with held("", f"{lake}/staged") as path:
        assert path == f"{lake}/staged"
    monkeypatch.setattr(_beneath, "_CAN_HOLD", False)
    with held(str(lake), f"{lake}/staged") as path:
        assert path == f"{lake}/staged"


@pytest.mark.parametrize("can_hold", [True, False])
@pytest.mark.parametrize(
    "path", ["day", "day/../staged", "out/below", "out/kept", "out/gone/x", "gone/../x", "loop/x", "", "."]
)
def test_real_path_is_that_of_the_standard_library(
    lake: Path, path: str, can_hold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lake / "loop").symlink_to("loop")
    monkeypatch.setattr(_beneath, "_CAN_HOLD", can_hold)
    monkeypatch.chdir(lake)
    for one in (path, f"{lake}/{path}"):
        assert real_path(one) == os.path.realpath(one)
