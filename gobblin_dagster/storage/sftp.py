"""Servers of SFTP as sources of files (extra `sftp`); nothing is published to them."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from gobblin_dagster.core.errors import UsageError
from gobblin_dagster.core.utils.optional_packages import optional_package
from gobblin_dagster.core.utils.url_text import is_address
from gobblin_dagster.storage.file_facts import RemoteFiles
from gobblin_dagster.storage.fsspec_files import FsspecFiles
from gobblin_dagster.storage.os_errors import os_errors
from gobblin_dagster.storage.scheme import Scheme

KEEPALIVE_S = 15.0
_SILENCES = 3
"""Questions without an answer, one per `KEEPALIVE_S`, after which a connection counts as lost: a server that is gone
without a word would keep a run waiting for ever."""


class SftpScheme(Scheme):
    """`sftp://user@host:port/path`; a password comes from `SSHPASS`."""

    packages = ("sshfs",)
    takes_user = True

    def connect(self, authority: str) -> Any:
        with optional_package("sshfs"):
            from sshfs import SSHFileSystem  # noqa: PLC0415  # asked for where a job uses it

        where = urlsplit(f"sftp://{authority}")
        try:
            port, known = where.port, is_address(where.hostname)
        except ValueError:  # of the port
            port, known = None, False
        if not known:
            raise UsageError(
                problem=f"sftp://{authority} names no host and port that can be.",
                hint="Write it as sftp://user@host:port/path.",
            )
        options = {"port": port, "username": where.username, "password": os.environ.get("SSHPASS")}
        given = {name: value for name, value in options.items() if value is not None}
        # For asyncssh, `()` means the known hosts of ssh. Without it, sshfs would trust any host.
        with os_errors():
            return SSHFileSystem(
                where.hostname or "",
                known_hosts=(),
                skip_instance_cache=True,
                keepalive_interval=KEEPALIVE_S,
                keepalive_count_max=_SILENCES,
                **given,
            )

    def is_lost(self, client: Any) -> bool:
        lost: bool = client.client.is_closed()
        return lost

    def files(self, authority: str) -> RemoteFiles:
        return FsspecFiles(f"sftp://{authority}", self.client(authority))
