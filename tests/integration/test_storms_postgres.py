"""Storms of everything over tables of a real PostgreSQL, struck between their statements too."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.property.everything.model import KINDS
from tests.property.everything.rules import rage
from tests.property.everything.storm import Storm
from tests.services.postgres import PostgresServer

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.is_table])
def test_tables_of_postgresql_hold_what_the_model_says(
    tmp_path: Path, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    url = postgres_server.url(postgres_server.new_database())
    monkeypatch.setenv("STORM_TABLES", url.replace("postgresql:", "postgresql+psycopg2:"))
    rage(Storm(tmp_path, "files:state", KINDS[kind], random.Random(kind), tables={"url_env": "STORM_TABLES"}))
