"""Which storage a URL or path means, and which path inside it."""

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
    """Return (scheme, host, path); of `file` and `memory` the path is decoded, of the others it is taken as written."""
    if url_or_path.startswith("/") or "://" not in url_or_path:
        scheme, host, path = "file", "", url_or_path
    else:
        scheme, _, rest = url_or_path.partition("://")
        host, slash, path = rest.partition("/")
        # As HDFS, S3 and their tools do: there `%2F` is three characters.
        path = slash + (path if scheme in ("hdfs", "s3") else unquote(path))
    if scheme not in ("file", "memory", "hdfs", "s3"):
        raise UsageError(problem=f"Storage of scheme {scheme!r} is not supported.", hint=f"Use {_SUPPORTED}.")
    if "@" in host:
        # The URL itself is not repeated: it may hold a password.
        raise UsageError(
            problem=f"A {scheme}:// URL names a user or a key.",
            hint="Leave it out: credentials are taken from the environment and from the files of Hadoop and AWS.",
        )
    if scheme == "file" and (host not in ("", "localhost") or not path.startswith("/")):
        raise UsageError(problem=f"{url_or_path!r} is no absolute path.", hint=f"Use {_SUPPORTED}.")
    if scheme == "s3" and not host:
        raise UsageError(problem=f"{url_or_path!r} names no bucket.", hint=f"Use {_SUPPORTED}.")
    return scheme, host, path


def open_storage(url_or_path: str, durable: bool = True) -> Storage:
    """Return the storage that holds a path.

    Args:
        url_or_path: an absolute local path, `file:///path`, `hdfs://host:port/path` (or the name of a service of the
            Hadoop configuration; `hdfs:///path` for its default), `s3://bucket/key`, or `memory://name/...`, which is one
            storage per name and process.
        durable: whether files survive a power loss (`commit.durability: full`) or only a killed process (`fast`).

    Raises:
        UsageError: the scheme is not supported, the path is relative, or the URL holds credentials.

    Note:
        Nothing is connected to yet: a package that is not installed is missed on first use (EnvironmentFaultError).
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
    """Return the absolute path inside the storage that `open_storage` returns; raises as it does.

    Storages of HDFS and S3 take whole URLs as well.

    Example:
        >>> storage_path("file:///lake/my%20data/"), storage_path("memory://test/lake"), storage_path("/lake/50%25")
        ('/lake/my data', '/lake', '/lake/50%25')
        >>> storage_path("s3://bucket/lake/50%25"), storage_path("hdfs://node:8020/lake/")
        ('/lake/50%25', '/lake')
    """
    # `..` stays as it is: where a folder is a link, only the file system knows what lies above it.
    return "/" + _split(url_or_path)[2].strip("/")
