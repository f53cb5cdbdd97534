"""Read published files with pyarrow from any storage. Import it only to read data: pyarrow.fs is slow to load."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow.fs as pafs
from fsspec import AbstractFileSystem

from gobblin_dagster.core.storage import Storage
from gobblin_dagster.storage.urls import split, storage_path


def arrow_files(paths: Sequence[str]) -> tuple[pafs.FileSystem, list[str]]:
    """Return the pyarrow file system that holds some files, and the paths of these files in it.

    Args:
        paths: absolute paths or URLs of one storage, as in `PublishedFile.path`. If empty, the local file system is
            returned.

    Raises:
        UsageError: there is no such storage.
        EnvironmentFaultError: the storage's package is not installed.

    Example:
        >>> arrow_files(["/lake/a.parquet"])[1]
        ['/lake/a.parquet']
    """
    scheme, host, _ = split(paths[0] if paths else "/")
    return scheme.arrow(host, [storage_path(path) for path in paths])


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
