"""Source, table and state store in a PostgreSQL behind a real PgBouncer, which hands sessions on to other programs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.results import RunResult
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.services.pgbouncer import running_pgbouncer
from tests.services.postgres import PostgresServer

EVENTS = "CREATE TABLE events (id bigserial PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())"
INSERT = "INSERT INTO events DEFAULT VALUES"


@pytest.fixture(params=["transaction", "session"])
def pooled(request: pytest.FixtureRequest, postgres_server: PostgresServer) -> Iterator[str]:
    """The beginning of the URLs of databases behind a pool with few sessions."""
    with running_pgbouncer(
        postgres_server, request.param, pool_size=3 if request.param == "transaction" else 10
    ) as port:
        yield f"postgresql://postgres:{postgres_server.password}@127.0.0.1:{port}"


def _run(root: Path, state: str, shop: str) -> RunResult:
    body = {
        "job": "events",
        "source": {"type": "query", "url": shop, "tables": ["events"], "watermark": {"column": "at"}},
        "extract": {"namespace": "shop", "table": "events"},
        "publisher": {"type": "sql_table", "url_env": "LAKE_URL", "table": "events"},
        "output": {"path": "lake"},
    }
    job = JobSpec.model_validate(body)
    return run_job(Project(root, ProjectSpec(project="tests", state=state), (job,)), job, runner=InlineRunner())


def _ids(url: str) -> list[Any]:
    with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id FROM events ORDER BY id")
        return [number for (number,) in cursor.fetchall()]


def test_late_row_of_a_session_that_was_ours_is_read_and_our_settings_are_not_handed_on(
    tmp_path: Path, pooled: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, shop, lake = (f"{pooled}/{postgres_server.new_database()}" for _ in range(3))
    monkeypatch.setenv("LAKE_URL", lake)
    with closing(psycopg2.connect(shop)) as late, closing(psycopg2.connect(shop)) as early:
        with early.cursor() as cursor:
            cursor.execute(EVENTS)
            cursor.execute("INSERT INTO events (at) SELECT now() - interval '1 hour' FROM generate_series(1, 3)")
            early.commit()
            assert _run(tmp_path, state, shop).exit_code == 0
            assert _ids(lake) == [1, 2, 3]
            with late.cursor() as writing:
                writing.execute(INSERT)
                cursor.execute(INSERT)
                early.commit()
                time.sleep(1.1)  # rows of the last second are left for later in any case
                assert _run(tmp_path, state, shop).exit_code == 0
                assert _ids(lake) == [1, 2, 3]
                late.commit()
        assert _run(tmp_path, state, shop).exit_code == 0
    assert _ids(lake) == [1, 2, 3, 4, 5]
    for url in (state, shop, lake):
        with closing(psycopg2.connect(url)) as other, other.cursor() as cursor:
            cursor.execute("SELECT current_setting('lock_timeout'), current_setting('default_transaction_read_only')")
            assert cursor.fetchone() == ("0", "off")
