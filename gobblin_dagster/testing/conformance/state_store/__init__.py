"""What every state store promises: one class, whose tests stand in a module for each part of the protocol.

`values.py` has the states and sequences that they work with, `opening.py` says how a store is opened.
"""

from gobblin_dagster.state.store import StateStore
from gobblin_dagster.testing.conformance.state_store.batches import Batches
from gobblin_dagster.testing.conformance.state_store.commits import Commits
from gobblin_dagster.testing.conformance.state_store.endings import Endings
from gobblin_dagster.testing.conformance.state_store.leases import Leases
from gobblin_dagster.testing.conformance.state_store.opening import ManualClock, StoreMaker
from gobblin_dagster.testing.conformance.state_store.pruning import Pruning
from gobblin_dagster.testing.conformance.state_store.records import Records
from gobblin_dagster.testing.conformance.state_store.snapshots import Snapshots
from gobblin_dagster.testing.conformance.state_store.startpoints import Startpoints
from gobblin_dagster.testing.conformance.state_store.states import States
from gobblin_dagster.testing.conformance.state_store.values import JOB, ME, TTL

__all__ = ["ManualClock", "QuickStateStoreConformance", "StateStoreConformance", "StoreMaker"]


class StateStoreConformance(States, Leases, Commits, Batches, Endings, Records, Snapshots, Startpoints, Pruning):
    """Tests of a state store.

    Example:
        ::

            class TestDrawer(StateStoreConformance):
                @pytest.fixture
                def open_one(self, tmp_path: Path) -> Callable[[Clock], StateStore]:
                    return lambda clock: DrawerStore(tmp_path / "drawer", clock)
    """


class QuickStateStoreConformance(StateStoreConformance):
    """Tests of a state store that is near: what would take minutes where each call is a request to a far server."""

    def test_many_datasets_cost_few_calls(self, store: StateStore) -> None:
        """Leases of 2,000 datasets are taken, renewed and given back in few calls."""
        urns = [f"dataset/{n:05}" for n in range(2_000)]

        granted = store.acquire_leases(JOB, urns, ME, TTL).granted
        renewed = store.renew_leases(JOB, list(granted.values()), 2 * TTL)
        store.release_leases(JOB, list(renewed.values()))

        assert set(granted) == set(renewed) == set(urns)
        assert store.load_leases(JOB) == {}
        assert store.load_dataset_states(JOB, urns) == {}
