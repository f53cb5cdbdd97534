"""HDFS read by others than the commit: as a source of files, and by pyarrow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as pafs

from gobblin_dagster.core.utils.optional_packages import optional_package
from gobblin_dagster.storage._hdfs_client import hdfs_client, hdfs_errors, open_whole
from gobblin_dagster.storage.file_facts import FileFacts, RemoteEntry

if TYPE_CHECKING:
    from hdfs_native import Client


@dataclass(frozen=True)
class HdfsFiles:
    """Files of an HDFS cluster; percent signs in paths are not decoded."""

    authority: str

    def _client(self) -> Client:
        return hdfs_client(self.authority, os.getpid())

    def _inside(self, url: str) -> str:
        return url.removeprefix(f"hdfs://{self.authority}").rstrip("/") or "/"

    def scan(self, url: str) -> Iterator[RemoteEntry]:
        with hdfs_errors(url):
            for found in self._client().list_status(self._inside(url)):
                name = found.path.rstrip("/").rpartition("/")[2]
                facts = None if found.isdir else FileFacts(found.length, found.modification_time * 1000)
                yield RemoteEntry(name, f"{url}/{name}", facts, found.isdir)

    def look(self, url: str) -> FileFacts:
        with hdfs_errors(url):
            found = self._client().get_file_info(self._inside(url))
        return FileFacts(found.length, found.modification_time * 1000)

    def open(self, url: str) -> pa.NativeFile:
        with hdfs_errors(url):
            return pa.PythonFile(open_whole(self._client(), self._inside(url), url), mode="r")


def arrow_hdfs(authority: str) -> pafs.FileSystem:
    """Return a cluster as pyarrow reads it; raises EnvironmentFaultError where hdfs-native is not installed."""
    return _arrow_hdfs(authority, os.getpid())


@cache
def _arrow_hdfs(authority: str, process: int) -> pafs.FileSystem:
    # Cached by process, and kept in forked children too. fsspec deletes its own cached clients in a child, and
    # deleting a client waits for ever for threads that only the parent has.
    hdfs_client(authority, process)
    # An optional package; `connect` has already raised a helpful error if it is missing.
    with optional_package("hdfs_native"):
        from hdfs_native.fsspec import HdfsFileSystem  # noqa: PLC0415

    return pafs.PyFileSystem(pafs.FSSpecHandler(HdfsFileSystem(authority or None)))
