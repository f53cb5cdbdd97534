from __future__ import annotations

import ctypes
import errno
import os
import pickle
import resource
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gobblin_dagster.storage import TEMP_PREFIX, LocalSink, LocalStorage, _rename
from gobblin_dagster.storage._rename import rename_new


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the path of each descriptor that is synced."""
    paths: list[str] = []
    sync = os.fsync

    def record(fd: int) -> None:
        paths.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        sync(fd)

    monkeypatch.setattr(os, "fsync", record)
    return paths


def refuse_to_cross(source: str, target: str) -> None:
    """Rename as if each folder were a mount of its own."""
    if Path(source).parent != Path(target).parent:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), source, None, target)
    rename_new(source, target)


def write(storage: LocalStorage, path: Path, content: bytes = b"rows") -> str:
    sink = storage.open_new(str(path))
    sink.write(content)
    sink.finish()
    return str(path)


def names(folder: Path) -> list[str]:
    """List a folder with its hidden files, which the storage does not show."""
    return sorted(entry.name for entry in folder.iterdir())


# -- what is synced ----------------------------------------------------------------------------------------------------
def test_read_of_a_pipe_does_not_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError, match="no regular file"):
        LocalStorage().read(str(tmp_path / "pipe"))
    with pytest.raises(IsADirectoryError):
        LocalStorage().read(str(tmp_path))


def test_delete_tree_goes_on_if_another_process_deletes_or_renames_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, unlink, struck = LocalStorage(), os.unlink, list[str]()
    for name in ("a", "below/b", "below/c"):
        write(storage, tmp_path / "run" / name)

    def after_another(path: str, *, dir_fd: int | None = None) -> None:
        if path not in struck:
            struck.append(path)
            unlink(path, dir_fd=dir_fd)
        unlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", after_another)
    storage.delete_tree(str(tmp_path / "run"))
    assert (sorted(struck), names(tmp_path)) == (["a", "b", "c"], [])


def test_finish_syncs_the_file(tmp_path: Path, synced: list[str]) -> None:
    path = write(LocalStorage(), tmp_path / "a")
    assert synced == [path]


def test_make_dirs_syncs_each_parent_that_got_a_child(tmp_path: Path, synced: list[str]) -> None:
    LocalStorage().make_dirs(f"{tmp_path}/a/b")
    assert synced == [str(tmp_path.parent), str(tmp_path), f"{tmp_path}/a"]


def test_make_dirs_syncs_a_folder_that_another_process_left_unsynced(tmp_path: Path, synced: list[str]) -> None:
    (tmp_path / "a").mkdir()
    LocalStorage().make_dirs(f"{tmp_path}/a")
    assert synced == [str(tmp_path)]


def test_put_if_absent_syncs_content_before_name(tmp_path: Path, synced: list[str]) -> None:
    LocalStorage().put_if_absent(f"{tmp_path}/1.json", b"{}")
    content, name = synced
    assert Path(content).name.startswith(TEMP_PREFIX)
    assert name == str(tmp_path)


def test_put_if_absent_makes_durable_what_another_process_left_unsynced(tmp_path: Path, synced: list[str]) -> None:
    (tmp_path / "1.json").write_bytes(b"{}")
    assert not LocalStorage().put_if_absent(f"{tmp_path}/1.json", b"{}")
    assert synced[-1] == str(tmp_path)


@pytest.mark.parametrize("rename", [rename_new, refuse_to_cross], ids=["one mount", "two mounts"])
def test_fast_storage_syncs_nothing(tmp_path: Path, synced: list[str], rename: Callable[[str, str], None]) -> None:
    storage = LocalStorage(durable=False, rename=rename)
    storage.move(write(storage, tmp_path / "a/b"), f"{tmp_path}/c")
    storage.put_if_absent(f"{tmp_path}/d/1", b"{}")
    storage.sync_dir(str(tmp_path))
    assert synced == []


def test_failed_sync_is_raised_with_the_path_and_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def fail(fd: int) -> None:
        calls.append(fd)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    sink = LocalStorage().open_new(f"{tmp_path}/a.bin")
    with pytest.raises(OSError, match=r"a\.bin") as caught:
        sink.finish()
    sink.abort()

    assert caught.value.errno == errno.EIO
    assert len(calls) == 1
    assert names(tmp_path) == []


def test_put_if_absent_failed_sync_leaves_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        LocalStorage().put_if_absent(f"{tmp_path}/1.json", b"{}")
    assert names(tmp_path) == []


@pytest.fixture
def file_size_limit() -> Iterator[int]:
    """Let files grow to 4 KiB: stands for a full disk, which fails at the same calls."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    yield 4096
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size_bytes", [4097, 1 << 20], ids=["found when flushed", "found when written"])
def test_no_room_names_the_file_and_abort_deletes_it(tmp_path: Path, file_size_limit: int, size_bytes: int) -> None:
    sink = LocalStorage().open_new(f"{tmp_path}/a.bin")
    with pytest.raises(OSError, match=r"a\.bin") as caught:
        _write_and_finish(sink, bytes(size_bytes))
    sink.abort()
    assert caught.value.errno == errno.EFBIG
    assert names(tmp_path) == []


