"""What every StateStore promises, over all that we ship."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gobblin_dagster.core.clock import Clock
from gobblin_dagster.state import StateStore
from gobblin_dagster.testing.conformance import QuickStateStoreConformance, StateStoreConformance
from gobblin_dagster.testing.conformance.state_store.batches import Batches
from gobblin_dagster.testing.conformance.state_store.commits import Commits
from gobblin_dagster.testing.conformance.state_store.endings import Endings
from gobblin_dagster.testing.conformance.state_store.leases import Leases
from gobblin_dagster.testing.conformance.state_store.pruning import Pruning
from gobblin_dagster.testing.conformance.state_store.records import Records
from gobblin_dagster.testing.conformance.state_store.snapshots import Snapshots
from gobblin_dagster.testing.conformance.state_store.startpoints import Startpoints
from gobblin_dagster.testing.conformance.state_store.states import States
from tests.contract.conftest import FAR, NEARBY


class TestStoresNearby(QuickStateStoreConformance):
    @pytest.fixture(params=NEARBY)
    def open_one(self, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Clock], StateStore]:
        opens: Callable[[Clock], StateStore] = request.param(request, tmp_path)
        return opens


class _FarAway:
    @pytest.fixture(params=FAR)
    def open_one(self, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Clock], StateStore]:
        opens: Callable[[Clock], StateStore] = request.param(request, tmp_path)
        return opens


class TestStoresFarAway(_FarAway, Leases, Commits, Batches, Snapshots, Pruning):
    """What depends on the storage below: who is first, what is whole, what is listed, what is deleted, and names."""

    test_urns_never_share_anything = States.test_urns_never_share_anything


@pytest.mark.storm
class TestRestOfStoresFarAway(_FarAway, States, Endings, Records, Startpoints):
    """What `files` shows nearby: it does with each storage the same."""


def test_every_part_is_tried_far_away() -> None:
    parts = {*TestStoresFarAway.__bases__, *TestRestOfStoresFarAway.__bases__} - {_FarAway}
    assert parts == {*StateStoreConformance.__bases__}
