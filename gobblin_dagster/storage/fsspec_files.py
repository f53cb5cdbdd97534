"""FsspecFiles: any file system that fsspec knows, as a source of files."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from gobblin_dagster.core.errors import EnvironmentFaultError, UsageError
from gobblin_dagster.storage.file_facts import FileFacts, RemoteEntry
from gobblin_dagster.storage.os_errors import os_errors


@dataclass(frozen=True)
class FsspecFiles:
    """A file system of fsspec."""

    prefix: str
    """Beginning of a URL that is cut off to get the path; empty if the file system accepts whole URLs."""
    files: Any

    def _inside(self, url: str) -> str:
        return url.removeprefix(self.prefix) if self.prefix else self.files._strip_protocol(url)

    def scan(self, url: str) -> Iterator[RemoteEntry]:
        path = self._inside(url)
        self.files.invalidate_cache(path)
        with os_errors():
            found = self.files.ls(path, detail=True)
        for info in found:
            name = info["name"].rstrip("/").rpartition("/")[2]
            # For a link or an unknown type, ask for the entry itself, which follows links.
            real = self._followed(info) if info["type"] not in ("file", "directory") else info
            yield RemoteEntry(name, f"{url}/{name}", _fsspec_facts(real), real["type"] == "directory")

    def _followed(self, info: dict[str, Any]) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self.files.info(info["name"])
        except OSError:
            return info  # a link whose target does not exist
        return found

    def look(self, url: str) -> FileFacts:
        with os_errors():
            facts = _fsspec_facts(self.files.info(self._inside(url)))
        if facts is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url)
        return facts

    def open(self, url: str) -> pa.NativeFile:
        with os_errors():
            return pa.PythonFile(self.files.open(self._inside(url), "rb"), mode="r")


_TIMES = ("mtime", "LastModified", "last_modified", "modified", "updated", "created")
"""Keys under which file systems of fsspec return the time of change."""


def _fsspec_facts(info: dict[str, Any]) -> FileFacts | None:
    if info["type"] != "file":
        return None
    changed = next((info[key] for key in _TIMES if info.get(key) is not None), 0)
    seconds = changed.timestamp() if isinstance(changed, datetime) else float(changed)
    return FileFacts(int(info["size"] or 0), round(seconds * 1_000_000))


def known_to_fsspec(scheme: str) -> Any:
    """Return fsspec's file system of a scheme.

    Raises:
        UsageError: fsspec does not know the scheme.
        EnvironmentFaultError: the package that fsspec needs for it is not installed.
    """
    import fsspec  # noqa: PLC0415  # slow to load

    try:
        return fsspec.filesystem(scheme)
    except ImportError as error:
        raise EnvironmentFaultError(
            problem=f"Paths that begin with {scheme}:// need a package that is not installed: {error}.",
            hint="Install it as fsspec says above.",
        ) from error
    except ValueError as error:
        raise UsageError(
            problem=f"Files of scheme {scheme!r} cannot be read: neither this program nor fsspec knows the scheme.",
            hint="Use a path, or a URL of s3://, gs://, hdfs://, sftp:// or another scheme that fsspec knows.",
        ) from error
