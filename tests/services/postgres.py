"""A real PostgreSQL on 127.0.0.1 for tests, started by the tests and ended by its own pid."""

from __future__ import annotations

import itertools
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, make_url, text

from tests.services.ending import wait_or_kill
from tests.services.ports import free_port

_START_S = 180


def named_url(url: str) -> str:
    """Return a text for `gobblin.yaml`, which takes no passwords: a variable of this process that holds the URL."""
    name = f"TEST_URL_{zlib.crc32(url.encode()):08x}"
    os.environ[name] = url
    return f"${{{name}}}"


def binaries() -> Path | None:
    """Return the folder of the newest PostgreSQL server on this machine."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    on_path = shutil.which("initdb")
    if on_path is not None:
        found.append(Path(on_path).parent)
    return max(found, key=lambda path: int("".join(re.findall(r"/(\d+)/bin$", str(path))) or 0), default=None)


def server_user() -> str | None:
    """Return the user to run as where we are root, which PostgreSQL and PgBouncer refuse; None: this one."""
    return "postgres" if os.geteuid() == 0 else None


def run_as(user: str | None) -> dict[str, Any]:
    """Return the arguments with which `subprocess` runs a program as a user; None: this one."""
    return {"user": user, "group": user, "extra_groups": [] if user else None}


@dataclass
class PostgresServer:
    """A running server; `new_database` gives each test one of its own."""

    port: int
    password: str
    _home: Path
    _bin_dir: Path
    _user: str | None
    _process: subprocess.Popen[bytes] | None = None
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def url(self, database: str) -> str:
        return f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str, database: str = "postgres") -> None:
        """Run a statement outside any transaction."""
        url = make_url(self.url(database)).set(drivername="postgresql+psycopg2")
        engine = create_engine(url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(statement))
        engine.dispose()

    def new_database(self, template: str = "template0") -> str:
        """Make a database and return its name."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template} {self._strategy}")
        return name

    @cached_property
    def _strategy(self) -> str:
        """How a template is copied: 15 and later write each page into the log otherwise, which takes them longer."""
        version = subprocess.run([self._bin_dir / "postgres", "--version"], capture_output=True, text=True, check=True)
        found = re.search(r" (\d+)", version.stdout)
        return "STRATEGY file_copy" if found and int(found[1]) >= 15 else ""

    def start(self) -> None:
        """Start the server and wait until it answers."""
        server = [str(self._bin_dir / "postgres"), "-D", str(self._home / "data"), "-p", str(self.port)]
        # Tests kill processes, never the machine: nothing needs to reach the disk.
        settings = ["listen_addresses=127.0.0.1", f"unix_socket_directories={self._home}", "fsync=off"]
        settings += ["min_wal_size=32MB", "max_wal_size=64MB"]  # the folder is in memory: the log would take a GB of it
        for setting in settings:
            server += ["-c", setting]
        user = self._user
        deadline = time.monotonic() + _START_S
        with (self._home / "log").open("ab") as log:
            while True:
                self._process = subprocess.Popen(
                    server,
                    cwd=self._home,
                    **run_as(user),
                    stdout=log,
                    stderr=log,
                )
                try:
                    _wait_until_ready(self._bin_dir, self.port, self._process, self._home / "log")
                except RuntimeError:
                    # After a kill the last of the old server's processes may still hold its shared memory.
                    if self._process.poll() is None or time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)
                else:
                    return

    def kill(self) -> None:
        """Let the server die as in a crash; its sessions are cut off, what was committed is in its log."""
        self._end(signal.SIGKILL)

    def kill_and_start(self) -> None:
        """Let it die and come back."""
        self.kill()
        self.start()

    def become_standby(self) -> None:
        """Come back as a standby: with nobody to follow it stays one, and can be read."""
        self.stop()
        (self._home / "data" / "standby.signal").touch()
        self.start()

    def stop(self) -> None:
        """End the server in order: sessions are ended, nothing is left."""
        self._end(signal.SIGINT)

    def end_at_once(self) -> None:
        """End the server without putting its hundreds of databases in order: its data is thrown away."""
        self._end(signal.SIGQUIT)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            wait_or_kill(self._process)
            self._process = None


@contextmanager
def running_postgres(bin_dir: Path) -> Iterator[PostgresServer]:
    """Start a server in a folder of its own and end it afterwards."""
    user = server_user()  # the folder must be reachable for it
    password = secrets.token_hex(8)
    home = Path(tempfile.mkdtemp(prefix="gobblin-pg-"))
    try:
        (home / "password").write_text(password)
        if user is not None:
            shutil.chown(home, user)
            shutil.chown(home / "password", user)
        # A login by SCRAM takes each client 4 ms of hashing, and tests log in thousands of times.
        initdb = [bin_dir / "initdb", "-D", home / "data", "-A", "md5", "-U", "postgres", "-E", "UTF8"]
        _run_quietly([*map(str, initdb), "--no-sync", f"--pwfile={home / 'password'}"], user, home)
        server = PostgresServer(free_port(), password, home, bin_dir, user)
        server.start()
        try:
            yield server
        finally:
            server.end_at_once()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _run_quietly(command: list[str], user: str | None, folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, **run_as(user), capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.decode(errors='replace')[-2000:]}")


def _wait_until_ready(bin_dir: Path, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    ask = [str(bin_dir / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    while subprocess.run(ask, check=False).returncode != 0:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"PostgreSQL did not start: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.05)
