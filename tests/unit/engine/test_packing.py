from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gobblin_dagster.core.watermark import LongWatermark
from gobblin_dagster.core.work_unit import WorkUnit
from gobblin_dagster.engine.packing import pack_worst_fit


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