def _write_and_finish(sink: LocalSink, content: bytes) -> None:
    sink.write(content)
    sink.finish()


# -- moving between mounts ---------------------------------------------------------------------------------------------
def test_move_across_mounts_copies_syncs_then_forgets_the_source(tmp_path: Path, synced: list[str]) -> None:
    storage = LocalStorage(rename=refuse_to_cross)
    source = write(storage, tmp_path / "staging/a", b"rows" * 500_000)
    storage.make_dirs(f"{tmp_path}/output")
    synced.clear()
    storage.move(source, f"{tmp_path}/output/a")

    content, folder = synced
    assert Path(content).name.startswith(TEMP_PREFIX)
    assert folder == f"{tmp_path}/output"
    assert [str(p) for p in tmp_path.rglob("*") if p.is_file()] == [f"{tmp_path}/output/a"]
    assert storage.read(f"{tmp_path}/output/a") == b"rows" * 500_000


def test_move_across_mounts_keeps_the_source_until_the_target_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(rename=refuse_to_cross)
    source = write(storage, tmp_path / "staging/a")
    (tmp_path / "output").mkdir()
    sync = os.fsync

    def fail_on_folders(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(fd)

    monkeypatch.setattr(os, "fsync", fail_on_folders)
    with pytest.raises(OSError, match="output"):
        storage.move(source, f"{tmp_path}/output/a")
    assert storage.read(source) == storage.read(f"{tmp_path}/output/a")


def test_move_across_mounts_never_overwrites_and_cleans_up(tmp_path: Path) -> None:
    storage = LocalStorage(rename=refuse_to_cross)
    source = write(storage, tmp_path / "staging/a", b"new")
    target = write(storage, tmp_path / "output/a", b"old")
    with pytest.raises(FileExistsError):
        storage.move(source, target)
    assert (storage.read(source), storage.read(target)) == (b"new", b"old")
    assert names(tmp_path / "output") == ["a"]


def test_what_killed_moves_left_is_deleted_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(rename=refuse_to_cross)
    source = write(storage, tmp_path / "staging/a")
    (tmp_path / "output").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "delete", lambda *_: None)
        patch.setattr("shutil.copyfileobj", lambda *_: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            storage.move(source, f"{tmp_path}/output/a")
    (tmp_path / "output/.tmp-of-others").touch()
    (left,) = {*names(tmp_path / "output")} - {".tmp-of-others"}
    storage.end_uploads([f"{tmp_path}/output/b", f"{tmp_path}/nowhere/a"])
    assert left in names(tmp_path / "output")
    storage.end_uploads([f"{tmp_path}/output/a"])
    assert names(tmp_path / "output") == [".tmp-of-others"]


def test_source_that_a_move_left_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage()
    one, two = write(storage, tmp_path / "x/a"), write(storage, tmp_path / "y/a")
    (tmp_path / "z").symlink_to(tmp_path / "x")
    (tmp_path / "x/c").hardlink_to(one)
    assert storage.is_leftover(one, f"{tmp_path}/x/c"), "a move by link that was killed before it deleted the first"
    assert not storage.is_leftover(one, f"{tmp_path}/z/a"), "one file by two paths"
    assert not storage.is_leftover(one, f"{tmp_path}/nowhere/a")
    assert not storage.is_leftover(one, two), "moves on one mount leave nothing, so it was written since"
    (tmp_path / "x/link").symlink_to(one)
    assert not storage.is_leftover(one, f"{tmp_path}/x/link"), "without the file, the link leads nowhere"
    accented = write(storage, tmp_path / "x/\xe9")
    (tmp_path / "x/e\u0301").hardlink_to(accented)
    assert not storage.is_leftover(accented, f"{tmp_path}/x/e\u0301"), "some file systems take them for one"
    found = Path.stat

    def on_two_mounts(path: Path, **options: bool) -> os.stat_result:
        it = found(path, **options)
        fields = list(it)
        fields[stat.ST_DEV] += path.is_relative_to(tmp_path / "y")
        return os.stat_result(fields, {"st_mtime_ns": it.st_mtime_ns})

    monkeypatch.setattr(Path, "stat", on_two_mounts)
    os.utime(two, ns=(0, found(Path(one)).st_mtime_ns + 1))
    assert storage.is_leftover(one, two)
    os.utime(one, ns=(0, found(Path(two)).st_mtime_ns + 1))
    assert not storage.is_leftover(one, two), "written after the copy"


def test_move_across_mounts_missing_source_is_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LocalStorage(rename=refuse_to_cross).move(f"{tmp_path}/staging/a", f"{tmp_path}/b")


# -- the system's rename -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("answer", [errno.ENOSYS, errno.EINVAL], ids=["old kernel", "file system without the flag"])
def test_rename_new_links_where_the_flag_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: int
) -> None:
    monkeypatch.setattr(_rename, "_renameat2", lambda source, target: answer)
    source = write(LocalStorage(), tmp_path / "a")
    rename_new(source, f"{tmp_path}/b")
    assert names(tmp_path) == ["b"]


