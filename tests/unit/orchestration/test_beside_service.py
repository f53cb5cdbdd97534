"""Dagster's programs beside the service, which start at the same moment."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import pytest

from gobblin_dagster.orchestration.beside_service import make_instance


def test_programs_that_start_together_make_one_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    together = Barrier(2)

    def start(_: int) -> None:
        together.wait()
        make_instance(tmp_path)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(start, range(2)))
    databases = [*tmp_path.rglob("*.db")]
    assert len(databases) >= 3
    for path in databases:
        with closing(sqlite3.connect(path)) as database:
            heads = database.execute("SELECT version_num FROM alembic_version").fetchall()
        assert len(heads) == 1, path
