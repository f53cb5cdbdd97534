"""E1-E4: the exactly-once design's example, on the real committer, under every single fault and pairs of them.

Processes are killed where steps are plain. Elsewhere a kill halts the run in this process, which leaves the same disk
and costs less; `make crash-table` kills processes there too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from gobblin_dagster.testing.protocol.harm import Harm
from gobblin_dagster.testing.protocol.power_loss import failed_syncs, power_losses, torn_writes
from gobblin_dagster.testing.protocol.scenario import FIRST_BATCH, Example, Shape, StoreKind
from gobblin_dagster.testing.protocol.schedules import (
    Report,
    Schedule,
    errors,
    freezes,
    freezes_of_one,
    frozen_pairs,
    instants,
    killed_pairs,
    kills,
    late_errors,
    late_movers,
    recovered,
    trace_of,
)
from gobblin_dagster.testing.protocol.storages import StorageKind, StorageSetup, late_listing, make_storage

SEED = 20151209
Family = Callable[[Example], Iterator[Schedule]]
SINGLE_FAULTS: dict[str, Family] = {
    "kills": kills,
    "errors": errors,
    "late_errors": late_errors,
    "freezes": freezes,
    "torn_writes": torn_writes,
}
_AT_LEAST = {"late_errors": 9, "kills": 15}
"""Schedules of families that begin in the middle of a run, or pass over calls that only look."""
DISKS: dict[str, Family] = {
    "power": partial(power_losses, seed=SEED, limit=32),
    "failed_syncs": partial(failed_syncs, seed=SEED),
}
PAIRS: dict[str, Family] = {
    "killed_pairs": partial(killed_pairs, seed=SEED, samples=15),
    "frozen_pairs": partial(frozen_pairs, seed=SEED, samples=15),
}
KINDS: tuple[StoreKind, ...] = ("sqlite", "files")
STORAGES: tuple[StorageKind, ...] = ("memory", "copies")
SHAPES: tuple[Shape, ...] = ("batches", "permissions", "at least once")


def _assert_safe(example: Example, family: Family, at_least: int) -> None:
    report = Report.of(family(example))
    print(f"seed {SEED}: {report}")  # noqa: T201  # shown where the test fails, and with -s
    assert report.broken == (), str(report)
    assert report.schedules >= at_least


@pytest.mark.parametrize("kind", KINDS)
def test_readers_at_every_instant_see_whole_commits(scratch: Path, kind: StoreKind) -> None:
    _assert_safe(Example(scratch / "lake", kind), instants, 60)


@pytest.mark.parametrize("family", [*SINGLE_FAULTS, *DISKS])
@pytest.mark.parametrize("kind", KINDS)
def test_single_fault_harms_nobody(scratch: Path, kind: StoreKind, family: str) -> None:
    _assert_safe(Example(scratch / "lake", kind), (SINGLE_FAULTS | DISKS)[family], _AT_LEAST.get(family, 24))


@pytest.mark.parametrize("family", SINGLE_FAULTS)
@pytest.mark.parametrize("storage", STORAGES)
def test_single_fault_on_other_storages_harms_nobody(scratch: Path, storage: StorageKind, family: str) -> None:
    _assert_safe(
        Example(scratch / "lake", "files", setup=make_storage(storage, "")),
        SINGLE_FAULTS[family],
        _AT_LEAST.get(family, 24),
    )


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(name, marks=[pytest.mark.storm] * (name in {"late_errors", "freezes", "torn_writes"}))
        for name in SINGLE_FAULTS
    ],
)
def test_single_fault_where_listings_are_late_harms_nobody(scratch: Path, family: str) -> None:
    """The state is in a database: plain files need listings that are true, which all supported storages have."""
    copies = make_storage("copies", "")
    setup = StorageSetup(copies.root, copies.kind, copies.storage, lambda storage: late_listing(copies.over(storage)))
    _assert_safe(Example(scratch / "lake", "sqlite", setup=setup), SINGLE_FAULTS[family], _AT_LEAST.get(family, 24))


@pytest.mark.parametrize("family", ["instants", *SINGLE_FAULTS, *DISKS])
@pytest.mark.parametrize("kind", [pytest.param("sqlite", marks=pytest.mark.storm), "files"])
@pytest.mark.parametrize("shape", SHAPES)
def test_single_fault_harms_nobody_whatever_the_steps_are(
    scratch: Path, shape: Shape, kind: StoreKind, family: str
) -> None:
    families = {"instants": instants, **SINGLE_FAULTS, **DISKS}
    _assert_safe(Example(scratch / "lake", kind, shape=shape, halts=True), families[family], _AT_LEAST.get(family, 20))


@pytest.mark.parametrize(
    ("kind", "family"),
    [("sqlite", "instants"), ("files", "kills"), ("sqlite", "errors"), ("sqlite", "freezes_of_one")]
    + [
        pytest.param(kind, name, marks=pytest.mark.storm)
        for kind in KINDS
        for name in ("freezes_of_one", *SINGLE_FAULTS, *DISKS)
        if (kind, name) not in {("files", "kills"), ("sqlite", "errors"), ("sqlite", "freezes_of_one")}
    ],
)
def test_single_fault_harms_no_dataset_that_shares_transactions(scratch: Path, kind: StoreKind, family: str) -> None:
    families = {"instants": instants, "freezes_of_one": freezes_of_one, **SINGLE_FAULTS, **DISKS}
    example = Example(scratch / "lake", kind, shape="together", halts=True)
    _assert_safe(example, families[family], _AT_LEAST.get(family, 40))


@pytest.mark.parametrize("family", [*sorted(SINGLE_FAULTS.keys() - {"late_errors"}), *DISKS])
@pytest.mark.parametrize("kind", [pytest.param("sqlite", marks=pytest.mark.storm), "files"])
def test_single_fault_while_a_commit_is_undone_harms_nobody(scratch: Path, kind: StoreKind, family: str) -> None:
    example = Example(scratch / "lake", kind, loses="wu-2", halts=True)
    _assert_safe(example, (SINGLE_FAULTS | DISKS)[family], _AT_LEAST.get(family, 18))


@pytest.mark.parametrize(
    "unit", ["wu-2", pytest.param("wu-1", marks=pytest.mark.storm), pytest.param("wu-3", marks=pytest.mark.storm)]
)
def test_run_that_wakes_late_cannot_bring_back_what_was_undone(scratch: Path, unit: str) -> None:
    _assert_safe(Example(scratch / "lake", "files", loses=unit), late_movers, 40)


@pytest.mark.parametrize("kind", KINDS)
def test_copy_that_arrives_late_changes_nothing(scratch: Path, kind: StoreKind) -> None:
    _assert_safe(Example(scratch / "lake", kind, setup=make_storage("copies", "")), late_movers, 40)


@pytest.mark.parametrize(
    ("kind", "family"),
    [
        ("files", "killed_pairs"),
        ("sqlite", "frozen_pairs"),
        pytest.param("sqlite", "killed_pairs", marks=pytest.mark.storm),
        pytest.param("files", "frozen_pairs", marks=pytest.mark.storm),
    ],
)
def test_fault_during_recovery_harms_nobody(scratch: Path, kind: StoreKind, family: str) -> None:
    _assert_safe(Example(scratch / "lake", kind), PAIRS[family], 15)


@pytest.mark.storm
@pytest.mark.parametrize("family", [killed_pairs, frozen_pairs])
@pytest.mark.parametrize("storage", STORAGES)
def test_faults_in_two_runs_harm_nobody(
    scratch: Path, storage: StorageKind, family: Callable[..., Iterator[Schedule]]
) -> None:
    """All pairs: `make crash-table PAIRS=1`."""
    example = Example(scratch / "lake", "files", setup=make_storage(storage, ""))
    _assert_safe(example, partial(family, seed=SEED, samples=100), 100)


@pytest.mark.parametrize(
    ("kind", "family"),
    [("files", "kills"), ("files", "killed_pairs"), ("sqlite", "errors")]
    + [
        pytest.param("files", name, marks=pytest.mark.storm)
        for name in (*SINGLE_FAULTS, *DISKS, *PAIRS)
        if name not in {"kills", "killed_pairs"}
    ]
    + [pytest.param("sqlite", "kills", marks=pytest.mark.storm)],
)
def test_two_branches_are_published_together(scratch: Path, kind: StoreKind, family: str) -> None:
    families = SINGLE_FAULTS | DISKS | PAIRS
    example = Example(scratch / "lake", kind, branches=("main", "copy"), halts=True)
    _assert_safe(example, families[family], _AT_LEAST.get(family, 15))


@pytest.mark.parametrize("kind", KINDS)
def test_two_branches_are_seen_together_at_every_instant(scratch: Path, kind: StoreKind) -> None:
    _assert_safe(Example(scratch / "lake", kind, branches=("main", "copy")), instants, 60)


@pytest.mark.parametrize("kind", KINDS)
def test_trace_is_the_same_each_time(scratch: Path, kind: StoreKind) -> None:
    example = Example(scratch / "lake", kind)
    first = trace_of(example)
    assert trace_of(example) == first
    assert first.count("storage.move") == 3


@pytest.mark.parametrize("kind", KINDS)
def test_disk_is_looked_at_again_only_where_a_byte_differs(scratch: Path, kind: StoreKind) -> None:
    example = Example(scratch / "lake", kind)
    for _ in range(2):
        example.reset()
        example.run("A", FIRST_BATCH)
        assert recovered(example, "nothing happened").violations == ()
    assert len(example.found) == 1
    example.reset()
    example.run("A", FIRST_BATCH)
    published = next(Path(example.output_root).glob("main/*/*/*.txt"))
    published.write_bytes(published.read_bytes()[:-1] + b"?")
    assert Harm.AHEAD in {violation.harm for violation in recovered(example, "a byte of a file is wrong").violations}
    assert len(example.found) == 2
