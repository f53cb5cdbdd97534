"""What is known of an input file, and how a file system is asked for it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa


class FileFacts(NamedTuple):
    """Size, time of change and checksum of a file, by which its versions differ."""

    size_bytes: int
    modified_us: int
    """Time of change in microseconds since the epoch; 0 if the file system does not know it."""
    checksum: str = ""
    """`kind=value`, see `storage.checksums`; empty unless `scan_with_checksums` found one."""


@dataclass(frozen=True, slots=True)
class RemoteEntry:
    """One entry of a folder."""

    name: str
    path: str
    """URL of the entry."""
    facts: FileFacts | None
    """None if it is not a file."""
    is_folder: bool

    def is_dir(self) -> bool:
        """Return whether it is a folder, or a link to one."""
        return self.is_folder

    def is_symlink(self) -> bool:
        """Return False: remote file systems resolve links themselves."""
        return False


class RemoteFiles(Protocol):
    """Read access to one remote file system, by URL."""

    def scan(self, url: str) -> Iterable[RemoteEntry]:
        """Return the entries of a folder; raises OSError."""

    def look(self, url: str) -> FileFacts:
        """Return the facts of a file; raises OSError."""

    def open(self, url: str) -> pa.NativeFile:
        """Open a file for reading at any position; raises OSError. Each read may be a request: read much at a time."""


def local_facts(found: os.stat_result) -> FileFacts | None:
    """Return the facts of a local file; None if it is not a regular file."""
    return FileFacts(found.st_size, found.st_mtime_ns // 1000) if stat.S_ISREG(found.st_mode) else None


def lies_at(handle: int, real: str) -> bool:
    """Return whether an open local file lies at a path without links; True if the system cannot tell (only Linux can).

    A path may lead to another file when it is opened than when it was looked at.
    """
    try:
        return os.readlink(f"/proc/self/fd/{handle}") == real  # noqa: PTH115 - of a handle
    except FileNotFoundError:
        return True
