"""Files of any storage as pyarrow reads them, each as a whole. Slow to load: it imports pyarrow.fs and fsspec."""

from __future__ import annotations

import io
from typing import Any

import pyarrow.fs as pafs
from fsspec import AbstractFileSystem

from gobblin_dagster.core.storage import Storage


def read_whole(storage: Storage) -> pafs.FileSystem:
    """Return a file system that reads through a storage, each file as a whole."""
    return pafs.PyFileSystem(pafs.FSSpecHandler(_StorageFiles(storage)))


class _StorageFiles(AbstractFileSystem):  # type: ignore[misc]  # fsspec is not typed
    """A storage as a file system of fsspec, as far as reading needs one."""

    cachable = False  # the name that fsspec reads

    def __init__(self, storage: Storage) -> None:
        super().__init__()
        self._storage = storage

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        size = self._storage.size(path)
        if size is None:
            raise FileNotFoundError(path)
        return {"name": path, "size": size, "type": "file"}

    def _open(self, path: str, mode: str = "rb", **_: Any) -> io.BytesIO:
        return io.BytesIO(self._storage.read(path))
