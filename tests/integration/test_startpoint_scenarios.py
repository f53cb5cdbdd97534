"""The cases of startpoints over files with a state store of plain files, and over PostgreSQL with one in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.startpoint import Specific
from gobblin_dagster.engine.project import Project
from gobblin_dagster.engine.run.job_run import run_job
from gobblin_dagster.spec.job import JobSpec
from gobblin_dagster.spec.project import ProjectSpec
from gobblin_dagster.state.sql.tables import former_bases, metadata
from gobblin_dagster.testing.conformance.state_store.opening import ManualClock
from gobblin_dagster.testing.inline_runner import InlineRunner
from tests.integration.startpoint_scenarios import JOB, NOON, StartpointScenarios, World
from tests.services.postgres import PostgresServer
from tests.unit.engine import jobs


def job(source: dict[str, Any]) -> JobSpec:
    body = {"job": JOB, "source": source, "extract": {"namespace": "test", "table": "events"}}
    return JobSpec.model_validate(body | {"output": {"path": "lake"}})


@dataclass
class Files(World):
    """A file of one row for each day."""

    @property
    def spec(self) -> JobSpec:
        path = "data/{dataset}/{date:%Y-%m-%d}.csv"
        return job({"type": "files", "path": path, "format": {"type": "csv", "columns": {"id": "int64"}}})

    def add(self, numbers: range, which: int = 0) -> None:
        folder = self.root / "data" / self.urns[which]
        folder.mkdir(parents=True, exist_ok=True)
        for number in numbers:
            (folder / f"{self.at(number)}.csv").write_text(f"id\n{number}\n")

    def at(self, number: int) -> str:
        return f"{self.when(number):%Y-%m-%d}"

    def when(self, number: int) -> datetime:
        return NOON + timedelta(days=number)

    def beyond(self) -> str:
        return "2130-01-01"

    def unreachable(self) -> JobSpec:
        path = "elsewhere/{dataset}/{date:%Y-%m-%d}.csv"
        return job(dict(self.spec.source.model_dump()) | {"path": path})

    def vanish(self) -> None:
        (self.root / "data" / self.urns[0]).rename(self.root / "gone")


class TestFiles(StartpointScenarios):
    """Files by date; the state store is plain files."""

    @pytest.fixture
    def world(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
        monkeypatch.setattr(jobs, "STATE", "files:state")
        with closing(Files(tmp_path, ("a", "b"))) as world:
            yield world


@dataclass
class Tables(World):
    """Tables with a time for each row."""

    server: PostgresServer = field(kw_only=True)
    database: str = field(kw_only=True)

    @property
    def spec(self) -> JobSpec:
        return self._on(self.server.url(self.database))

    def _on(self, url: str) -> JobSpec:
        mark = {"column": "at", "type": "timestamp"}
        return job({"type": "query", "url": url, "include": ["public.*"], "watermark": mark, "horizon_wait_s": 0})

    def _execute(self, statement: str) -> None:
        self.server.execute(statement, self.database)

    def add(self, numbers: range, which: int = 0) -> None:
        table = self.urns[which]
        self._execute(f"CREATE TABLE IF NOT EXISTS {table} (id bigint, at timestamptz NOT NULL)")
        rows = ", ".join(f"({number}, '{self.when(number).isoformat()}')" for number in numbers)
        self._execute(f"INSERT INTO {table} VALUES {rows}")

    def at(self, number: int) -> str:
        return self.when(number).isoformat()

    def after(self, number: int) -> str:
        return (self.when(number) + timedelta(microseconds=1)).isoformat()

    def when(self, number: int) -> datetime:
        return NOON + timedelta(hours=number)

    def beyond(self) -> str:
        return "2130-01-01T00:00Z"

    def unreachable(self) -> JobSpec:
        return self._on(self.server.url("nothing_of_this_name"))

    def vanish(self) -> None:
        self._execute(f"DROP TABLE {self.urns[0]}")


@pytest.fixture(scope="module")
def databases(postgres_server: PostgresServer) -> tuple[str, str]:
    """Return the databases of the state store and of the tables: to make and to migrate one costs half a second."""
    return postgres_server.new_database(), postgres_server.new_database()


@pytest.mark.postgres
class TestPostgres(StartpointScenarios):
    """Tables of PostgreSQL; the state store is PostgreSQL, too."""

    @pytest.fixture
    def world(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        postgres_server: PostgresServer,
        databases: tuple[str, str],
    ) -> Iterator[Tables]:
        state, data = databases
        monkeypatch.setattr(jobs, "STATE", postgres_server.url(state))
        with closing(Tables(tmp_path, ("public.a", "public.b"), server=postgres_server, database=data)) as world:
            with world.store():
                postgres_server.execute(f"TRUNCATE {', '.join(metadata.tables.keys() - {former_bases.name})}", state)
            postgres_server.execute("DROP TABLE IF EXISTS a, b", data)
            yield world

    def test_run_whose_clock_is_far_ahead_lets_no_startpoint_expire(self, world: Tables) -> None:
        world.add(range(5))
        world.run()
        world.write(Specific(world.at(3)))
        clock = ManualClock()
        clock.instant = datetime.now(UTC) + timedelta(days=400)
        opened = Project(world.root, ProjectSpec(project="tests", state=jobs.STATE), (world.spec,), clock)
        run_job(opened, world.spec, runner=InlineRunner())
        assert world.ids() == [0, 1, 2, 3, 3, 4, 4]
        assert world.changes() == ["set", "fanned out"]
