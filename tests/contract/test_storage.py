"""What every Storage promises, over all that we ship."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gobblin_dagster.core.storage import FileDigest, Storage
from gobblin_dagster.storage import TEMP_PREFIX, HdfsStorage, LocalStorage, MemoryStorage, S3Storage, open_storage
from gobblin_dagster.storage._rename import link_new

STORAGES: dict[str, Callable[[], Storage]] = {
    "local": LocalStorage,
    "local-fast": lambda: LocalStorage(durable=False),
    "local-without-renameat2": lambda: LocalStorage(rename=link_new),
    "memory": MemoryStorage,
}
WITH_FOLDERS = [*STORAGES, pytest.param("hdfs", marks=pytest.mark.hdfs)]
ALL = [*WITH_FOLDERS, pytest.param("s3", marks=pytest.mark.s3)]
needs_folders = pytest.mark.parametrize("storage", WITH_FOLDERS, indirect=True)
"""For what can only be said of folders that are there by themselves; in S3 a folder is the beginning of a name."""


@pytest.fixture(params=ALL)
def storage(request: pytest.FixtureRequest) -> Storage:
    if request.param == "hdfs":
        return open_storage(request.getfixturevalue("hdfs_server").url)
    if request.param == "s3":
        return S3Storage(request.getfixturevalue("s3_server").new_bucket())
    return STORAGES[request.param]()


@pytest.fixture
def root(storage: Storage, tmp_path: Path) -> str:
    match storage:
        case HdfsStorage(authority=authority):
            folder = f"hdfs://{authority}{tmp_path}"
        case S3Storage(bucket=bucket):
            folder = f"s3://{bucket}{tmp_path}"
        case _:
            folder = str(tmp_path)
    storage.make_dirs(folder)
    return folder


def write(storage: Storage, path: str, content: bytes = b"") -> str:
    sink = storage.open_new(path)
    sink.write(content)
    sink.finish()
    return path


# -- writing -----------------------------------------------------------------------------------------------------------
def test_what_was_just_written_is_read_whole(storage: Storage, root: str) -> None:
    for number in range(20):
        content = b"x" * (100 + number)
        assert storage.put_if_absent(f"{root}/{number}", content)
        assert storage.read(f"{root}/{number}") == content
        write(storage, f"{root}/w{number}", content)
        assert storage.sha256(f"{root}/w{number}") == hashlib.sha256(content).hexdigest()


def test_open_new_whole_file_digest_is_that_of_all_bytes(storage: Storage, root: str) -> None:
    content = bytes(range(256)) * 8192
    sink = storage.open_new(f"{root}/new/folder/a.bin")
    written = [sink.write(content[:1]), sink.write(memoryview(content)[1:70_000]), sink.write(content[70_000:])]
    digest = sink.finish()

    assert written == [1, 69_999, len(content) - 70_000]
    assert digest == FileDigest(len(content), hashlib.sha256(content).hexdigest())
    assert storage.read(f"{root}/new/folder/a.bin") == content
    assert storage.sha256(f"{root}/new/folder/a.bin") == digest.sha256
    assert storage.size(f"{root}/new/folder/a.bin") == len(content)


def test_open_new_wide_view_counts_bytes_not_items(storage: Storage, root: str) -> None:
    sink = storage.open_new(f"{root}/a.bin")
    assert sink.write(memoryview(bytes(16)).cast("q")) == 16
    assert sink.finish() == FileDigest(16, hashlib.sha256(bytes(16)).hexdigest())


def test_open_new_existing_file_is_refused_and_kept(storage: Storage, root: str) -> None:
    path = write(storage, f"{root}/a.bin", b"old")
    with pytest.raises(FileExistsError, match=r"a\.bin"):
        storage.open_new(path)
    assert storage.read(path) == b"old"


@needs_folders
def test_open_new_below_a_file_is_refused(storage: Storage, root: str) -> None:
    path = write(storage, f"{root}/a.bin")
    with pytest.raises(NotADirectoryError):
        storage.open_new(f"{path}/b/c.bin")


def test_sink_aborted_leaves_nothing(storage: Storage, root: str) -> None:
    sink = storage.open_new(f"{root}/a.bin")
    sink.write(b"half")
    sink.abort()
    sink.abort()
    assert storage.list_names(root) == []


def test_sink_finished_after_its_folder_was_deleted_brings_nothing_back(storage: Storage, root: str) -> None:
    sink = storage.open_new(f"{root}/run/a.bin")
    sink.write(b"late")
    storage.delete_tree(f"{root}/run")
    assert sink.finish().size_bytes == 4
    assert storage.list_names(root) == []


# -- reading -----------------------------------------------------------------------------------------------------------
def test_reads_of_missing_file_say_so(storage: Storage, root: str) -> None:
    for path in (f"{root}/none.bin", f"{root}/no/such/folder"):
        assert storage.size(path) is None
        assert storage.list_names(path) == []
        assert list(storage.walk_files(path)) == []
        for read in (storage.read, storage.sha256):
            with pytest.raises(FileNotFoundError, match=r"none|such"):
                read(path)
        storage.delete(path)
        storage.delete_tree(path)


@needs_folders
def test_folder_has_neither_size_nor_content(storage: Storage, root: str) -> None:
    storage.make_dirs(f"{root}/folder")
    assert storage.size(f"{root}/folder") is None
    for read in (storage.read, storage.sha256):
        with pytest.raises(IsADirectoryError):
            read(f"{root}/folder")


def test_listings_are_sorted_and_hide_unfinished_files(storage: Storage, root: str) -> None:
    for path in (
        "b/2",
        "b/1",
        "b.x",
        "a",
        f"b/{TEMP_PREFIX}left-by-a-crash",
        f"{TEMP_PREFIX}folder/hidden",
        "_c",
        ".d",
    ):
        write(storage, f"{root}/{path}")

    assert storage.list_names(root) == [".d", "_c", "a", "b", "b.x"]
    assert list(storage.walk_files(root)) == [f"{root}/{p}" for p in (".d", "_c", "a", "b/1", "b/2", "b.x")]


def test_listing_of_a_file_is_refused(storage: Storage, root: str) -> None:
    path = write(storage, f"{root}/a")
    with pytest.raises(NotADirectoryError):
        storage.list_names(path)


# -- moving ------------------------------------------------------------------------------------------------------------
def test_move_takes_the_content_along(storage: Storage, root: str) -> None:
    source = write(storage, f"{root}/staging/a", b"rows")
    storage.make_dirs(f"{root}/output")
    storage.move(source, f"{root}/output/b")
    storage.sync_dir(f"{root}/staging")
    storage.sync_dir(f"{root}/output")

    assert storage.is_move_atomic is not isinstance(storage, S3Storage)
    assert list(storage.walk_files(root)) == [f"{root}/output/b"]
    assert storage.read(f"{root}/output/b") == b"rows"


def test_move_onto_a_file_changes_neither(storage: Storage, root: str) -> None:
    source, target = write(storage, f"{root}/a", b"new"), write(storage, f"{root}/b", b"old")
    with pytest.raises(FileExistsError, match="a"):
        storage.move(source, target)
    assert (storage.read(source), storage.read(target)) == (b"new", b"old")


@needs_folders
def test_move_onto_a_folder_never_moves_into_it(storage: Storage, root: str) -> None:
    source = write(storage, f"{root}/a", b"new")
    storage.make_dirs(f"{root}/b")
    with pytest.raises(FileExistsError):
        storage.move(source, f"{root}/b")
    assert list(storage.walk_files(root)) == [source]


def test_move_of_missing_file_is_refused(storage: Storage, root: str) -> None:
    with pytest.raises(FileNotFoundError, match="gone"):
        storage.move(f"{root}/gone", f"{root}/b")
    assert storage.list_names(root) == []


@needs_folders
def test_move_into_missing_folder_is_refused(storage: Storage, root: str) -> None:
    source = write(storage, f"{root}/a", b"rows")
    with pytest.raises(FileNotFoundError):
        storage.move(source, f"{root}/no-folder/b")
    assert storage.read(source) == b"rows"


def test_move_raced_onto_one_target_has_one_winner(storage: Storage, root: str) -> None:
    sources = [write(storage, f"{root}/source-{n}", str(n).encode()) for n in range(8)]
    won = race(sources, lambda source: _did_not_raise(storage, source, f"{root}/target"))

    assert won.count(True) == 1
    winner = won.index(True)
    assert storage.read(f"{root}/target") == str(winner).encode()
    assert storage.list_names(root) == sorted([f"source-{n}" for n in range(8) if n != winner] + ["target"])


def _did_not_raise(storage: Storage, source: str, target: str) -> bool:
    try:
        storage.move(source, target)
    except FileExistsError:
        return False
    return True


def race(items: list[str], act: Callable[[str], bool]) -> list[bool]:
    """Run `act` of all items at the same moment."""
    gate = threading.Barrier(len(items))

    def run(item: str) -> bool:
        gate.wait(timeout=120)
        return act(item)

    with ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(run, items))


# -- put if absent -----------------------------------------------------------------------------------------------------
def test_put_if_absent_makes_folders_and_never_overwrites(storage: Storage, root: str) -> None:
    assert storage.put_if_absent(f"{root}/log/1", b"first")
    assert not storage.put_if_absent(f"{root}/log/1", b"second")
    assert storage.read(f"{root}/log/1") == b"first"
    assert list(storage.walk_files(root)) == [f"{root}/log/1"]


@needs_folders
def test_put_if_absent_below_a_file_is_refused(storage: Storage, root: str) -> None:
    path = write(storage, f"{root}/a")
    with pytest.raises(NotADirectoryError):
        storage.put_if_absent(f"{path}/1", b"")


def test_put_if_absent_raced_has_one_winner_per_path(storage: Storage, root: str) -> None:
    for n in range(20):
        path = f"{root}/log/{n}"
        values = [f"writer-{w} of {n}" * 100 for w in range(6)]
        won = race(values, lambda value, path=path: storage.put_if_absent(path, value.encode()))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        assert won.count(True) == 1
        assert storage.read(path) == values[won.index(True)].encode()
    assert len(storage.list_names(f"{root}/log")) == 20


# -- folders and deleting ----------------------------------------------------------------------------------------------
@needs_folders
def test_make_dirs_existing_is_fine(storage: Storage, root: str) -> None:
    storage.make_dirs(f"{root}/a/b/c")
    storage.make_dirs(f"{root}/a/b/c")
    assert storage.list_names(f"{root}/a/b") == ["c"]


@needs_folders
@pytest.mark.parametrize("below", ["", "/b", "/b/c"], ids=["itself", "child", "grandchild"])
def test_make_dirs_where_a_file_is_is_refused(storage: Storage, root: str, below: str) -> None:
    path = write(storage, f"{root}/a", b"kept")
    with pytest.raises(NotADirectoryError):
        storage.make_dirs(path + below)
    assert storage.read(path) == b"kept"


@needs_folders
def test_make_dirs_raced_all_succeed(storage: Storage, root: str) -> None:
    def make(name: str) -> bool:
        storage.make_dirs(f"{root}/a/b/c/{name}")
        return True

    assert all(race([str(n % 2) for n in range(8)], make))
    assert storage.list_names(f"{root}/a/b/c") == ["0", "1"]


def test_sync_dir_missing_folder_is_an_error_where_syncing_is_meant(storage: Storage, root: str) -> None:
    if storage == LocalStorage(durable=False) or isinstance(storage, HdfsStorage | S3Storage):
        storage.sync_dir(f"{root}/none")
    else:
        with pytest.raises(FileNotFoundError):
            storage.sync_dir(f"{root}/none")


@needs_folders
def test_delete_removes_one_file_and_no_folder(storage: Storage, root: str) -> None:
    write(storage, f"{root}/a")
    storage.make_dirs(f"{root}/b")
    storage.delete(f"{root}/a")
    storage.delete(f"{root}/a")
    with pytest.raises(OSError, match="b"):
        storage.delete(f"{root}/b")
    assert storage.list_names(root) == ["b"]


def test_delete_tree_takes_hidden_files_and_spares_the_neighbour(storage: Storage, root: str) -> None:
    write(storage, f"{root}/run/a/1")
    write(storage, f"{root}/run/a/{TEMP_PREFIX}2")
    kept = write(storage, f"{root}/run-2/a")
    storage.delete_tree(f"{root}/run")
    storage.delete_tree(f"{root}/run")

    assert list(storage.walk_files(root)) == [kept]
    write(storage, f"{root}/run/a/1", b"again")
    assert storage.list_names(f"{root}/run/a") == ["1"]


def test_delete_tree_of_a_file_is_refused(storage: Storage, root: str) -> None:
    path = write(storage, f"{root}/a")
    with pytest.raises(NotADirectoryError):
        storage.delete_tree(path)
    assert storage.list_names(root) == ["a"]
