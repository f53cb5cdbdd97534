"""`gobblin state` over ten thousand datasets: how often it asks the store, whatever the number."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.engine import Engine

from gobblin_dagster.core import serialization
from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.core.watermark.ranges import CommittedRanges
from gobblin_dagster.engine.project import open_project
from gobblin_dagster.state.sql.store import SqlStateStore
from tests.unit.cli.conftest import Cli

MANY = 10_000
NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """What was sent to databases."""
    seen: list[str] = []

    def note(connection: object, cursor: object, statement: str, *others: object) -> None:
        seen.append(" ".join(statement.split()))

    event.listen(Engine, "before_cursor_execute", note)
    yield seen
    event.remove(Engine, "before_cursor_execute", note)


@pytest.fixture
def many(project: Path) -> Path:
    """A store with ten thousand states; written past the protocol, since only reading is looked at."""
    open_project(project).open_store().close()
    states = [
        DatasetState("numbers", f"d{n:05}", 1, CommittedRanges(LongWatermark, {"": ((0, n + 1),)}), 1, "r", NOW)
        for n in range(MANY)
    ]
    rows = [{"urn": state.dataset_urn, "body": serialization.to_json(state)} for state in states]
    engine = create_engine(f"sqlite:///{project}/.gobblin/state.db")
    with engine.begin() as connection:
        insert = (
            "insert into gobblin_dataset_states (job, dataset_urn, version, body) values ('numbers', :urn, 1, :body)"
        )
        connection.execute(text(insert), rows)
    engine.dispose()
    return project


def test_listing_ten_thousand_datasets_asks_for_states_once(cli: Cli, many: Path, statements: list[str]) -> None:
    called = cli("state", "list")
    lines = called.out.splitlines()
    assert lines[0] == "Job numbers: 10,000 datasets published"
    assert lines[-1].split()[:2] == ["d09999", "10000"]
    assert sum("FROM gobblin_dataset_states" in statement and ".body" in statement for statement in statements) == 1
    asked = len(statements)
    statements.clear()
    assert len(cli("state", "list", "--select", "d0000*", "-o", "json").json()["datasets"]) == 10
    assert len(statements) == asked


def test_showing_one_of_ten_thousand_datasets_loads_that_one(
    cli: Cli, many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[int] = []
    load = SqlStateStore.load_dataset_states

    def counting(self: SqlStateStore, job: str, urns: Collection[str] | None = None) -> dict[str, DatasetState]:
        found = load(self, job, urns)
        loaded.append(len(found))
        return found

    monkeypatch.setattr(SqlStateStore, "load_dataset_states", counting)
    assert cli("state", "show", "d00007", "-o", "json").json()["watermark"] == "8"
    assert loaded == [1]
