"""Tests that every Storage must pass."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from gobblin_dagster.core.storage import FileDigest, SharedFolderStorage, Storage
from gobblin_dagster.storage import TEMP_PREFIX
from gobblin_dagster.testing.conformance.base import Conformance, to_override


class StorageConformance(Conformance):
    """Tests of a storage; of one whose folders are there by themselves: `FolderStorageConformance`.

    Example:
        ::

            class TestShelf(StorageConformance):
                syncs_folders = False

                @pytest.fixture
                def storage(self) -> Storage:
                    return ShelfStorage()
    """

    protocol = "gobblin_dagster.core.storage.Storage"
    moves_atomically: bool = True
    """Expected value of `Storage.is_move_atomic`: True if `move` is one step for every reader."""
    syncs_folders: bool = True
    """True if `sync_dir` does anything, and so fails for a folder that does not exist."""

    @pytest.fixture
    def storage(self) -> Storage:
        """Return the storage under test; made for each test."""
        to_override(self, "a fixture `storage`", "the storage under test")

    @pytest.fixture
    def root(self, storage: Storage, tmp_path: Path) -> str:
        """Return an empty folder of the storage; override it where paths do not begin with `/`."""
        storage.make_dirs(str(tmp_path))
        return str(tmp_path)

    def test_what_was_just_written_is_read_whole(self, storage: Storage, root: str) -> None:
        """Data of `put_if_absent` and of a finished sink is read whole at once, by `read` and `sha256`."""
        for number in range(20):
            content = b"x" * (100 + number)
            assert storage.put_if_absent(f"{root}/{number}", content)
            assert storage.read(f"{root}/{number}") == content
            write(storage, f"{root}/w{number}", content)
            assert storage.sha256(f"{root}/w{number}") == hashlib.sha256(content).hexdigest()

    def test_open_new_whole_file_digest_is_that_of_all_bytes(self, storage: Storage, root: str) -> None:
        """`write` returns how many bytes it took, `finish` size and SHA-256 of all; `open_new` makes the folders."""
        content = bytes(range(256)) * 8192
        sink = storage.open_new(f"{root}/new/folder/a.bin")
        written = [sink.write(content[:1]), sink.write(memoryview(content)[1:70_000]), sink.write(content[70_000:])]
        digest = sink.finish()

        assert written == [1, 69_999, len(content) - 70_000]
        assert digest == FileDigest(len(content), hashlib.sha256(content).hexdigest())
        assert storage.read(f"{root}/new/folder/a.bin") == content
        assert storage.sha256(f"{root}/new/folder/a.bin") == digest.sha256
        assert storage.size(f"{root}/new/folder/a.bin") == len(content)

    def test_open_new_wide_view_counts_bytes_not_items(self, storage: Storage, root: str) -> None:
        """`write` counts the bytes of a memoryview, not its items."""
        sink = storage.open_new(f"{root}/a.bin")
        assert sink.write(memoryview(bytes(16)).cast("q")) == 16
        assert sink.finish() == FileDigest(16, hashlib.sha256(bytes(16)).hexdigest())

    def test_open_new_existing_file_is_refused_and_kept(self, storage: Storage, root: str) -> None:
        """`open_new` of a file that exists raises FileExistsError with its path and leaves the file as it is."""
        path = write(storage, f"{root}/a.bin", b"old")
        with pytest.raises(FileExistsError, match=r"a\.bin"):
            storage.open_new(path)
        assert storage.read(path) == b"old"

    def test_sink_aborted_leaves_nothing(self, storage: Storage, root: str) -> None:
        """`abort` of a sink deletes what was written and never raises, also the second time."""
        sink = storage.open_new(f"{root}/a.bin")
        sink.write(b"half")
        sink.abort()
        sink.abort()
        assert storage.list_names(root) == []

    def test_sink_finished_after_its_folder_was_deleted_brings_nothing_back(self, storage: Storage, root: str) -> None:
        """`finish` does not bring back a file whose folder was deleted meanwhile."""
        sink = storage.open_new(f"{root}/run/a.bin")
        sink.write(b"late")
        storage.delete_tree(f"{root}/run")
        assert sink.finish().size_bytes == 4
        assert storage.list_names(root) == []

    def test_reads_of_missing_file_say_so(self, storage: Storage, root: str) -> None:
        """For a path without a file, `size` is None, lists are empty, `read` and `sha256` raise FileNotFoundError."""
        for path in (f"{root}/none.bin", f"{root}/no/such/folder"):
            assert storage.size(path) is None
            assert storage.list_names(path) == []
            assert list(storage.walk_files(path)) == []
            for read in (storage.read, storage.sha256):
                with pytest.raises(FileNotFoundError, match=r"none|such"):
                    read(path)
            storage.delete(path)
            storage.delete_tree(path)

    def test_listings_are_sorted_and_hide_unfinished_files(self, storage: Storage, root: str) -> None:
        """Listings are sorted and leave out files and folders whose names begin with `storage.TEMP_PREFIX`."""
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

    def test_listing_of_a_file_is_refused(self, storage: Storage, root: str) -> None:
        """`list_names` of a file raises NotADirectoryError."""
        path = write(storage, f"{root}/a")
        with pytest.raises(NotADirectoryError):
            storage.list_names(path)

    def test_move_takes_the_content_along(self, storage: Storage, root: str) -> None:
        """`move` takes the content along and leaves nothing behind; `is_move_atomic` says whether that is one step."""
        source = write(storage, f"{root}/staging/a", b"rows")
        storage.make_dirs(f"{root}/output")
        storage.move(source, f"{root}/output/b")
        storage.sync_dir(f"{root}/staging")
        storage.sync_dir(f"{root}/output")

        assert storage.is_move_atomic is self.moves_atomically
        assert list(storage.walk_files(root)) == [f"{root}/output/b"]
        assert storage.read(f"{root}/output/b") == b"rows"

    def test_move_onto_a_file_changes_neither(self, storage: Storage, root: str) -> None:
        """`move` never overwrites: onto a file it raises FileExistsError and changes neither."""
        source, target = write(storage, f"{root}/a", b"new"), write(storage, f"{root}/b", b"old")
        with pytest.raises(FileExistsError, match="a"):
            storage.move(source, target)
        assert (storage.read(source), storage.read(target)) == (b"new", b"old")

    def test_move_of_missing_file_is_refused(self, storage: Storage, root: str) -> None:
        """`move` of a file that is not there raises FileNotFoundError with its path and makes nothing."""
        with pytest.raises(FileNotFoundError, match="gone"):
            storage.move(f"{root}/gone", f"{root}/b")
        assert storage.list_names(root) == []

    def test_move_raced_onto_one_target_has_one_winner(self, storage: Storage, root: str) -> None:
        """If moves race for one target, one wins; the others raise FileExistsError and keep their files."""
        sources = [write(storage, f"{root}/source-{n}", str(n).encode()) for n in range(8)]
        won = race_for(sources, lambda source: _was_moved(storage, source, f"{root}/target"))

        assert won.count(True) == 1
        winner = won.index(True)
        assert storage.read(f"{root}/target") == str(winner).encode()
        assert storage.list_names(root) == sorted([f"source-{n}" for n in range(8) if n != winner] + ["target"])

    def test_put_if_absent_makes_folders_and_never_overwrites(self, storage: Storage, root: str) -> None:
        """`put_if_absent` makes folders; where the path exists it returns False and changes nothing."""
        assert storage.put_if_absent(f"{root}/log/1", b"first")
        assert not storage.put_if_absent(f"{root}/log/1", b"second")
        assert storage.read(f"{root}/log/1") == b"first"
        assert list(storage.walk_files(root)) == [f"{root}/log/1"]

    def test_put_if_absent_raced_has_one_winner_per_path(self, storage: Storage, root: str) -> None:
        """If calls of `put_if_absent` race for one path, one returns True, and its content is stored."""
        for n in range(20):
            path = f"{root}/log/{n}"
            values = [f"writer-{w} of {n}" * 100 for w in range(6)]

            def put(value: str, path: str = path) -> bool:
                return storage.put_if_absent(path, value.encode())

            won = race_for(values, put)
            assert won.count(True) == 1
            assert storage.read(path) == values[won.index(True)].encode()
        assert len(storage.list_names(f"{root}/log")) == 20

    def test_sync_dir_missing_folder_is_an_error_where_syncing_is_meant(self, storage: Storage, root: str) -> None:
        """`sync_dir` of a folder that is not there raises FileNotFoundError, unless the storage has nothing to sync."""
        with pytest.raises(FileNotFoundError) if self.syncs_folders else nullcontext():
            storage.sync_dir(f"{root}/none")

    def test_delete_tree_takes_hidden_files_and_spares_the_neighbour(self, storage: Storage, root: str) -> None:
        """`delete_tree` takes all below a folder, hidden files too, and spares folders whose names begin alike."""
        write(storage, f"{root}/run/a/1")
        write(storage, f"{root}/run/a/{TEMP_PREFIX}2")
        kept = write(storage, f"{root}/run-2/a")
        storage.delete_tree(f"{root}/run")
        storage.delete_tree(f"{root}/run")

        assert list(storage.walk_files(root)) == [kept]
        write(storage, f"{root}/run/a/1", b"again")
        assert storage.list_names(f"{root}/run/a") == ["1"]

    def test_delete_tree_of_a_file_is_refused(self, storage: Storage, root: str) -> None:
        """`delete_tree` of a file raises NotADirectoryError and keeps it."""
        path = write(storage, f"{root}/a")
        with pytest.raises(NotADirectoryError):
            storage.delete_tree(path)
        assert storage.list_names(root) == ["a"]


class FolderStorageConformance(StorageConformance):
    """Tests of a storage that has folders, as a disk does; in S3 a folder is only the beginning of a name."""

    def test_open_new_below_a_file_is_refused(self, storage: Storage, root: str) -> None:
        """`open_new` below a file raises NotADirectoryError."""
        path = write(storage, f"{root}/a.bin")
        with pytest.raises(NotADirectoryError):
            storage.open_new(f"{path}/b/c.bin")

    def test_folder_has_neither_size_nor_content(self, storage: Storage, root: str) -> None:
        """For a folder, `size` is None, `read` and `sha256` raise IsADirectoryError."""
        storage.make_dirs(f"{root}/folder")
        assert storage.size(f"{root}/folder") is None
        for read in (storage.read, storage.sha256):
            with pytest.raises(IsADirectoryError):
                read(f"{root}/folder")

    def test_move_onto_a_folder_never_moves_into_it(self, storage: Storage, root: str) -> None:
        """`move` onto a folder raises FileExistsError; it does not move into the folder."""
        source = write(storage, f"{root}/a", b"new")
        storage.make_dirs(f"{root}/b")
        with pytest.raises(FileExistsError):
            storage.move(source, f"{root}/b")
        assert list(storage.walk_files(root)) == [source]

    def test_move_into_missing_folder_is_refused(self, storage: Storage, root: str) -> None:
        """`move` into a folder that is not there raises FileNotFoundError and keeps the file."""
        source = write(storage, f"{root}/a", b"rows")
        with pytest.raises(FileNotFoundError):
            storage.move(source, f"{root}/no-folder/b")
        assert storage.read(source) == b"rows"

    def test_put_if_absent_below_a_file_is_refused(self, storage: Storage, root: str) -> None:
        """`put_if_absent` below a file raises NotADirectoryError."""
        path = write(storage, f"{root}/a")
        with pytest.raises(NotADirectoryError):
            storage.put_if_absent(f"{path}/1", b"")

    def test_only_empty_folders_are_deleted_by_delete_empty(self, storage: Storage, root: str) -> None:
        """`delete_empty`, which a storage may have, keeps a folder with anything in it, hidden names too."""
        if not isinstance(storage, SharedFolderStorage):
            pytest.skip("the storage has no `delete_empty`")
        storage.make_dirs(f"{root}/a/b")
        hidden = write(storage, f"{root}/c/{TEMP_PREFIX}1", b"rows")
        for folder in ("a", "c", "a/b", "missing"):
            storage.delete_empty(f"{root}/{folder}")
        assert (storage.list_names(root), storage.list_names(f"{root}/a")) == (["a", "c"], [])
        assert storage.size(hidden) == 4
        with pytest.raises(NotADirectoryError):
            storage.delete_empty(hidden)

    def test_make_dirs_existing_is_fine(self, storage: Storage, root: str) -> None:
        """`make_dirs` makes parents too and accepts folders that exist."""
        storage.make_dirs(f"{root}/a/b/c")
        storage.make_dirs(f"{root}/a/b/c")
        assert storage.list_names(f"{root}/a/b") == ["c"]

    @pytest.mark.parametrize("below", ["", "/b", "/b/c"], ids=["itself", "child", "grandchild"])
    def test_make_dirs_where_a_file_is_is_refused(self, storage: Storage, root: str, below: str) -> None:
        """`make_dirs` at or below a file raises NotADirectoryError and keeps the file."""
        path = write(storage, f"{root}/a", b"kept")
        with pytest.raises(NotADirectoryError):
            storage.make_dirs(path + below)
        assert storage.read(path) == b"kept"

    def test_make_dirs_raced_all_succeed(self, storage: Storage, root: str) -> None:
        """Calls of `make_dirs` that race all succeed."""

        def make(name: str) -> bool:
            storage.make_dirs(f"{root}/a/b/c/{name}")
            return True

        assert all(race_for([str(n % 2) for n in range(8)], make))
        assert storage.list_names(f"{root}/a/b/c") == ["0", "1"]

    def test_delete_removes_one_file_and_no_folder(self, storage: Storage, root: str) -> None:
        """`delete` removes one file, accepts one that is gone, and raises OSError for a folder."""
        write(storage, f"{root}/a")
        storage.make_dirs(f"{root}/b")
        storage.delete(f"{root}/a")
        storage.delete(f"{root}/a")
        with pytest.raises(OSError, match="b"):
            storage.delete(f"{root}/b")
        assert storage.list_names(root) == ["b"]


def write(storage: Storage, path: str, content: bytes = b"") -> str:
    """Write a file and return its path."""
    sink = storage.open_new(path)
    sink.write(content)
    sink.finish()
    return path


def race_for(items: list[str], act: Callable[[str], bool]) -> list[bool]:
    """Run `act` of all items at the same moment."""
    gate = threading.Barrier(len(items))

    def run(item: str) -> bool:
        gate.wait(timeout=120)
        return act(item)

    with ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(run, items))


def _was_moved(storage: Storage, source: str, target: str) -> bool:
    try:
        storage.move(source, target)
    except FileExistsError:
        return False
    return True
