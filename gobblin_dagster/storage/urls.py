"""Which storage a URL or path means, and which path inside it."""

from __future__ import annotations

from functools import cache
from urllib.parse import unquote, urlsplit

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.storage.local import LocalStorage
from gobblin_dagster.storage.memory import MemoryStorage

_SUPPORTED = "an absolute path, file:///path, or memory://name/path (tests)"


@cache
def _shared_memory(name: str) -> MemoryStorage:
    return MemoryStorage(name)


def _split(url_or_path: str) -> tuple[str, str, str]:
    """Return (scheme, host, path); a plain path has the scheme `file` and is never decoded."""
    if url_or_path.startswith("/") or "://" not in url_or_path:
        scheme, host, path = "file", "", url_or_path
    else:
        parts = urlsplit(url_or_path)
        scheme, host, path = parts.scheme, parts.netloc, unquote(parts.path)
    if scheme not in ("file", "memory"):
        raise UsageError(problem=f"Storage of scheme {scheme!r} is not supported.", hint=f"Use {_SUPPORTED}.")
    if scheme == "file" and (host not in ("", "localhost") or not path.startswith("/")):
        raise UsageError(problem=f"{url_or_path!r} is no absolute path.", hint=f"Use {_SUPPORTED}.")
    return scheme, host, path


def open_storage(url_or_path: str, durable: bool = True) -> Storage:
    """Return the storage that holds a path.

    Args:
        url_or_path: an absolute local path, `file:///path`, or `memory://name/...`, which is one storage per name and
            process.
        durable: whether files survive a power loss (`commit.durability: full`) or only a killed process (`fast`).

    Raises:
        UsageError: the scheme is not supported or the path is relative.
    """
    scheme, host, _ = _split(url_or_path)
    return LocalStorage(durable) if scheme == "file" else _shared_memory(host)


def storage_path(url_or_path: str) -> str:
    """Return the absolute path inside the storage that `open_storage` returns; raises as it does.

    Example:
        >>> storage_path("file:///lake/my%20data/"), storage_path("memory://test/lake"), storage_path("/lake/50%25")
        ('/lake/my data', '/lake', '/lake/50%25')
    """
    # `..` stays as it is: where a folder is a link, only the file system knows what lies above it.
    return "/" + _split(url_or_path)[2].strip("/")
