"""What every StateStore promises, over all that we ship."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gobblin_dagster.core.clock import Clock
from gobblin_dagster.state import StateStore
from gobblin_dagster.testing.conformance import QuickStateStoreConformance, StateStoreConformance
from tests.contract.conftest import FAR, NEARBY


class TestStoresNearby(QuickStateStoreConformance):
    @pytest.fixture(params=NEARBY)
    def open_one(self, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Clock], StateStore]:
        opens: Callable[[Clock], StateStore] = request.param(request, tmp_path)
        return opens


class TestStoresFarAway(StateStoreConformance):
    @pytest.fixture(params=FAR)
    def open_one(self, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Clock], StateStore]:
        opens: Callable[[Clock], StateStore] = request.param(request, tmp_path)
        return opens
