"""Stores under contract: `NEARBY` and `FAR` open empty stores, and open the same one again.

What a store far away promises by itself stands in `test_state_store.py`. What else uses a store meets those far away in
`make crash-storm`: it asks for nothing but these promises, and the same class keeps its files nearby too.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gobblin_dagster.core.clock import Clock
from gobblin_dagster.state import StateStore, open_store
from gobblin_dagster.state.files.store import FileStateStore
from gobblin_dagster.storage import MemoryStorage
from gobblin_dagster.testing.conformance.state_store import StoreMaker
from tests.services.postgres import PostgresServer


@pytest.fixture(scope="session")
def empty_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated file to copy, because migrating takes longer than most tests."""
    folder = tmp_path_factory.mktemp("empty-store")
    open_store("sqlite:///state.db", folder).close()
    return folder / "state.db"


@pytest.fixture(scope="session")
def empty_postgres(postgres_server: PostgresServer) -> str:
    """A migrated database to copy."""
    name = postgres_server.new_database()
    open_store(postgres_server.url(name), Path()).close()
    return name


def _sqlite(request: pytest.FixtureRequest, folder: Path) -> Callable[[Clock], StateStore]:
    shutil.copy(request.getfixturevalue("empty_sqlite"), folder / "state.db")
    return lambda clock: open_store("sqlite:///state.db", folder, clock)


def _postgres(request: pytest.FixtureRequest, folder: Path) -> Callable[[Clock], StateStore]:
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.url(server.new_database(request.getfixturevalue("empty_postgres")))
    return lambda clock: open_store(url, folder, clock)


def _files(request: pytest.FixtureRequest, folder: Path) -> Callable[[Clock], StateStore]:
    return lambda clock: open_store("files:state", folder, clock)


def _memory(request: pytest.FixtureRequest, folder: Path) -> Callable[[Clock], StateStore]:
    storage = MemoryStorage()
    return lambda clock: FileStateStore("/state", storage, clock)


def _s3(request: pytest.FixtureRequest, folder: Path) -> Callable[[Clock], StateStore]:
    url = f"files:s3://{request.getfixturevalue('s3_server').new_bucket()}/state"
    return lambda clock: open_store(url, folder, clock)


def _hdfs(request: pytest.FixtureRequest, folder: Path) -> Callable[[Clock], StateStore]:
    url = f"files:{request.getfixturevalue('hdfs_server').url}{folder}/state"
    return lambda clock: open_store(url, folder, clock)


NEARBY = [
    pytest.param(_sqlite, id="sqlite"),
    pytest.param(_postgres, id="postgres", marks=pytest.mark.postgres),
    pytest.param(_files, id="files"),
    pytest.param(_memory, id="files-in-memory"),
]
FAR = [
    pytest.param(_s3, id="files-on-s3", marks=pytest.mark.s3),
    pytest.param(_hdfs, id="files-on-hdfs", marks=pytest.mark.hdfs),
]
STORES = [*NEARBY, *(pytest.param(*one.values, id=one.id, marks=[*one.marks, pytest.mark.storm]) for one in FAR)]


@pytest.fixture(params=STORES)
def open_one(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Clock], StateStore]:
    opens: Callable[[Clock], StateStore] = request.param(request, tmp_path)
    return opens


@pytest.fixture
def maker(open_one: Callable[[Clock], StateStore]) -> Iterator[StoreMaker]:
    stores = StoreMaker(open_one)
    yield stores
    stores.close_all()


@pytest.fixture
def store(maker: StoreMaker) -> StateStore:
    return maker.open()
