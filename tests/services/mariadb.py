"""A real MariaDB on 127.0.0.1 for tests, started by the tests and ended by its own pid."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from tests.services.ending import wait_or_kill
from tests.services.ports import free_port

_START_S = 180


def mariadb_binary() -> Path | None:
    """Return the server's program."""
    found = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin")
    return Path(found) if found and shutil.which("mariadb-install-db") else None


@dataclass
class MariadbServer:
    """A running server; `new_database` gives each test one of its own."""

    port: int
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def url(self, database: str = "", user: str = "reader", password: str = "secret-word") -> str:
        return f"mysql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def execute(self, *statements: str, database: str = "") -> None:
        """Run statements one by one, each its own transaction, as the user who may do all."""
        url = self.url(database, "root", "").replace("mysql:", "mysql+pymysql:")
        engine = create_engine(url, isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                for statement in statements:
                    connection.execute(text(statement.replace(":", r"\:")))
        finally:
            engine.dispose()

    def new_database(self) -> str:
        """Make a database that `reader` may read, and return its name."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4", f"GRANT SELECT ON {name}.* TO reader@'127.0.0.1'")
        return name


@contextmanager
def running_mariadb(binary: Path, *options: str) -> Iterator[MariadbServer]:
    """Start a server in a folder of its own, far from UTC, and end it afterwards; `options` are the server's."""
    user = "mysql" if os.geteuid() == 0 else None
    home = Path(tempfile.mkdtemp(prefix="gobblin-my-"))
    try:
        if user is not None:
            shutil.chown(home, user)
        as_user = [f"--user={user}"] if user else []
        # The user's own temporary folder: the usual one may be closed to the user that the server runs as.
        common = ["--no-defaults", f"--datadir={home / 'data'}", f"--tmpdir={home}", *as_user, *options]
        make = ["mariadb-install-db", *common, "--auth-root-authentication-method=normal", "--skip-test-db"]
        made = subprocess.run(make, cwd=home, capture_output=True, check=False)
        if made.returncode != 0:
            raise RuntimeError(f"mariadb-install-db failed: {made.stderr.decode(errors='replace')[-2000:]}")
        server = MariadbServer(free_port())
        command = [str(binary), *common, "--bind-address=127.0.0.1", f"--port={server.port}", "--skip-name-resolve"]
        command += [f"--socket={home / 'socket'}", f"--pid-file={home / 'pid'}", "--default-time-zone=-05:00"]
        with (home / "log").open("ab") as log:
            process = subprocess.Popen([*command, "--skip-log-bin"], cwd=home, stdout=log, stderr=log)
        try:
            _wait_until_ready(server, process, home / "log")
            server.execute("CREATE USER reader@'127.0.0.1' IDENTIFIED BY 'secret-word'")
            yield server
        finally:
            process.terminate()
            wait_or_kill(process)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _wait_until_ready(server: MariadbServer, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            server.execute("SELECT 1")
        except OperationalError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"MariaDB did not start: {error.orig}; {log.read_text(errors='replace')[-2000:]}"
                ) from None
            time.sleep(0.05)
        else:
            return
