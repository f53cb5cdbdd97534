"""A real PgBouncer before the PostgreSQL of the tests, ended by its own pid."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.services.ending import wait_or_kill
from tests.services.missing import missing
from tests.services.ports import free_port
from tests.services.postgres import PostgresServer

_START_S = 60


@contextmanager
def running_pgbouncer(server: PostgresServer, pool_mode: str, pool_size: int) -> Iterator[int]:
    """Start a pool of sessions of a server, of so many for each database, and yield its port."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        missing("no PgBouncer is installed here (looked for pgbouncer on PATH and in /usr/sbin)")
    user = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
    home, port = Path(tempfile.mkdtemp(prefix="gobblin-pgbouncer-")), free_port()
    settings = home / "pgbouncer.ini"
    try:
        settings.write_text(
            "[databases]\n"
            f"* = host=127.0.0.1 port={server.port} user=postgres password={server.password}\n"
            "[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
            f"pool_mode = {pool_mode}\ndefault_pool_size = {pool_size}\n"
        )
        if user is not None:
            shutil.chown(home, user)
            shutil.chown(settings, user)
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(
                [program, str(settings)],
                cwd=home,
                user=user,
                group=user,
                extra_groups=[] if user else None,
                stdout=log,
                stderr=log,
            )
        try:
            _wait_until_it_listens(port, process, home / "log")
            yield port
        finally:
            process.terminate()
            wait_or_kill(process)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _wait_until_it_listens(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"PgBouncer did not start: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.05)
