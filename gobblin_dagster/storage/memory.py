"""MemoryStorage: files in a dict, for tests that run thousands of commits per minute."""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
import threading
from collections.abc import Iterator
from functools import cache

from gobblin_dagster.core.storage import FileDigest
from gobblin_dagster.storage.local import TEMP_PREFIX
from gobblin_dagster.storage.scheme import Scheme


def _fail(code: int, *paths: str) -> OSError:
    """Return the error that a local file system would raise; OSError chooses the subclass by `code`."""
    source, target = (*paths, None)[:2]
    return OSError(code, os.strerror(code), source, None, target)


class MemorySink:
    """A new file; it is created empty, and gets its content with `finish`."""

    def __init__(self, storage: MemoryStorage, path: str) -> None:
        self._storage = storage
        self._path = path
        self._content = bytearray()

    def write(self, data: bytes | memoryview) -> int:
        view = memoryview(data)
        self._content += view
        return view.nbytes

    def finish(self) -> FileDigest:
        content = bytes(self._content)
        self._storage.replace(self._path, content)
        return FileDigest(len(content), hashlib.sha256(content).hexdigest())

    def abort(self) -> None:
        self._storage.delete(self._path)


class MemoryStorage:
    """Files that live as long as this object; each method is atomic for all threads.

    It raises the errors of a file system: for a missing folder, or a file in place of a folder. It cannot be pickled,
    because other processes could not see its files.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.is_move_atomic = True
        self._lock = threading.RLock()
        self._files: dict[str, bytes] = {}
        self._folders: dict[str, set[str]] = {"/": set()}
        """Names inside each folder, files and folders alike."""

    def __repr__(self) -> str:
        return f"MemoryStorage(name={self.name!r})"

    def _link(self, path: str, content: bytes) -> None:
        folder, name = posixpath.split(path)
        if folder not in self._folders:
            raise _fail(errno.ENOTDIR if folder in self._files else errno.ENOENT, path)
        if name in self._folders[folder]:
            raise _fail(errno.EEXIST, path)
        self._folders[folder].add(name)
        self._files[path] = content

    def _unlink(self, path: str) -> bytes:
        if path in self._folders:
            raise _fail(errno.EISDIR, path)
        if path not in self._files:
            raise _fail(errno.ENOENT, path)
        folder, name = posixpath.split(path)
        self._folders[folder].discard(name)
        return self._files.pop(path)

    def replace(self, path: str, content: bytes) -> None:
        """Set the content of a file, for `MemorySink`; do nothing if the file was deleted meanwhile."""
        with self._lock:
            if path in self._files:
                self._files[path] = content

    def open_new(self, path: str) -> MemorySink:
        with self._lock:
            self.make_dirs(posixpath.dirname(path))
            self._link(path, b"")
        return MemorySink(self, path)

    def size(self, path: str) -> int | None:
        with self._lock:
            content = self._files.get(path)
        return None if content is None else len(content)

    def sha256(self, path: str) -> str:
        return hashlib.sha256(self.read(path)).hexdigest()

    def digest(self) -> bytes:
        """Return a digest of all names and contents, also of empty folders and temporary files, for tests."""
        total = hashlib.sha256()
        with self._lock:
            total.update("\0".join(sorted(self._folders)).encode())
            for path, content in sorted(self._files.items()):
                total.update(f"\0{path}\0{len(content)}\0".encode() + content)
        return total.digest()

    def read(self, path: str) -> bytes:
        with self._lock:
            if path in self._folders:
                raise _fail(errno.EISDIR, path)
            if path not in self._files:
                raise _fail(errno.ENOENT, path)
            return self._files[path]

    def move(self, source: str, target: str) -> None:
        with self._lock:
            self._link(target, self.read(source))
            self._unlink(source)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with self._lock:
            self.make_dirs(posixpath.dirname(path))
            try:
                self._link(path, bytes(data))
            except FileExistsError:
                return False
            return True

    def make_dirs(self, path: str) -> None:
        path = path.rstrip("/") or "/"
        with self._lock:
            if path in self._folders:
                return
            if path in self._files:
                raise _fail(errno.ENOTDIR, path)
            parent, name = posixpath.split(path)
            self.make_dirs(parent)
            self._folders[parent].add(name)
            self._folders[path] = set()

    def sync_dir(self, path: str) -> None:
        with self._lock:
            self._names(path)

    def _names(self, path: str) -> set[str]:
        path = path.rstrip("/") or "/"
        if path in self._folders:
            return self._folders[path]
        raise _fail(errno.ENOTDIR if path in self._files else errno.ENOENT, path)

    def list_names(self, path: str) -> list[str]:
        with self._lock:
            try:
                return sorted(name for name in self._names(path) if not name.startswith(TEMP_PREFIX))
            except FileNotFoundError:
                return []

    def walk_files(self, path: str) -> Iterator[str]:
        for name in self.list_names(path):
            child = posixpath.join(path, name)
            with self._lock:
                is_folder = child in self._folders
            if is_folder:
                yield from self.walk_files(child)
            else:
                yield child

    def delete(self, path: str) -> None:
        with self._lock:
            try:
                self._unlink(path)
            except FileNotFoundError:
                return

    def delete_tree(self, path: str) -> None:
        path = path.rstrip("/")
        with self._lock:
            if path in self._files:
                raise _fail(errno.ENOTDIR, path)
            for name in list(self._folders.get(path, ())):
                child = posixpath.join(path, name)
                if child in self._folders:
                    self.delete_tree(child)
                else:
                    self._unlink(child)
            if self._folders.pop(path, None) is not None:
                folder, name = posixpath.split(path)
                self._folders[folder].discard(name)

    def delete_empty(self, path: str) -> None:
        with self._lock:
            if path in self._files:
                raise _fail(errno.ENOTDIR, path)
            if not self._folders.get(path.rstrip("/")):
                self.delete_tree(path)


class MemoryScheme(Scheme):
    """`memory://name/path`, one storage for each name and process."""

    example = "memory://name/path (tests)"
    decodes_paths = True

    def storage(self, host: str, *, durable: bool) -> MemoryStorage:
        return _shared(host)


@cache
def _shared(name: str) -> MemoryStorage:
    return MemoryStorage(name)
