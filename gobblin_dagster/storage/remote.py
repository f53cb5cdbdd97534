"""Read input files on remote file systems: list a folder, look at a file, open it.

URLs must not hold credentials or endpoints. These come from the usual places of each system: boto3's for `s3://`,
Hadoop's configuration for `hdfs://`, `GOOGLE_APPLICATION_CREDENTIALS` for `gs://`, ssh's files (config, keys, agent,
known hosts) and `SSHPASS` for `sftp://`. fsspec opens URLs of all other schemes.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import pyarrow as pa

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.storage.schemes import scheme_named

_PASSING = ("NETWORK_CONNECTION", "SLOW_DOWN", "SERVICE_UNAVAILABLE", "INTERNAL_FAILURE", "THROTTLING", "timed out")
"""Words of errors of Arrow's clients after which a retry may succeed."""


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


def remote_files(url: str) -> RemoteFiles:
    """Return the file system of a URL.

    Raises:
        UsageError: the URL holds a password or a key, or its scheme is unknown.
        EnvironmentFaultError: the package for the scheme is not installed.
    """
    if problem := credentials_problem(url):
        raise UsageError(problem=f"{problem}.", hint="docs/reference/sources.md says where credentials are read from.")
    parts = urlsplit(url.partition("?")[0])
    return scheme_named(parts.scheme).files(parts.netloc)


_clients: dict[tuple[str, str, int], Any] = {}
_connecting: defaultdict[tuple[str, str, int], Lock] = defaultdict(Lock)


def client_of(scheme: str, authority: str) -> Any:
    """Return the connection of this process; a forked process must not use the connection of its parent.

    A lost connection is opened again: processes that stay would never read from that server again.

    Raises:
        UsageError, EnvironmentFaultError: as `remote_files`.
        OSError: a connection cannot be opened.
    """
    named, key = scheme_named(scheme), (scheme, authority, os.getpid())
    with _connecting[key]:
        if key not in _clients or named.is_lost(_clients[key]):
            _clients[key] = named.connect(authority)
        return _clients[key]


def credentials_problem(url: str) -> str:
    """Return a sentence if a URL holds a password or a key, else an empty text. The sentence does not hold the URL."""
    scheme, _, rest = url.partition("://")
    user, at, _ = rest.partition("/")[0].rpartition("@")
    if at and (":" in user or not scheme_named(scheme).takes_user):
        return f"a {scheme}:// URL holds a password or a key; move it from the job file to the environment"
    return ""


def is_passing(error: OSError) -> bool:
    """Return whether a retry may succeed after this error."""
    return isinstance(error, ConnectionError | TimeoutError) or any(mark in str(error) for mark in _PASSING)


def raise_if_passing(error: Exception) -> None:
    """Raise an error that may not come again; return if it is the file's own, so that each reader will meet it."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and is_passing(error)):
        raise error


def as_os_error(error: Exception) -> OSError | None:
    """Return an error of a file system's library as an OSError; None for any other error."""
    if isinstance(error, OSError):
        return error
    kinds = {f"{kind.__module__}.{kind.__name__}" for kind in type(error).__mro__}
    # Compare names: asyncssh may not be installed, and importing it to check another library's error would be slow.
    if "asyncssh.misc.Error" not in kinds:
        return None
    if kinds & {"asyncssh.misc.ConnectionLost", "asyncssh.sftp.SFTPConnectionLost", "asyncssh.sftp.SFTPNoConnection"}:
        return ConnectionError(errno.ECONNRESET, str(error))
    return OSError(errno.EIO, str(error))


@contextmanager
def os_errors() -> Iterator[None]:
    """Raise errors of a file system's library as OSErrors."""
    try:
        yield
    except Exception as error:
        # Each library has its own errors; errors that are not of a file system are raised unchanged.
        known = as_os_error(error)
        if known is None or known is error:
            raise
        raise known from error


def local_facts(found: os.stat_result) -> FileFacts | None:
    """Return the facts of a local file; None if it is not a regular file."""
    return FileFacts(found.st_size, found.st_mtime_ns // 1000) if stat.S_ISREG(found.st_mode) else None


def look_at(path: str) -> FileFacts:
    """Return the facts of a file by absolute path or URL; raises OSError."""
    if "://" in path:
        return remote_files(path).look(path)
    return local_facts(Path(path).stat()) or FileFacts(0, 0)
