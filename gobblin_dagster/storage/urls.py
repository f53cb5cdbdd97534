"""Find the storage of a URL or path, and the path inside it."""

from __future__ import annotations

from urllib.parse import unquote

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.storage import LinkStorage, Storage
from gobblin_dagster.core.utils.arguments import checked
from gobblin_dagster.storage.scheme import Scheme
from gobblin_dagster.storage.schemes import examples, scheme_named


def split(url_or_path: str) -> tuple[Scheme, str, str]:
    """Return (scheme, host, path) of a place to publish to; raises as `open_storage`."""
    if url_or_path.startswith("/") or "://" not in url_or_path:
        name, host, path = "file", "", url_or_path
        scheme = scheme_named(name)
    else:
        name, _, rest = url_or_path.partition("://")
        scheme = scheme_named(name)
        host, slash, path = rest.partition("/")
        path = slash + (unquote(path) if scheme.decodes_paths else path)
    if not scheme.example:
        raise UsageError(problem=f"Storage of scheme {name!r} is not supported.", hint=f"Use {examples()}.")
    if "@" in host:
        # The URL itself is not repeated: it may hold a password.
        raise UsageError(
            problem=f"A {name}:// URL holds a user or a key.",
            hint="Leave it out: credentials come from the environment and from the configuration of Hadoop or AWS.",
        )
    if problem := scheme.url_problem(host, path):
        raise UsageError(problem=f"{url_or_path!r} {problem}.", hint=f"Use {examples()}.")
    inside = path[1:].rstrip("/")
    if name != "file" and inside and any(part in ("", ".", "..") for part in inside.split("/")):
        # Commits compare paths as texts, and what such names mean differs between stores.
        problem = f"{url_or_path!r} has an empty folder name, `.` or `..` in it."
        raise UsageError(problem=problem, hint="Write the path without them.")
    return scheme, host, path


@checked
def open_storage(url_or_path: str, durable: bool = True) -> Storage:
    """Return the storage that holds a path.

    Args:
        url_or_path: an absolute local path, `file:///path`, `hdfs://host:port/path` (or the name of a service in the
            Hadoop configuration; `hdfs:///path` for the default one), `s3://bucket/key`, `memory://name/...` (one
            storage per name and process), or a URL of a scheme that a package registered.
        durable: True makes files survive a power loss (`commit.durability: full`), False only a killed process
            (`fast`).

    Raises:
        UsageError: the scheme is not supported, the path is relative, or the URL holds credentials.

    Changes of local files below the path (with Linux) raise OSError if a folder on their way is a link that leads
    outside of it, also if the link is put there while the change is made.

    Note:
        No connection is made yet. If an optional package is missing, the first use raises EnvironmentFaultError.
    """
    scheme, host, path = split(url_or_path)
    storage = scheme.storage(host, durable=durable)
    return storage.confined(_inside(path)) if isinstance(storage, LinkStorage) else storage


@checked
def storage_path(url_or_path: str) -> str:
    """Return the absolute path inside the storage that `open_storage` returns; raises like `open_storage`.

    The methods of HdfsStorage and S3Storage accept whole URLs too.

    Example:
        >>> storage_path("file:///lake/my%20data/"), storage_path("memory://test/lake"), storage_path("/lake/50%25")
        ('/lake/my data', '/lake', '/lake/50%25')
        >>> storage_path("s3://bucket/lake/50%25"), storage_path("hdfs://node:8020/lake/")
        ('/lake/50%25', '/lake')
    """
    return _inside(split(url_or_path)[2])


def _inside(path: str) -> str:
    # `..` stays as it is: if a folder is a link, only the file system knows its parent.
    return "/" + path.strip("/")
