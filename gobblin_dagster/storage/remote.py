"""Read input files on remote file systems: list a folder, look at a file, open it.

URLs must not hold credentials or endpoints. These come from the usual places of each system: boto3's for `s3://`,
Hadoop's configuration for `hdfs://`, `GOOGLE_APPLICATION_CREDENTIALS` for `gs://`, ssh's files (config, keys, agent,
known hosts) and `SSHPASS` for `sftp://`. fsspec opens URLs of all other schemes.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol
from urllib.parse import urlsplit

import pyarrow as pa

from gobblin_dagster.core.errors import EnvironmentFaultError, UsageError
from gobblin_dagster.storage.hdfs import HdfsStorage, hdfs_errors

_GIVE_UP = timedelta(seconds=60)
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
        raise UsageError(problem=problem, hint="docs/reference/sources.md says where credentials are read from.")
    parts = urlsplit(url.partition("?")[0])
    scheme, authority = parts.scheme, parts.netloc
    match scheme:
        case "s3":
            return ArrowFiles("s3://", _client(scheme, "", os.getpid()))
        case "gs" | "gcs":
            return GcsFiles(f"{scheme}://", _client(scheme, "", os.getpid()))
        case "hdfs":
            return HdfsFiles(authority)
        case "sftp":
            return FsspecFiles(f"sftp://{authority}", _client(scheme, authority, os.getpid()))
        case _:
            return FsspecFiles("", _client(scheme, "", os.getpid()))


def credentials_problem(url: str) -> str:
    """Return a sentence if a URL holds a password or a key, else an empty text. The sentence does not hold the URL."""
    scheme, _, rest = url.partition("://")
    user, at, _ = rest.partition("/")[0].rpartition("@")
    if at and (scheme != "sftp" or ":" in user):
        return f"a {scheme}:// URL holds a password or a key; move it from the job file to the environment"
    return ""


def is_passing(error: OSError) -> bool:
    """Return whether a retry may succeed after this error."""
    return isinstance(error, ConnectionError | TimeoutError) or any(mark in str(error) for mark in _PASSING)


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
def _os_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # Each library has its own errors; errors that are not of a file system are raised unchanged.
        known = as_os_error(error)
        if known is None or known is error:
            raise
        raise known from error


@cache
def _client(scheme: str, authority: str, process: int) -> Any:
    """Return the connection of this process; a forked process must not use the connection of its parent."""
    match scheme:
        case "s3":
            # Imported here because storage.arrow imports pyarrow.fs, which is slow.
            from gobblin_dagster.storage.arrow import arrow_s3  # noqa: PLC0415

            return arrow_s3()
        case "gs" | "gcs":
            return _google()
        case "sftp":
            return _sftp(authority)
        case _:
            return _known_to_fsspec(scheme)


def _google() -> Any:
    import pyarrow.fs as pafs  # noqa: PLC0415  # slow to load

    emulator = os.environ.get("STORAGE_EMULATOR_HOST", "")
    if not emulator:
        return pafs.GcsFileSystem(retry_time_limit=_GIVE_UP)
    where = urlsplit(emulator if "://" in emulator else f"http://{emulator}")
    return pafs.GcsFileSystem(
        anonymous=True, scheme=where.scheme, endpoint_override=where.netloc, retry_time_limit=_GIVE_UP
    )


def _sftp(authority: str) -> Any:
    try:
        # An optional package, needed for SFTP only.
        from sshfs import SSHFileSystem  # noqa: PLC0415
    except ImportError as error:
        raise _missing("sftp", "sshfs") from error
    where = urlsplit(f"sftp://{authority}")
    options = {"port": where.port, "username": where.username, "password": os.environ.get("SSHPASS")}
    given = {name: value for name, value in options.items() if value is not None}
    # For asyncssh, `()` means the known hosts of ssh. Without it, sshfs would trust any host.
    with _os_errors():
        return SSHFileSystem(where.hostname or "", known_hosts=(), skip_instance_cache=True, **given)


def _known_to_fsspec(scheme: str) -> Any:
    import fsspec  # noqa: PLC0415  # slow to load

    try:
        return fsspec.filesystem(scheme)
    except ImportError as error:
        raise _missing(scheme, str(error)) from error
    except ValueError as error:
        raise UsageError(
            problem=f"Files of scheme {scheme!r} cannot be read: neither this program nor fsspec knows the scheme.",
            hint="Use a path, or a URL of s3://, gs://, hdfs://, sftp:// or another scheme that fsspec knows.",
        ) from error


def _missing(scheme: str, package: str) -> EnvironmentFaultError:
    install = f"with: pip install 'gobblin-dagster[{scheme}]'" if scheme == "sftp" else "as fsspec says above"
    return EnvironmentFaultError(
        problem=f"Paths that begin with {scheme}:// need a package that is not installed: {package}.",
        hint=f"Install it {install}.",
    )


@dataclass(frozen=True)
class ArrowFiles:
    """An object store that pyarrow can read; such stores have no real folders."""

    scheme: str
    files: Any
    tick_us: ClassVar[int] = 1_000_000
    """Times of change are rounded down to this: some S3 stores list milliseconds, but give seconds for a single
    object."""

    def _inside(self, url: str) -> str:
        return url.removeprefix(self.scheme).rstrip("/")

    def scan(self, url: str) -> Iterator[RemoteEntry]:
        from pyarrow.fs import FileSelector  # noqa: PLC0415  # slow to load

        for info in self.files.get_file_info(FileSelector(self._inside(url))):
            yield RemoteEntry(info.base_name, f"{url}/{info.base_name}", self._facts(info), not info.is_file)

    def look(self, url: str) -> FileFacts:
        facts = self._facts(self.files.get_file_info(self._inside(url)))
        if facts is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url)
        return facts

    def open(self, url: str) -> pa.NativeFile:
        return self.files.open_input_file(self._inside(url))

    def _facts(self, info: Any) -> FileFacts | None:
        modified_us = (info.mtime_ns or 0) // 1000
        return FileFacts(info.size, modified_us - modified_us % self.tick_us) if info.is_file else None


@dataclass(frozen=True)
class GcsFiles(ArrowFiles):
    """Objects of Google Cloud Storage. The first `scan` lists everything below its folder, for all later ones.

    pyarrow can list a single folder of GCS only if an object marks this folder, and such objects are rare.
    """

    _folders: dict[str, dict[str, RemoteEntry]] = field(default_factory=dict)
    tick_us: ClassVar[int] = 1

    def scan(self, url: str) -> Iterator[RemoteEntry]:
        if url not in self._folders:
            self._list(url.rstrip("/"))
        yield from self._folders.get(url, {}).values()

    def _list(self, url: str) -> None:
        from pyarrow.fs import FileSelector  # noqa: PLC0415  # slow to load

        try:
            found = self.files.get_file_info(FileSelector(self._inside(url), recursive=True))
        except OSError as error:
            if "No such file" not in str(error):
                raise
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url) from error
        self._folders.setdefault(url, {})
        for info in found:
            path = self.scheme + info.path.rstrip("/")
            self._add(RemoteEntry(info.base_name, path, self._facts(info), not info.is_file), url)

    def _add(self, entry: RemoteEntry, root: str) -> None:
        """Add an entry to its folder, and the folder to its parent folder."""
        folder = entry.path.rpartition("/")[0]
        is_new = folder not in self._folders
        self._folders.setdefault(folder, {})[entry.name] = entry
        if is_new and folder != root:
            self._add(RemoteEntry(folder.rpartition("/")[2], folder, None, is_folder=True), root)


@dataclass(frozen=True)
class HdfsFiles:
    """Files of an HDFS cluster; percent signs in paths are not decoded."""

    authority: str

    def _inside(self, url: str) -> str:
        return url.removeprefix(f"hdfs://{self.authority}").rstrip("/") or "/"

    def scan(self, url: str) -> Iterator[RemoteEntry]:
        with hdfs_errors(url):
            for found in HdfsStorage(self.authority).connect().list_status(self._inside(url)):
                name = found.path.rstrip("/").rpartition("/")[2]
                facts = None if found.isdir else FileFacts(found.length, found.modification_time * 1000)
                yield RemoteEntry(name, f"{url}/{name}", facts, found.isdir)

    def look(self, url: str) -> FileFacts:
        with hdfs_errors(url):
            found = HdfsStorage(self.authority).connect().get_file_info(self._inside(url))
        return FileFacts(found.length, found.modification_time * 1000)

    def open(self, url: str) -> pa.NativeFile:
        with hdfs_errors(url):
            return pa.PythonFile(HdfsStorage(self.authority).open_whole(self._inside(url)), mode="r")


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
        with _os_errors():
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
        with _os_errors():
            facts = _fsspec_facts(self.files.info(self._inside(url)))
        if facts is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url)
        return facts

    def open(self, url: str) -> pa.NativeFile:
        with _os_errors():
            return pa.PythonFile(self.files.open(self._inside(url), "rb"), mode="r")


_TIMES = ("mtime", "LastModified", "last_modified", "modified", "updated", "created")
"""Keys under which file systems of fsspec return the time of change."""


def _fsspec_facts(info: dict[str, Any]) -> FileFacts | None:
    if info["type"] != "file":
        return None
    changed = next((info[key] for key in _TIMES if info.get(key) is not None), 0)
    seconds = changed.timestamp() if isinstance(changed, datetime) else float(changed)
    return FileFacts(int(info["size"] or 0), round(seconds * 1_000_000))


def local_facts(found: os.stat_result) -> FileFacts | None:
    """Return the facts of a local file; None if it is not a regular file."""
    return FileFacts(found.st_size, found.st_mtime_ns // 1000) if stat.S_ISREG(found.st_mode) else None


def look_at(path: str) -> FileFacts:
    """Return the facts of a file by absolute path or URL; raises OSError."""
    if "://" in path:
        return remote_files(path).look(path)
    return local_facts(Path(path).stat()) or FileFacts(0, 0)
