"""A real PgBouncer before the PostgreSQL of the tests, ended by its own pid."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.services.ending import wait_or_kill
from tests.services.missing import missing
from tests.services.ports import free_port, wait_until_listening
from tests.services.postgres import PostgresServer, run_as, server_user


@contextmanager
def running_pgbouncer(server: PostgresServer, pool_mode: str, pool_size: int) -> Iterator[int]:
    """Start a pool of sessions of a server, of so many for each database, and yield its port."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        missing("no PgBouncer is installed here (looked for pgbouncer on PATH and in /usr/sbin)")
    user = server_user()
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
                **run_as(user),
                stdout=log,
                stderr=log,
            )
        try:
            wait_until_listening(port, process, home / "log", "PgBouncer")
            yield port
        finally:
            process.terminate()
            wait_or_kill(process)
    finally:
        shutil.rmtree(home, ignore_errors=True)
