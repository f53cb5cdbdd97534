"""Find the storage of a URL or path, and the path inside it."""

from __future__ import annotations

from functools import cache
from urllib.parse import unquote

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.storage.hdfs import HdfsStorage
from gobblin_dagster.storage.local import LocalStorage
from gobblin_dagster.storage.memory import MemoryStorage
from gobblin_dagster.storage.s3 import S3Storage

_SUPPORTED = "an absolute path, file:///path, hdfs://host:port/path, s3://bucket/path, or memory://name/path (tests)"


@cache
def _shared_memory(name: str) -> MemoryStorage:
    return MemoryStorage(name)


def _split(url_or_path: str) -> tuple[str, str, str]:
    """Return (scheme, host, path); percent signs in the path are decoded for `file` and `memory` only."""
    if url_or_path.startswith("/") or "://" not in url_or_path:
        scheme, host, path = "file", "", url_or_path
    else:
        scheme, _, rest = url_or_path.partition("://")
        host, slash, path = rest.partition("/")
        # HDFS, S3 and their tools do not decode paths: `%2F` is three characters there.
        path = slash + (path if scheme in ("hdfs", "s3") else unquote(path))
    if scheme not in ("file", "memory", "hdfs", "s3"):
        raise UsageError(problem=f"Storage of scheme {scheme!r} is not supported.", hint=f"Use {_SUPPORTED}.")
    if "@" in host:
        # The URL itself is not repeated: it may hold a password.
        raise UsageError(
            problem=f"A {scheme}:// URL holds a user or a key.",
            hint="Leave it out: credentials come from the environment and from the configuration of Hadoop or AWS.",
        )
    if scheme == "file" and (host not in ("", "localhost") or not path.startswith("/")):
        raise UsageError(problem=f"{url_or_path!r} is not an absolute path.", hint=f"Use {_SUPPORTED}.")
    if scheme == "s3" and not host:
        raise UsageError(problem=f"{url_or_path!r} names no bucket.", hint=f"Use {_SUPPORTED}.")
    return scheme, host, path


def open_storage(url_or_path: str, durable: bool = True) -> Storage:
    """Return the storage that holds a path.

    Args:
        url_or_path: an absolute local path, `file:///path`, `hdfs://host:port/path` (or the name of a service in the
            Hadoop configuration; `hdfs:///path` for the default one), `s3://bucket/key`, or `memory://name/...` (one
            storage per name and process).
        durable: True makes files survive a power loss (`commit.durability: full`), False only a killed process
            (`fast`).

    Raises:
        UsageError: the scheme is not supported, the path is relative, or the URL holds credentials.

    Note:
        No connection is made yet. If an optional package is missing, the first use raises EnvironmentFaultError.
    """
    scheme, host, _ = _split(url_or_path)
    match scheme:
        case "hdfs":
            return HdfsStorage(host, durable)
        case "s3":
            return S3Storage(host)
        case "memory":
            return _shared_memory(host)
        case _:
            return LocalStorage(durable)


def storage_path(url_or_path: str) -> str:
    """Return the absolute path inside the storage that `open_storage` returns; raises like `open_storage`.

    The methods of HdfsStorage and S3Storage accept whole URLs too.

    Example:
        >>> storage_path("file:///lake/my%20data/"), storage_path("memory://test/lake"), storage_path("/lake/50%25")
        ('/lake/my data', '/lake', '/lake/50%25')
        >>> storage_path("s3://bucket/lake/50%25"), storage_path("hdfs://node:8020/lake/")
        ('/lake/50%25', '/lake')
    """
    # `..` stays as it is: if a folder is a link, only the file system knows its parent.
    return "/" + _split(url_or_path)[2].strip("/")
