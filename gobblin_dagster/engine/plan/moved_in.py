"""Find datasets that go on in the place of another job: two jobs exchanged their names, outputs or sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.places import is_same_place
from gobblin_dagster.state.store import StateStore


def moved_in(
    store: StateStore, states: Mapping[str, DatasetState], homes: Mapping[str, Mapping[str, str]], command: str
) -> dict[str, str]:
    """Return, by dataset.urn, why a run would publish rows of another job twice, or leave some of its own out.

    Asks the store only for datasets that go on in another place than before.

    Args:
        store: the state store.
        states: states of the datasets that have something new, and no startpoint.
        homes: what will hold the rows of each branch, and where (`branch_homes`).
        command: sets a startpoint.
    """
    here = [place for home in homes.values() for place in home.values() if place]
    found = {}
    for urn, ours in states.items():
        was = _places(ours)
        if not here or not was or _meet(was, here):
            continue
        for name in store.list_jobs([urn], {ours.job}):
            other = store.load_readable_states(name, [urn])[0].get(urn)
            if other is not None and _meet(_places(other), here):
                found[urn] = (
                    f"this job published this dataset up to {ours.watermark} to {was[0]}, and job {name!r} published "
                    f"it up to {other.watermark} to {here[0]}, where this job would go on. If the two exchanged their "
                    "names or outputs, rows would come twice or be left out: give each its own again. Else "
                    f"`{command}` says where this job goes on: at {other.watermark} if it takes the place of that one, "
                    f"at {ours.watermark} if both are to publish here"
                )
                break
    return found


def _places(state: DatasetState) -> list[str]:
    return [place for places in state.places.values() for place in places if place]


def _meet(some: Iterable[str], others: Iterable[str]) -> bool:
    return any(is_same_place(one, other) for one in some for other in others)
