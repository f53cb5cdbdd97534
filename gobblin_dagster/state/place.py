"""Name the place of a state store, so that programs can tell whether they keep watermarks in the same one."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlsplit

_HERE = ("", "localhost", "127.0.0.1", "::1")


def state_place(url: str, base_dir: Path) -> str:
    """Return where a state store is: machine and file, or server and database; holds no user and no password.

    Two programs that get the same text use the same store. One server that is called by two names has two texts.

    Args:
        url: as in `state:` of gobblin.yaml.
        base_dir: the project's folder, which relative paths start from.
    """
    scheme, _, rest = url.partition(":")
    if scheme == "files" and "://" not in rest:
        return f"files:{_host('')}:{(base_dir / rest).resolve()}"
    if scheme == "sqlite":
        return f"sqlite:{_host('')}:{(base_dir / rest.removeprefix('///')).resolve()}"
    parts = urlsplit(rest if scheme == "files" else url)
    kind = "postgresql" if parts.scheme.startswith("postgres") else parts.scheme
    port = parts.port or (5432 if kind == "postgresql" else "")
    return f"{kind}:{_host(parts.hostname or '')}:{port}{parts.path}"


def _host(name: str) -> str:
    return socket.gethostname() if name in _HERE else name
