"""Reading files that others put on far file systems: list a folder, look at a file, open it. For input alone.

Credentials and endpoints never stand in a URL. They come from where each system's own tools take them: boto3's chain for
`s3://`, Hadoop's configuration for `hdfs://`, `GOOGLE_APPLICATION_CREDENTIALS` for `gs://`, ssh's own files (config, keys,
agent, known hosts) and `SSHPASS` for `sftp://`. Any other URL is left to fsspec.
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
"""What Arrow's clients say of faults that a second try may not meet."""


class FileFacts(NamedTuple):
    """What tells one version of a file from another."""

    size_bytes: int
    modified_us: int
    """Microseconds since the epoch; 0 where the file system does not say."""
    checksum: str = ""
    """As `storage.checksums` has them; empty where nobody asked, or the file system's lists hold none."""


@dataclass(frozen=True, slots=True)
class RemoteEntry:
    """One name in a folder."""

    name: str
    path: str
    """Its URL."""
    facts: FileFacts | None
    """None for what is no file."""
    is_folder: bool

    def is_dir(self) -> bool:
        """Tell whether it is a folder, or a link to one."""
        return self.is_folder

    def is_symlink(self) -> bool:
        """Tell whether it is a link; far file systems resolve them themselves."""
        return False


class RemoteFiles(Protocol):
    """One far file system, by URL."""

    def scan(self, url: str) -> Iterable[RemoteEntry]:
        """Return the names in a folder; raises OSError."""

    def look(self, url: str) -> FileFacts:
        """Return the facts of a file; raises OSError."""

    def open(self, url: str) -> pa.NativeFile:
        """Open a file, to be read here and there; raises OSError. Each read may be a request: read much at a time."""


def remote_files(url: str) -> RemoteFiles:
    """Return the file system that a URL means.

    Raises:
        UsageError: the URL holds a password or a key, or nobody knows its scheme.
        EnvironmentFaultError: the package for it is not installed.
    """
    if problem := credentials_problem(url):
        raise UsageError(problem=problem, hint="See docs/reference/sources.md for where they are taken from.")
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
    """Say what is wrong where a URL holds what must not stand in a job file; else nothing. The URL is not repeated."""
    scheme, _, rest = url.partition("://")
    user, at, _ = rest.partition("/")[0].rpartition("@")
    if at and (scheme != "sftp" or ":" in user):
        return f"a {scheme}:// URL holds a password or a key; it is to come from the environment, not from the job file"
    return ""


def is_passing(error: OSError) -> bool:
    """Tell whether a fault of a file system may be over at the next try."""
    return isinstance(error, ConnectionError | TimeoutError) or any(mark in str(error) for mark in _PASSING)


def as_os_error(error: Exception) -> OSError | None:
    """Return a fault of a file system as the operating system would raise it; None for any other error."""
    if isinstance(error, OSError):
        return error
    kinds = {f"{kind.__module__}.{kind.__name__}" for kind in type(error).__mro__}
    # By name: asyncssh may not be installed, and must not be loaded to look at an error that is none of its own.
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
        # Each library has errors of its own; what is none of a file system goes on as it is.
        known = as_os_error(error)
        if known is None or known is error:
            raise
        raise known from error


@cache
def _client(scheme: str, authority: str, process: int) -> Any:
    """Return the connection of this process; one that was forked must not use its parent's."""
    match scheme:
        case "s3":
            # Here and not above: storage.arrow loads pyarrow.fs.
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
        # An optional package: only who reads by SFTP needs it.
        from sshfs import SSHFileSystem  # noqa: PLC0415
    except ImportError as error:
        raise _missing("sftp", "sshfs") from error
    where = urlsplit(f"sftp://{authority}")
    options = {"port": where.port, "username": where.username, "password": os.environ.get("SSHPASS")}
    given = {name: value for name, value in options.items() if value is not None}
    # `()` is asyncssh's word for ssh's own known hosts; sshfs itself would trust any host.
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
            problem=f"Nobody knows files of scheme {scheme!r}.",
            hint="Use a path, or a URL of s3://, gs://, hdfs://, sftp:// or another file system that fsspec has.",
        ) from error


def _missing(scheme: str, package: str) -> EnvironmentFaultError:
    hint = f"pip install 'gobblin-dagster[{scheme}]'" if scheme == "sftp" else "what fsspec names above"
    return EnvironmentFaultError(
        problem=f"Paths that begin with {scheme}:// need a package that is not installed: {package}.",
        hint=f"Install it with: {hint}.",
    )


@dataclass(frozen=True)
class ArrowFiles:
    """A file system of pyarrow's own: object stores, which have no folders."""

    scheme: str
    files: Any
    tick_us: ClassVar[int] = 1_000_000
    """Finest time of change: some stores that speak S3 list milliseconds, and say seconds of a single object."""

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
    """Objects of Google Cloud Storage: one listing of all that lies below the first folder that is asked for.

    pyarrow lists a single folder of GCS only where an object marks it, and hardly anybody writes such objects.
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
        """Add an entry to its folder, and the folder to the one around it."""
        folder = entry.path.rpartition("/")[0]
        is_new = folder not in self._folders
        self._folders.setdefault(folder, {})[entry.name] = entry
        if is_new and folder != root:
            self._add(RemoteEntry(folder.rpartition("/")[2], folder, None, is_folder=True), root)


@dataclass(frozen=True)
class HdfsFiles:
    """Files of an HDFS cluster; paths are taken as they are written."""

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
    """A file system that fsspec knows."""

    prefix: str
    """What stands before paths of the file system; empty where it takes whole URLs."""
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
            # A link, or what it cannot tell: looked at on its own, which follows links.
            real = self._followed(info) if info["type"] not in ("file", "directory") else info
            yield RemoteEntry(name, f"{url}/{name}", _fsspec_facts(real), real["type"] == "directory")

    def _followed(self, info: dict[str, Any]) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self.files.info(info["name"])
        except OSError:
            return info  # a link that leads nowhere
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
"""Where file systems of fsspec keep the time of change."""


def _fsspec_facts(info: dict[str, Any]) -> FileFacts | None:
    if info["type"] != "file":
        return None
    changed = next((info[key] for key in _TIMES if info.get(key) is not None), 0)
    seconds = changed.timestamp() if isinstance(changed, datetime) else float(changed)
    return FileFacts(int(info["size"] or 0), round(seconds * 1_000_000))


def local_facts(found: os.stat_result) -> FileFacts | None:
    """Return the facts of a file of this machine; None for what is no regular file."""
    return FileFacts(found.st_size, found.st_mtime_ns // 1000) if stat.S_ISREG(found.st_mode) else None


def look_at(path: str) -> FileFacts:
    """Return the facts of a file by absolute path or URL; raises OSError."""
    if "://" in path:
        return remote_files(path).look(path)
    return local_facts(Path(path).stat()) or FileFacts(0, 0)
