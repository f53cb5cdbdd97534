"""Services that tests of several folders share; each is started at most once, by the first test that asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.postgres import PostgresServer, binaries, running_postgres


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    folder = binaries()
    if folder is None:
        pytest.skip("no PostgreSQL server is installed here (looked for /usr/lib/postgresql/*/bin/initdb and on PATH)")
    with running_postgres(folder) as server:
        yield server
