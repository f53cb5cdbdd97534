"""Name the place of a state store, so that programs can tell whether they keep watermarks in the same one."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlsplit

from gobblin_dagster.database.engine import parse_url

_HERE = ("", "localhost", "127.0.0.1", "::1")


def state_place(url: str, base_dir: Path) -> str:
    """Return where a state store is: machine and file, or server and database; holds no user and no password.

    Two programs that get the same text use the same store. One server that is called by two names has two texts.

    Args:
        url: as in `state:` of gobblin.yaml.
        base_dir: the project's folder, which relative paths start from.

    Raises:
        UsageError: the text is no URL of a store.
    """
    scheme, _, rest = url.partition(":")
    if scheme == "files":
        if "://" not in rest:
            return f"files:{_host('')}:{(base_dir / rest).resolve()}"
        parts = urlsplit(rest)
        return f"{parts.scheme}:{_host(parts.hostname or '')}:{parts.port or ''}{parts.path}"
    # As the store itself reads it: a password may have characters that end it for other readers of URLs.
    found = parse_url(url, base_dir)
    if scheme == "sqlite":
        return f"sqlite:{_host('')}:{Path(str(found.database)).resolve()}"
    return f"{found.get_backend_name()}:{_host((found.host or '').lower())}:{found.port or 5432}/{found.database or ''}"


def _host(name: str) -> str:
    return socket.gethostname() if name in _HERE else name
