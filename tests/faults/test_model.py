"""Every interleaving of two runners: the protocol keeps its invariants, and each part left out breaks one."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobblin_dagster.testing.protocol.model import Bounds, Result, Rules, search

PAGE = Path(__file__).parents[2] / "docs/concepts/commit.md"
BOUNDS = Bounds()
SAFE: dict[str, tuple[Rules, Bounds]] = {
    "the protocol, readers of the folder": (Rules(), Bounds(runs=4)),
    "the protocol, readers of snapshots": (Rules(folder_readers=False), BOUNDS),
    "version only, neither lease nor epoch": (Rules(lease=False, epoch=False), BOUNDS),
    "moves by copies, no automatic undo": (Rules(copies=True, undo=False), BOUNDS),
    "moves by copies, readers of snapshots": (Rules(copies=True, folder_readers=False), BOUNDS),
}
LARGE = {"version only, neither lease nor epoch", "moves by copies, readers of snapshots"}
"""Searches of most of the time."""
BROKEN: dict[str, tuple[Rules, str]] = {
    "neither lease, epoch nor version": (Rules(lease=False, epoch=False, cas=False), "I13"),
    "lease without a check": (Rules(epoch=False, cas=False), "I13"),
    "no sync of folders": (Rules(fsync=False), "I3"),
    "names without the commit id": (Rules(unique_names=False), "I3"),
    "undo deletes targets first": (Rules(sources_first=False), "I2"),
    "moves by copies, automatic undo": (Rules(copies=True), "I2"),
}


def _assert_told(name: str, result: Result) -> None:
    """The table of the page holds what was searched; a search is the same each time."""
    said = "none broken" if not result.broken else result.broken.partition(" ")[0].rstrip(":") + " broken"
    assert f"| {name} | {result.states:,} | {said} |" in PAGE.read_text()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.storm) if name in LARGE else name for name in SAFE]
)
def test_no_interleaving_breaks_an_invariant(name: str) -> None:
    result = search(*SAFE[name])
    assert result.broken == "", str(result)
    _assert_told(name, result)


@pytest.mark.parametrize("name", BROKEN)
def test_each_part_of_the_protocol_is_needed(name: str) -> None:
    rules, invariant = BROKEN[name]
    result = search(rules, BOUNDS)
    print(f"{name}: {result}")  # noqa: T201  # the counterexample, shown with -s
    assert result.broken.startswith(invariant), str(result)
    _assert_told(name, result)


def test_counterexample_ends_in_the_power_loss_that_takes_what_was_committed() -> None:
    result = search(Rules(fsync=False), BOUNDS)
    assert result.trace[-2:] == ("run 1: COMMITTED", "power loss undoes 1 of 2 renames")


def test_nothing_is_broken_where_nothing_happens() -> None:
    """The search finds no harm in the weakest protocol without faults: it is the faults that need the parts."""
    rules = Rules(epoch=False, cas=False, fsync=False, sources_first=False, copies=True)
    assert search(rules, Bounds(expiries=0, power_losses=0, lost_files=0)).broken == ""
