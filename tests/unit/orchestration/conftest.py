"""An ephemeral Dagster instance per test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from tests.unit.orchestration.world import World


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def world(tmp_path: Path, instance: dg.DagsterInstance) -> World:
    """Three good datasets."""
    return World(tmp_path, instance, {"a": {"rows": 30}, "b/1": {"rows": 5}, "c c": {"rows": 20}})
