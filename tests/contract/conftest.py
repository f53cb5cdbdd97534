"""Stores under contract: each `StoreKind` opens empty stores, and opens the same one again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gobblin_dagster.core.clock import Clock
from gobblin_dagster.state import StateStore, open_store
from gobblin_dagster.state.files.store import FileStateStore
from gobblin_dagster.storage import MemoryStorage
from tests.services.postgres import PostgresServer

START = datetime(2026, 11, 21, 8, tzinfo=UTC)


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.instant = START

    def now(self) -> datetime:
        return self.instant

    def advance(self, by: timedelta) -> None:
        self.instant += by


class StoreMaker:
    """Opens one store as often as a test likes, and closes what is left open."""

    def __init__(self, open_one: Callable[[Clock], StateStore]) -> None:
        self.clock = ManualClock()
        self._open_one = open_one
        self._opened: list[StateStore] = []

    def open(self) -> StateStore:
        self._opened.append(self._open_one(self.clock))
        return self._opened[-1]

    def close_all(self) -> None:
        for store in self._opened:
            store.close()


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
STORES = [
    *NEARBY,
    pytest.param(_s3, id="files-on-s3", marks=pytest.mark.s3),
    pytest.param(_hdfs, id="files-on-hdfs", marks=pytest.mark.hdfs),
]


@pytest.fixture(params=STORES)
def maker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreMaker]:
    stores = StoreMaker(request.param(request, tmp_path))
    yield stores
    stores.close_all()


@pytest.fixture
def store(maker: StoreMaker) -> StateStore:
    return maker.open()
