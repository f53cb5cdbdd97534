"""A service on SQLite or PostgreSQL, whose clock the test owns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gobblin_dagster.core.errors import FlowCompileError
from gobblin_dagster.service.catalog.flow_config import FlowSettings
from gobblin_dagster.service.manager import FlowManager
from gobblin_dagster.service.model import Dag, DagJob, FlowConfig, FlowId, Schedule
from gobblin_dagster.service.orchestrator.orchestrator import Orchestrator
from gobblin_dagster.service.scheduler.scheduler import Scheduler
from gobblin_dagster.service.store.store import ServiceStore
from tests.services.postgres import PostgresServer

NOW = datetime(2026, 11, 22, 18, 0, 30, tzinfo=UTC)
HOP_TEMPLATE = """\
template: hop
job:
  source: {type: files, path: "in/{dataset}.csv", format: {type: csv}}
  extract: {namespace: test, table: orders}
  output: {path: lake}
"""
"""A template for edges, as `hop.template`."""


class OwnClock:
    """Stands still until the test moves it."""

    def __init__(self) -> None:
        self.instant = NOW

    def now(self) -> datetime:
        return self.instant

    def move(self, **by: float) -> None:
        self.instant += timedelta(**by)


class OwnedStore(ServiceStore):
    """A store that tells the test's time on PostgreSQL too."""

    def now(self, transaction: Any) -> datetime:
        return self._clock.now()


@pytest.fixture
def clock() -> OwnClock:
    return OwnClock()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/service.db"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.url(server.new_database())


@pytest.fixture
def store(store_url: str, clock: OwnClock) -> Iterator[ServiceStore]:
    with OwnedStore(store_url, clock) as opened:
        yield opened


def compile_flow(config: FlowConfig) -> Dag:
    """Make one job of each template, one after the other, all with the property `body`; `broken` does not compile."""
    if "broken" in config.properties:
        raise FlowCompileError(flow=str(config.id), reasons=("it is broken",))
    names = [uri.rpartition("/")[2] for uri in config.template_uris.split(",")]
    attempts = int(config.properties.get("job.maxAttempts", "1"))
    start = FlowSettings.of(config.properties).start_within
    limit = None if start is None else int(start.total_seconds())
    body = config.properties.get("body", "{}")
    jobs = (DagJob(n, "embedded", body, tuple(names[:at][-1:]), attempts, limit) for at, n in enumerate(names))
    return Dag(tuple(jobs))


@pytest.fixture
def orchestrator(store: ServiceStore) -> Orchestrator:
    return Orchestrator(store, compile_flow)


@pytest.fixture
def manager(store: ServiceStore, orchestrator: Orchestrator) -> FlowManager:
    return FlowManager(store, compile_flow, orchestrator)


@pytest.fixture
def scheduler(store: ServiceStore, orchestrator: Orchestrator) -> Scheduler:
    return Scheduler(store, orchestrator)


def flow(
    name: str = "n",
    templates: str = "FS:///a",
    cron: str | None = None,
    properties: Mapping[str, str] | None = None,
    **more: Any,
) -> FlowConfig:
    """Return a flow of the group `g`."""
    schedule = None if cron is None else Schedule(cron)
    return replace(FlowConfig(FlowId("g", name), templates, dict(properties or {}), schedule), **more)


Create = Callable[..., int]


@pytest.fixture
def create(store: ServiceStore, manager: FlowManager) -> Create:
    """Return what stores a flow and tells its execution id."""

    def made(config: FlowConfig) -> int:
        with store.write() as transaction:
            return manager.create(transaction, config, "tester").execution

    return made