@pytest.mark.parametrize("link", [errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EACCES], ids=os.strerror)
def test_file_system_that_can_neither_rename_safely_nor_link_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: int
) -> None:
    """Such as a bucket mounted by FUSE; it was "Operation not permitted" alone."""

    def refuse(self: Path, target: str) -> None:
        raise OSError(link, os.strerror(link), str(target))

    monkeypatch.setattr(_rename, "_renameat2", lambda source, target: errno.EINVAL)
    monkeypatch.setattr(Path, "hardlink_to", refuse)
    source = write(LocalStorage(), tmp_path / "a")
    with pytest.raises(OSError, match=os.strerror(link)) as caught:
        rename_new(source, f"{tmp_path}/b")
    assert caught.value.errno == link
    assert ("no hard links" in str(caught.value)) is (link != errno.EACCES)
    assert names(tmp_path) == ["a"]


def test_renameat2_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name, use_errno: object())
    assert _rename._find_renameat2() is None


def test_rename_new_links_without_a_system_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_rename, "_renameat2", None)
    source = write(LocalStorage(), tmp_path / "a")
    rename_new(source, f"{tmp_path}/b")
    assert names(tmp_path) == ["b"]


def test_walk_does_not_follow_links_to_folders(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/loop").symlink_to(tmp_path)
    assert list(LocalStorage().walk_files(str(tmp_path))) == [f"{tmp_path}/a/loop"]


def test_storage_travels_to_spark_tasks(tmp_path: Path) -> None:
    storage = pickle.loads(pickle.dumps(LocalStorage(durable=False)))
    assert storage == LocalStorage(durable=False)
    storage.move(write(storage, tmp_path / "a"), f"{tmp_path}/b")
    assert storage.list_names(str(tmp_path)) == ["b"]


def test_folder_in_which_names_that_differ_in_case_are_one_is_told(tmp_path: Path) -> None:
    lake = tmp_path / "1" / "Lake"
    (lake / "2").mkdir(parents=True)
    assert not LocalStorage().folds_case(str(lake))
    (tmp_path / "1" / "lAKE").symlink_to(lake)  # found by both names, as where case does not count
    assert LocalStorage().folds_case(str(lake))
    assert LocalStorage().folds_case(str(lake / "3" / "4"))
    (lake / "orders").mkdir()
    assert not LocalStorage().folds_case(str(lake))
    assert not LocalStorage().folds_case("/")


# -- folders of many datasets ------------------------------------------------------------------------------------------
class Watched(LocalStorage):
    """Records which folders exist at each sync, and lets the sync of one folder fail."""

    def __init__(self, root: Path, fails: str = "") -> None:
        super().__init__()
        self.root = root
        self.fails = fails
        self.synced: list[str] = []
        self.existing: list[set[str]] = []

    def sync_dir(self, path: str) -> None:
        self.synced.append(str(Path(path).relative_to(self.root.parent)))
        self.existing.append({str(found.relative_to(self.root)) for found in self.root.rglob("*")})
        if path == f"{self.root}/{self.fails}":
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)


def test_new_folders_of_many_datasets_share_the_syncs_of_their_parents(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    root.mkdir()
    storage = Watched(root)
    paths = [f"{root}/all/t/{name}" for name in "abc"]

    assert storage.make_all_dirs(paths) == dict.fromkeys(paths)

    assert all(Path(path).is_dir() for path in paths)
    assert storage.synced == [".", "lake", "lake/all", "lake/all/t"]
    # Nothing exists below a folder before that folder survives a power loss.
    assert storage.existing == [set(), {"all"}, {"all", "all/t"}, {"all", "all/t", *(f"all/t/{n}" for n in "abc")}]


def test_folder_that_cannot_be_synced_is_an_error_of_those_below_it_alone(tmp_path: Path) -> None:
    storage = Watched(tmp_path, fails="bad")
    paths = [f"{tmp_path}/bad/a", f"{tmp_path}/bad/b", f"{tmp_path}/good/a"]
    errors = storage.make_all_dirs(paths)
    assert [getattr(errors[path], "errno", None) for path in paths] == [errno.EIO, errno.EIO, None]


def test_file_in_the_way_of_one_folder_is_no_error_of_the_others(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    paths = [f"{tmp_path}/file", f"{tmp_path}/file/below", f"{tmp_path}/other"]
    errors = LocalStorage().make_all_dirs(paths)
    assert [type(errors[path]) for path in paths] == [NotADirectoryError, NotADirectoryError, type(None)]


def test_folders_that_are_there_have_their_own_entry_synced_again(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    storage = Watched(tmp_path)
    assert storage.make_all_dirs([f"{tmp_path}/there"]) == {f"{tmp_path}/there": None}
    assert storage.synced == [tmp_path.name]


def test_move_of_a_link_is_refused_because_its_content_may_change(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"rows")
    (tmp_path / "staged").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="it is a link") as caught:
        LocalStorage().move(str(tmp_path / "staged"), str(tmp_path / "target"))
    assert caught.value.filename == str(tmp_path / "staged")
    assert not (tmp_path / "target").exists()
