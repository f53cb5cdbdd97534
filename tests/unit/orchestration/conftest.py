"""An ephemeral Dagster instance per test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from tests.unit.orchestration.world import World


@pytest.fixture(scope="session", autouse=True)
def migrations_of_dagster_are_read_once() -> Iterator[None]:
    """Let Alembic read Dagster's hundred migrations once in this process: each new instance reads them otherwise."""
    read = ScriptDirectory.from_config
    known: dict[str, ScriptDirectory] = {}

    def from_config(config: Config) -> ScriptDirectory:
        folder = config.get_main_option("script_location") or ""
        if not folder.startswith("dagster:"):
            return read(config)
        return known.get(folder) or known.setdefault(folder, read(config))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", from_config)
        yield


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def world(tmp_path: Path, instance: dg.DagsterInstance) -> World:
    """Three good datasets."""
    return World(tmp_path, instance, {"a": {"rows": 30}, "b/1": {"rows": 5}, "c c": {"rows": 20}})
