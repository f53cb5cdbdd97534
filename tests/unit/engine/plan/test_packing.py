from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.core.work_unit import MultiWorkUnit, WorkUnit
from gobblin_dagster.engine.plan.packing import group_by_dataset, pack_units, pack_worst_fit


def _units(sizes: list[int]) -> list[WorkUnit]:
    return [
        WorkUnit(f"wu-{i}", "d", LongWatermark(i), LongWatermark(i + 1), size_bytes=size)
        for i, size in enumerate(sizes)
    ]


def test_pack_heaviest_unit_gets_a_pack_of_its_own() -> None:
    packs = pack_worst_fit(_units([1, 1, 100, 1, 1]), 2)
    assert [[unit.id for unit in pack.work_units] for pack in packs] == [["wu-2"], ["wu-0", "wu-1", "wu-3", "wu-4"]]


def test_pack_fewer_units_than_bins_gives_no_empty_pack() -> None:
    assert len(pack_worst_fit(_units([5]), 8)) == 1
    assert pack_worst_fit([], 8) == ()


@given(st.lists(st.integers(min_value=0, max_value=10**9), max_size=60), st.integers(min_value=1, max_value=9))
def test_pack_keeps_every_unit_once_and_balances_within_one_unit(sizes: list[int], bins: int) -> None:
    units = _units(sizes)
    packs = pack_worst_fit(units, bins)
    assert sorted(unit.id for pack in packs for unit in pack.work_units) == sorted(unit.id for unit in units)
    assert len(packs) <= bins
    weights = [pack.weight for pack in packs]
    assert weights == sorted(weights, reverse=True)
    if packs:
        # Worst fit puts each unit into the lightest pack, so no pack leads by more than its last, lightest unit.
        assert weights[0] - weights[-1] <= max((unit.weight for unit in packs[0].work_units), default=0)


# -- bi-level ----------------------------------------------------------------------------------------------------------
def _datasets(sizes: dict[str, list[int]]) -> list[WorkUnit]:
    return [
        WorkUnit(f"wu-{urn}-{i:03}", urn, LongWatermark(i), LongWatermark(i + 1), size_bytes=size)
        for urn, parts in sizes.items()
        for i, size in enumerate(parts)
    ]


def _spread_of(packs: Sequence[MultiWorkUnit]) -> float:
    """Return over how many packs a dataset is spread, on average."""
    pairs = {(unit.dataset_urn, number) for number, pack in enumerate(packs) for unit in pack.work_units}
    return len(pairs) / len({urn for urn, _ in pairs})


def test_bi_level_keeps_small_datasets_whole() -> None:
    units = _datasets({f"d{i}": [1] * 8 for i in range(100)})
    single, bi_level = pack_units(units, 4), pack_units(units, 4, "bi_level")
    assert [pack.weight for pack in single] == [200] * 4
    assert [pack.weight for pack in bi_level] == [200] * 4
    assert (_spread_of(single), _spread_of(bi_level)) == (4.0, 1.0)


def test_bi_level_splits_a_large_dataset_and_stays_even() -> None:
    units = _datasets({"large": [10] * 60, **{f"small{i}": [1] * 5 for i in range(20)}})
    packs = pack_units(units, 4, "bi_level")
    weights = [pack.weight for pack in packs]
    assert (sum(weights), max(weights)) == (700, 175)
    assert all(
        len({n for n, pack in enumerate(packs) if any(u.dataset_urn == f"small{i}" for u in pack.work_units)}) == 1
        for i in range(20)
    )


def test_group_weighs_what_its_units_weigh_together() -> None:
    # The original takes the first member's size: both groups of 9 would count as 3, and share a pack.
    units = _datasets({"a": [3, 3, 3], "b": [3, 3, 3], "c": [9], "d": [9]})
    assert [pack.weight for pack in pack_units(units, 4, "bi_level")] == [9, 9, 9, 9]


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.lists(st.integers(0, 10**6), min_size=1, max_size=20), max_size=6),
    st.integers(1, 9),
)
def test_bi_level_keeps_every_unit_once_and_balances_within_one_group(sizes: dict[str, list[int]], bins: int) -> None:
    units = _datasets(sizes)
    packs = pack_units(units, bins, "bi_level")
    assert sorted(unit.id for pack in packs for unit in pack.work_units) == sorted(unit.id for unit in units)
    assert len(packs) <= bins
    if packs:
        heaviest_group = max(group.weight for group in group_by_dataset(units, bins))
        assert packs[0].weight <= sum(unit.weight for unit in units) / len(packs) + heaviest_group
