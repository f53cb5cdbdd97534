"""Publishing to tables of a real PostgreSQL: types, keys, and once only whatever fails."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from gobblin_dagster.constructs.publishers.sql_table import LoadSqlTableStep
from gobblin_dagster.core.run_record import RunStatus
from gobblin_dagster.core.storage import Storage
from gobblin_dagster.storage import LocalStorage
from tests.services.postgres import PostgresServer
from tests.unit.constructs.publishers.table_jobs import check_exactly_once, table_job
from tests.unit.engine.jobs import run

APPEND = {"type": "sql_table", "url_env": "WAREHOUSE_URL", "table": "public.numbers"}


@pytest.fixture
def url(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    url = postgres_server.url(postgres_server.new_database())
    monkeypatch.setenv("WAREHOUSE_URL", url)
    return url


def query(url: str, statement: str) -> list[Any]:
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg2"))
    with engine.connect() as connection:
        rows = list(connection.execute(sa.text(statement)).all())
    engine.dispose()
    return rows


def test_rows_are_in_the_table_once_whatever_fails(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def ids() -> list[int]:
        return [row[0] for row in query(url, "SELECT id FROM numbers ORDER BY id")]

    check_exactly_once(tmp_path, APPEND, ids, LoadSqlTableStep, monkeypatch)


def test_values_of_all_types_arrive(tmp_path: Path, url: str) -> None:
    select = (
        "id::INTEGER AS id, CASE WHEN id > 0 THEN '' END AS blank, 'a,\"b\"\n\\N' AS awkward, encode('ü') AS raw, "
        "1.50::DECIMAL(9, 2) AS price, DATE '2026-02-28' AS day, TIMESTAMPTZ '2026-02-28 12:00:00+02' AS at, "
        "TRUE AS flag, 'nan'::DOUBLE AS ratio, 18446744073709551615::UBIGINT AS large, NULL AS nothing"
    )
    result = run(tmp_path, table_job(APPEND, {"c": {"rows": 2}}, converters=[{"type": "sql", "select": select}]))
    assert result.status is RunStatus.SUCCEEDED, result.datasets[0].failures

    first, second = query(url, "SELECT * FROM numbers ORDER BY id")
    assert first.blank is None
    assert second.blank == ""
    assert first.awkward == 'a,"b"\n\\N'
    assert bytes(first.raw) == "ü".encode()
    assert (first.price, first.day, first.flag) == (Decimal("1.50"), date(2026, 2, 28), True)
    assert first.at == datetime(2026, 2, 28, 10, tzinfo=UTC)
    assert first.ratio != first.ratio
    assert (first.large, first.nothing) == (Decimal("18446744073709551615"), None)


def test_newest_row_of_a_key_counts(tmp_path: Path, url: str) -> None:
    upsert = APPEND | {"mode": "upsert", "key": ["slot"]}
    slots = {"converters": [{"type": "sql", "select": "id % 4 AS slot, id, value"}]}
    for rows, newest in ((10, [8, 9, 6, 7]), (12, [8, 9, 10, 11])):
        run(tmp_path, table_job(upsert, {"c": {"rows": rows}}, **slots))
        assert query(url, "SELECT id FROM numbers ORDER BY slot") == [(one,) for one in newest]


def test_newer_row_of_a_key_stays_whatever_comes_late(tmp_path: Path, url: str) -> None:
    upsert = APPEND | {"mode": "upsert", "table": "public.numbers"}
    extract = {"namespace": "test", "table": "numbers", "primary_keys": ["slot"], "delta_fields": ["version", "id"]}
    for rows, version, newest in ((6, "100 - id", [0, 1, 2]), (9, "50 - id", [0, 1, 2]), (10, "100", [9, 1, 2])):
        slots = {"converters": [{"type": "sql", "select": f"id % 3 AS slot, id, {version} AS version"}]}
        run(tmp_path, table_job(upsert, {"c": {"rows": rows}}, extract=extract, **slots))
        assert query(url, "SELECT id FROM public.numbers ORDER BY slot") == [(one,) for one in newest]


def test_two_runs_at_once_load_a_commit_once(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[LoadSqlTableStep] = []
    execute = LoadSqlTableStep.execute

    def twice(self: LoadSqlTableStep, storage: Storage) -> None:
        steps.append(self)
        both = [threading.Thread(target=execute, args=(self, storage)) for _ in range(2)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()

    monkeypatch.setattr(LoadSqlTableStep, "execute", twice)
    assert run(tmp_path, table_job(APPEND, {"c": {"rows": 1000}})).status is RunStatus.SUCCEEDED

    assert query(url, "SELECT count(*), count(DISTINCT id) FROM numbers") == [(1000, 1000)]
    assert steps[0].verify(LocalStorage())


def test_row_that_the_table_refuses_waits_for_a_person_and_leaves_nothing(tmp_path: Path, url: str) -> None:
    run(tmp_path, table_job(APPEND, {"c": {"rows": 2}}))
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg2"))
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE numbers ADD CHECK (id < 5)"))
    engine.dispose()
    result = run(tmp_path, table_job(APPEND, {"c": {"rows": 9}}))

    assert result.status is RunStatus.FAILED
    assert "violates check constraint" in result.datasets[0].failures[0].message
    assert query(url, "SELECT count(*) FROM numbers") == [(2,)]
    assert query(url, "SELECT count(*) FROM gobblin_commits") == [(1,)]
