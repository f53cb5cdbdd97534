"""Services that tests of several folders share; each is started at most once, by the first test that asks."""

from __future__ import annotations

import atexit
import gc
import re
import signal
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from gobblin_dagster.core.secrets import forget
from gobblin_dagster.core.utils.import_target import _project_folders as project_folders
from tests.new_stores import made_as_the_first
from tests.placement import PlacedByService
from tests.services.gcs import GcsServer, running_gcs
from tests.services.hdfs import HdfsServer, hadoop_jars, running_hdfs
from tests.services.mariadb import MariadbServer, mariadb_binary, running_mariadb
from tests.services.missing import missing
from tests.services.postgres import PostgresServer, binaries, running_postgres
from tests.services.s3 import S3Server, running_s3
from tests.services.sftp import SftpServer, running_sftp, sshd_binary

# No example is too late on a slow machine. Where CI is set, Hypothesis chooses the same examples each time.
settings.register_profile("patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

SET_IN_NAME = re.compile(r"\{'[^':]*', ")
"""The text of a set of more than one text, which a dictionary never has."""


def pytest_runtest_setup() -> None:
    """Let tests interrupt their own process: a shell's job in the background ignores SIGINT, and a SparkContext that
    an earlier test made leaves a handler that fails once it has stopped."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> PlacedByService:
    return PlacedByService(config, log)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Let pytest, which looks for garbage five times at the end, not look among all modules."""
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Look for no garbage among the tests and modules, which stay until the end, and seldom while tests run."""
    gc.disable()
    _import_share(session.config)
    result = yield
    gc.freeze()
    atexit.register(gc.unfreeze)  # what is frozen until the end, DuckDB reports as leaked
    gc.set_threshold(10_000)
    gc.enable()
    return result


def _import_share(config: pytest.Config) -> None:
    """Begin with other test files than the other processes, so that the assertions of each are rewritten once.

    In a new clone, each process would rewrite them all, at the same moment as the others.
    """
    facts: dict[str, Any] = getattr(config, "workerinput", {})
    if facts and config.args == config.getini("testpaths"):
        files = sorted(Path(__file__).parent.rglob("test_*.py"))
        for file in files[int(facts["workerid"].removeprefix("gw")) :: facts["workercount"]]:
            module = ".".join(file.relative_to(config.rootpath).with_suffix("").parts)
            with suppress(Exception):  # told where the file is collected
                import_module(module)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests of whole commands: a long one that came last would keep one process busy alone.

    Names of tests must not show a set: each process would write its members in another order, and pytest-xdist refuses
    to run at all, but only sometimes.
    """
    if unstable := [item.nodeid for item in items if SET_IN_NAME.search(item.nodeid)]:
        raise pytest.UsageError(f"names of tests that show a set (make it a sorted list): {unstable}")
    items.sort(key=lambda item: "/e2e/" not in item.path.as_posix())


@pytest.fixture(autouse=True)
def no_secrets_of_other_tests() -> Iterator[None]:
    """Let what one test took from the environment not be hidden in messages of the next."""
    yield
    forget()


@pytest.fixture(autouse=True)
def no_project_folders_of_other_tests() -> Iterator[None]:
    """Let no process look for its modules in thousands of folders, one for each project that a test made."""
    before = list(sys.path)
    yield
    sys.path[:] = before
    project_folders.clear()


@pytest.fixture(scope="session", autouse=True)
def quick_new_stores() -> Iterator[None]:
    """Let this process migrate one new database of each kind, and make the others by the same statements."""
    with made_as_the_first():
        yield


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    folder = binaries()
    if folder is None:
        missing("no PostgreSQL server is installed here (looked for /usr/lib/postgresql/*/bin/initdb and on PATH)")
    with running_postgres(folder) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariadbServer]:
    binary = mariadb_binary()
    if binary is None:
        missing("no MariaDB server is installed here (looked for mariadbd on PATH and in /usr/sbin)")
    with running_mariadb(binary) as server:
        yield server


@pytest.fixture(scope="session")
def hdfs_server() -> Iterator[HdfsServer]:
    jars = hadoop_jars()
    if isinstance(jars, str):
        missing(jars)
    with running_hdfs(jars) as server:
        yield server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with running_s3() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[GcsServer]:
    with running_gcs() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", server.url)
        yield server


@pytest.fixture(scope="session")
def sftp_server() -> Iterator[SftpServer]:
    sshd = sshd_binary()
    if sshd is None:
        missing("no sshd is installed here (looked for it on PATH and in /usr/sbin)")
    with running_sftp(sshd) as server:
        yield server
