"""Find datasets that go on in the place of another job: two jobs exchanged their names, outputs or sources."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial

from gobblin_dagster.core.dataset_state import DatasetState
from gobblin_dagster.core.same_place import do_meet
from gobblin_dagster.core.urn import place_of
from gobblin_dagster.state.store import StateStore


def moved_in(
    store: StateStore,
    states: Mapping[str, DatasetState],
    homes: Mapping[str, Mapping[str, str]],
    command: str,
    base_dir: str,
) -> dict[str, str]:
    """Return, by dataset.urn, why a run would publish rows of another job twice, or leave some of its own out.

    Asks the store only for datasets that go on in another place than before.

    Args:
        store: the state store.
        states: states of the datasets that have something new, and no startpoint.
        homes: what will hold the rows of each branch, and where (`branch_homes`).
        command: what sets a startpoint, in the words of messages.
        base_dir: absolute folder that relative places begin at.
    """
    # Most datasets are at the same places, and a place may cost a look at its file.
    meet = cache(partial(do_meet, base=base_dir))
    places = [place for home in homes.values() for place in home.values() if place]
    found = {}
    for urn, ours in states.items():
        here = tuple(place_of(urn, place) for place in places)
        was = _places(ours, is_last=True)
        if not here or not was or meet(was, here):
            continue
        goes_back = meet(_places(ours), here)
        for name in store.list_jobs([urn], {ours.job}):
            other = store.load_readable_states(name, [urn])[0].get(urn)
            theirs = _places(other) if other is not None else ()
            says = (
                f"this job published this dataset up to {ours.watermark} to {was[0]}, and job {name!r} published it up"
            )
            if other is not None and meet(theirs, here):
                found[urn] = (
                    f"{says} to {other.watermark} to {here[0]}, where this job would go on. If the two exchanged their "
                    "names or outputs, rows would come twice or be left out: give each its own again. Else "
                    f"{command} says where this job goes on: at {other.watermark} if it takes the place of that one, "
                    f"at {ours.watermark} if both are to publish here"
                )
                break
            if other is not None and goes_back and meet(theirs, was):
                found[urn] = (
                    f"{says} to {other.watermark} there too. This job goes back to {here[0]}, which lacks what it "
                    f"published since it left: {command} says where it goes on there"
                )
                break
    return found


def _places(state: DatasetState, *, is_last: bool = False) -> tuple[str, ...]:
    """Return where the rows of a dataset are, or where those of its last commit are."""
    lasts = {name: len(state.holders[name]) for name in state.holders if is_last}
    held = [place for name, places in state.places.items() for place in places[: lasts.get(name)] if place]
    return tuple(place_of(state.dataset_urn, place) for place in held)
