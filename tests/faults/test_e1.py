"""E1: the exactly-once design's example, on the real committer and both kinds of store, under every single fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from gobblin_dagster.testing.example import Example, StoreKind
from gobblin_dagster.testing.schedules import (
    Report,
    Schedule,
    errors,
    freezes,
    frozen_pairs,
    instants,
    killed_pairs,
    kills,
    late_movers,
    power_losses,
    trace_of,
)

SEED = 20151209
Family = Callable[[Example], Iterator[Schedule]]
SINGLE_FAULTS: dict[str, Family] = {
    "kills": kills,
    "errors": errors,
    "freezes": freezes,
    "power": partial(power_losses, seed=SEED),
}
PAIRS: dict[str, Family] = {
    "killed_pairs": partial(killed_pairs, seed=SEED, samples=15),
    "frozen_pairs": partial(frozen_pairs, seed=SEED, samples=15),
}
KINDS: tuple[StoreKind, ...] = ("sqlite", "files")


def _assert_safe(example: Example, family: Family, at_least: int) -> None:
    report = Report.of(family(example))
    print(f"seed {SEED}: {report}")  # noqa: T201  # shown where the test fails, and with -s
    assert report.broken == (), str(report)
    assert report.schedules >= at_least


@pytest.mark.parametrize("kind", KINDS)
def test_readers_at_every_instant_see_whole_commits(scratch: Path, kind: StoreKind) -> None:
    _assert_safe(Example(scratch / "lake", kind), instants, 60)


@pytest.mark.parametrize("family", SINGLE_FAULTS)
@pytest.mark.parametrize("kind", KINDS)
def test_single_fault_harms_nobody(scratch: Path, kind: StoreKind, family: str) -> None:
    _assert_safe(Example(scratch / "lake", kind), SINGLE_FAULTS[family], 30)


@pytest.mark.parametrize("family", SINGLE_FAULTS)
@pytest.mark.parametrize("kind", [pytest.param("sqlite", marks=pytest.mark.slow), "files"])
def test_single_fault_while_a_commit_is_undone_harms_nobody(scratch: Path, kind: StoreKind, family: str) -> None:
    _assert_safe(Example(scratch / "lake", kind, loses="wu-2"), SINGLE_FAULTS[family], 40)


@pytest.mark.parametrize(
    "unit", ["wu-2", pytest.param("wu-1", marks=pytest.mark.slow), pytest.param("wu-3", marks=pytest.mark.slow)]
)
def test_run_that_wakes_late_cannot_bring_back_what_was_undone(scratch: Path, unit: str) -> None:
    _assert_safe(Example(scratch / "lake", "files", loses=unit), late_movers, 40)


@pytest.mark.parametrize("family", PAIRS)
@pytest.mark.parametrize("kind", KINDS)
def test_fault_during_recovery_harms_nobody(scratch: Path, kind: StoreKind, family: str) -> None:
    _assert_safe(Example(scratch / "lake", kind), PAIRS[family], 15)


@pytest.mark.slow
@pytest.mark.parametrize("family", [*SINGLE_FAULTS, *PAIRS])
@pytest.mark.parametrize("kind", KINDS)
def test_two_branches_are_published_together(scratch: Path, kind: StoreKind, family: str) -> None:
    _assert_safe(Example(scratch / "lake", kind, branches=("main", "copy")), (SINGLE_FAULTS | PAIRS)[family], 15)


@pytest.mark.parametrize("kind", KINDS)
def test_two_branches_are_seen_together_at_every_instant(scratch: Path, kind: StoreKind) -> None:
    _assert_safe(Example(scratch / "lake", kind, branches=("main", "copy")), instants, 60)


@pytest.mark.parametrize("kind", KINDS)
def test_trace_is_the_same_each_time(scratch: Path, kind: StoreKind) -> None:
    example = Example(scratch / "lake", kind)
    first = trace_of(example)
    assert trace_of(example) == first
    assert first.count("storage.move") == 3
